"""From settings to a gate: what has been granted before a session begins, and who decides from then on."""

from collections.abc import Callable, Mapping
from pathlib import Path

from protocol.events import AnyEvent, Notice
from protocol.permission import Permission, PermissionWordError
from protocol.policy import Rung, SandboxPolicy
from protocol.tools.catalog import Arguments
from supervisor.exits import USAGE, StopError
from supervisor.permits.asking import Asker, Questions
from supervisor.permits.decisions import Decisions, Record
from supervisor.permits.gate import Gate, Workers
from supervisor.permits.grants import Grants, ProjectGrants
from supervisor.permits.judgement import Judgement
from supervisor.permits.wanted import Place, wanted
from supervisor.policy.widen import impossible, widened
from supervisor.settings import Settings


class Permits:
    """What a session may do from its start.  Raises StopError for an `--allow` that can't be granted."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], tell: Callable[[AnyEvent], None]
    ) -> None:
        self._settings = settings
        self._tell = tell
        home = Path(environ.get("HOME") or "~").expanduser().resolve()
        self._place = Place(settings.workspace.resolve(), home, settings.home.resolve())
        kept = ProjectGrants(settings.home, settings.project)
        self.grants = Grants(self._given(), kept)
        if kept.problem:
            tell(Notice(text=kept.problem, level="warning"))

    def _given(self) -> list[Permission]:
        try:
            return [
                one.permission for one in wanted([str(one) for one in self._settings.granted], self._place)
            ]
        except PermissionWordError as error:
            raise StopError(f"--allow: {error}", USAGE) from error

    def granted(self, policy: SandboxPolicy) -> SandboxPolicy:
        """The policy with all that was granted before.  What can't be had (any more) is told and left out."""
        for one in self.grants.standing():
            if words := impossible(policy, one):
                self._tell(Notice(text=f"the grant {one} is not in force: {words}", level="warning"))
            else:
                policy = widened(policy, [one], home=str(self._place.home))
        return policy

    async def gate(
        self,
        policy: SandboxPolicy,
        workers: Workers,
        asker: Asker | None,
        judge: Callable[[str, Arguments], Judgement],
        record: Record,
    ) -> Gate:
        """The session's gate over the pool, whose first policy this is.  Raises StopError where less is
        enforced than the settings require."""
        require = self._settings.sandbox.require
        gate = Gate(
            policy,
            workers,
            self._place,
            self.grants,
            Questions(asker, self._tell),
            judge,
            Decisions(self._tell, record),
            require=require,
        )
        # Only then does a session wait for its first worker.
        if require is not Rung.OFF and (words := await gate.unmet()):
            raise StopError(words)
        return gate
