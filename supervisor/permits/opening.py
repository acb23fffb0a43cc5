"""From settings to a gate: what has been granted before a session begins, and who decides from then on."""

import os
from collections.abc import Callable, Mapping, Sequence
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
from supervisor.places import user_file
from supervisor.policy.widen import impossible, widened
from supervisor.settings import Settings


class Permits:
    """What a session may do from its start.  `base`: its policy without any grant.  Raises StopError for an
    `--allow` that can't be granted."""

    def __init__(
        self,
        settings: Settings,
        base: SandboxPolicy,
        environ: Mapping[str, str],
        tell: Callable[[AnyEvent], None],
    ) -> None:
        self.settings = settings
        self._base = base
        self._tell = tell
        home = Path(environ.get("HOME") or "~").expanduser().resolve()
        own = user_file(environ).parent.resolve()
        self._place = Place(settings.workspace.resolve(), home, settings.home.resolve(), own)
        kept = ProjectGrants(settings.home, settings.project)
        self.grants = Grants(self._given(), kept)
        if kept.problem:
            tell(Notice(text=kept.problem, level="warning"))
        self.policy = self._granted(base)
        """With all that was granted before the session."""

    def rebase(self, base: SandboxPolicy) -> SandboxPolicy:
        """From now on this is the policy without any grant; with all that stands."""
        self._base = base
        self.policy = self._granted(base)
        return self.policy

    def meant(self, words: Sequence[str]) -> list[Permission]:
        """Permissions by their words, with real paths.  Raises PermissionWordError."""
        return [one.permission for one in wanted(words, self._place)]

    def _given(self) -> list[Permission]:
        try:
            return self.meant([str(one) for one in self.settings.granted])
        except PermissionWordError as error:
            raise StopError(f"--allow: {error}", USAGE) from error

    def _granted(self, policy: SandboxPolicy) -> SandboxPolicy:
        """What can't be had (any more) is told and left out."""
        for one in self.grants.standing():
            if words := impossible(policy, one):
                self._tell(Notice(text=f"the grant {one} is not in force: {words}", level="warning"))
            else:
                policy = widened(policy, [one], home=str(self._place.home))
        return policy

    def _judge(self, workers: Workers) -> Callable[[str, Arguments], Judgement]:
        place, rules = self._place, self.settings.rules
        if not (rules.allow or rules.ask or rules.deny):
            return lambda _tool, _arguments: Judgement()
        # Late: it loads a parser of bash, which takes longer than all the rest of this room.
        from supervisor.permits.rules import Where, judge

        def judged(tool: str, arguments: Arguments) -> Judgement:
            where = Where(str(place.workspace), str(place.home), workers.cwd, os.path.realpath)
            return judge(rules, tool, arguments, where)

        return judged

    async def gate(
        self,
        workers: Workers,
        asker: Asker | None,
        record: Record,
    ) -> Gate:
        """The session's gate over the pool, whose first policy is `policy`.  Raises StopError where less is
        enforced than the settings require."""
        require = self.settings.sandbox.require
        gate = Gate(
            self._base,
            self.policy,
            workers,
            self._place,
            self.grants,
            Questions(asker, self._tell),
            self._judge(workers),
            Decisions(self._tell, record),
            require=require,
        )
        # Only with a floor does a session wait for its first worker.
        if require is not Rung.OFF and (words := await gate.unmet()):
            raise StopError(words)
        return gate
