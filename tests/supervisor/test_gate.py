"""The gate over workers that a test describes: rules, rungs, and who decided."""

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from protocol.conversation import ToolCall
from protocol.events import AnyEvent, PermissionAnswered, PermissionAsked
from protocol.permission import Permission, parse
from protocol.policy import Mode, Network, Rung, SandboxPolicy
from protocol.tools.catalog import Arguments
from protocol.tools.run_command import RunCommand
from protocol.wire import Ready
from supervisor.exits import StopError
from supervisor.permits.asking import Answer, Questions, Scope
from supervisor.permits.decisions import Decisions
from supervisor.permits.gate import Gate, Refuse, Run
from supervisor.permits.grants import Grants, ProjectGrants
from supervisor.permits.judgement import Judgement, Verdict
from supervisor.permits.wanted import Place
from tests.supervisor.asking import ScriptedAsker

NO_LANDLOCK = "This kernel offers no Landlock."


class Workers:
    """Workers that are idle, or not, and as confined as a test says."""

    def __init__(self, rung: Rung, why: str, cwd: str) -> None:
        self.cwd = cwd
        self.refusal = ""
        self.idle = True
        self.replaced: list[SandboxPolicy] = []
        self._ready = Ready(rung, refuse_commands=why)

    async def ready(self) -> Ready:
        return self._ready

    def replace(self, policy: SandboxPolicy) -> bool:
        self.replaced.append(policy)
        return self.idle


class Yard:
    """A gate with all that it needs; `judged` maps commands to what the rules say of them."""

    def __init__(
        self,
        root: Path,
        *answers: Answer,
        rung: Rung = Rung.FULL,
        mode: Mode = Mode.WORKSPACE_WRITE,
        given: tuple[Permission, ...] = (),
        judged: dict[str, Judgement] | None = None,
        require: Rung = Rung.OFF,
        somebody: bool = True,
    ) -> None:
        for name in ("workspace", "home", "state", "beside"):
            (root / name).mkdir(exist_ok=True)
        self.beside = root / "beside"
        self.told: list[AnyEvent] = []
        self.written: list[PermissionAnswered] = []
        self.full = False
        self.asker = ScriptedAsker(*answers)
        self.judged = judged or {}
        self.workers = Workers(rung, NO_LANDLOCK if rung is Rung.OFF else "", str(root / "workspace"))
        policy = SandboxPolicy(str(root / "workspace"), mode=mode)
        self.gate = Gate(
            policy,
            policy,
            self.workers,
            Place(root / "workspace", root / "home", root / "state", root / "home/.config/polier"),
            Grants(given, ProjectGrants(root / "state", "key")),
            Questions(self.asker if somebody else None, self.told.append),
            self.judge,
            Decisions(self.told.append, self.record),
            require=require,
        )

    def judge(self, tool: str, arguments: Arguments) -> Judgement:
        return self.judged.get(arguments.command if isinstance(arguments, RunCommand) else tool, Judgement())

    def record(self, decided: PermissionAnswered) -> None:
        if self.full:
            raise StopError("the disk is full")
        self.written.append(decided)

    async def admit(self, command: str, *needs: str, **more: object) -> Run | Refuse:
        arguments = {"command": command, "needs": needs, **more}
        with trio.fail_after(5):
            return await self.gate.admit(ToolCall("c", "run_command", json.dumps(arguments)))

    async def tool(self, name: str, arguments: dict[str, object]) -> Run | Refuse:
        return await self.gate.admit(ToolCall("c", name, json.dumps(arguments)))

    @property
    def by(self) -> list[tuple[bool, str, str]]:
        return [(one.allowed, one.by, one.scope) for one in self.written]


DENY = Judgement(Verdict.DENY, "run_command rm", "rm -r x")
ASK = Judgement(Verdict.ASK, "run_command git push")
ALLOW = Judgement(Verdict.ALLOW, "run_command ls")


async def test_what_needs_nothing_runs_and_nothing_is_told(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    assert await yard.admit("ls") == Run()
    assert await yard.tool("read_file", {"path": "a"}) == Run()
    assert await yard.tool("read_file", {"nonsense": "a"}) == Run()
    assert (yard.told, yard.written) == ([], [])


async def test_a_rule_that_denies_is_named_with_what_it_met_and_nobody_is_asked(tmp_path: Path) -> None:
    yard = Yard(tmp_path, judged={"rm -r x": DENY})
    refused = await yard.admit("rm -r x", f"write:{tmp_path}/beside")
    assert isinstance(refused, Refuse)
    assert "the rule deny 'run_command rm'" in refused.words
    assert "rm -r x" in refused.words
    assert yard.asker.asked == []
    assert yard.by == [(False, "rule", "")]


async def test_a_rule_that_asks_is_answered_for_once_or_quiet_for_the_session(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(Scope.ONCE), Answer(Scope.SESSION), judged={"git push": ASK})
    for _ in range(4):
        assert await yard.admit("git push") == Run()
    assert [question.scopes for question in yard.asker.asked] == [(Scope.ONCE, Scope.SESSION)] * 2
    assert "'run_command git push'" in yard.asker.asked[0].reason
    assert yard.by == [(True, "user", "once"), (True, "user", "session")]


async def test_a_yes_to_a_command_in_doubt_is_none_to_the_next_one(tmp_path: Path) -> None:
    """Else one yes would let everything past the rules that is written so that they can't judge it."""
    doubtful = Judgement(Verdict.ASK, "", "the name of a command in it is not plain", doubt=True)
    perhaps = Judgement(Verdict.ASK, "run_command rm", "it may be met by r…", doubt=True)
    judged = {"$a": doubtful, "$b": doubtful, "r$c": perhaps, "r$d": perhaps}
    yard = Yard(tmp_path, *[Answer(Scope.SESSION)] * 4, judged=judged)
    for command in [*judged, *judged]:
        assert await yard.admit(command) == Run()
    assert [question.subject for question in yard.asker.asked] == [*judged]
    first, *_, last = yard.asker.asked
    assert "may forbid it: the name of a command in it is not plain" in first.reason
    assert "may forbid it (the rule 'run_command rm'): it may be met by r…" in last.reason
    assert first.notes == ("this session: this very call is not asked about again",)


async def test_no_command_can_be_worded_as_the_rule_that_it_quiets(tmp_path: Path) -> None:
    doubtful = Judgement(Verdict.ASK, "run_command git push*", "it may be met by git push…", doubt=True)
    sure = Judgement(Verdict.ASK, "run_command git push*", "git push -f")
    answers = Answer(Scope.SESSION), Answer(None)
    yard = Yard(tmp_path, *answers, judged={"git push*": doubtful, "git push -f": sure})
    assert await yard.admit("git push*") == Run()
    assert isinstance(await yard.admit("git push -f"), Refuse)


async def test_without_anything_that_confines_a_command_is_another_one_in_another_directory(
    tmp_path: Path,
) -> None:
    yard = Yard(tmp_path, Answer(Scope.SESSION), Answer(None), rung=Rung.OFF)
    for _ in range(2):
        assert await yard.admit("rm -r build") == Run(approved=True)
    yard.workers.cwd = str(tmp_path / "home")
    assert isinstance(await yard.admit("rm -r build"), Refuse)
    assert len(yard.asker.asked) == 2


async def test_nobody_to_ask_about_a_command_in_doubt_hears_what_can_t_be_judged(tmp_path: Path) -> None:
    doubtful = Judgement(Verdict.ASK, "", "it can't be judged: it is too deep", doubt=True)
    refused = await Yard(tmp_path, judged={"x": doubtful}, somebody=False).admit("x")
    assert isinstance(refused, Refuse)
    assert "a command that the rules can judge (it can't be judged: it is too deep)" in refused.words


async def test_a_rule_may_ask_about_any_tool(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(None, "not that"), judged={"edit_file": Judgement(Verdict.ASK, "edit_file")})
    refused = await yard.tool("edit_file", {"path": "a", "edits": [{"old": "1", "new": "2"}]})
    assert isinstance(refused, Refuse)
    assert "said no to this call: not that" in refused.words
    assert '"path": "a"' in yard.asker.asked[0].subject


async def test_a_rule_that_allows_covers_the_call_but_not_its_needs(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(), judged={"ls": ALLOW})
    assert await yard.admit("ls") == Run()
    assert isinstance(await yard.admit("ls", f"write:{yard.beside}"), Refuse)
    assert len(yard.asker.asked) == 1


async def test_one_question_names_everything_that_is_open(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(Scope.ONCE), given=(parse("network:a.org:443"),), judged={"make": ASK})
    run = await yard.admit("make", f"write:{yard.beside}", "network:a.org:443", "network:b.org:443")
    assert isinstance(run, Run)
    assert run.policy is not None
    assert run.policy.writable == (str(yard.beside),)
    assert run.policy.network is Network.LISTED
    (question,) = yard.asker.asked
    assert "needs more" in question.reason
    assert "git push" in question.reason
    assert question.scopes == (Scope.ONCE, Scope.SESSION)


async def test_without_anything_that_confines_each_command_asks_and_says_why(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(Scope.ONCE), Answer(Scope.SESSION), Answer(), rung=Rung.OFF)
    assert await yard.admit("ls") == Run(approved=True)
    assert await yard.admit("ls") == Run(approved=True)
    assert await yard.admit("ls") == Run(approved=True)
    assert isinstance(await yard.admit("ls -a"), Refuse)
    assert [question.subject for question in yard.asker.asked] == ["ls", "ls", "ls -a"]
    assert NO_LANDLOCK in yard.asker.asked[0].reason
    assert yard.by == [
        (True, "user", "once"),
        (True, "user", "session"),
        (True, "grant", "session"),
        (False, "user", ""),
    ]
    assert await yard.tool("read_file", {"path": "a"}) == Run(), "file tools keep to the workspace themselves"


async def test_without_anything_that_confines_a_rule_or_a_flag_lets_through(tmp_path: Path) -> None:
    ruled = Yard(tmp_path, rung=Rung.OFF, judged={"ls": ALLOW}, somebody=False)
    assert await ruled.admit("ls") == Run(approved=True)
    assert ruled.by == [(True, "rule", "session")]
    flagged = Yard(tmp_path, rung=Rung.OFF, given=(parse("unconfined"),), somebody=False)
    assert await flagged.admit("make") == Run(approved=True)
    assert flagged.by == [(True, "flag", "session")]
    chosen = Yard(tmp_path, rung=Rung.OFF, mode=Mode.UNCONFINED, somebody=False)
    assert await chosen.admit("make") == Run()


async def test_nobody_to_ask_is_a_no_that_says_what_would_permit_it(tmp_path: Path) -> None:
    yard = Yard(tmp_path, somebody=False, judged={"git push": ASK})
    refused = await yard.admit("make", f"write:{yard.beside}")
    assert isinstance(refused, Refuse)
    assert f"--allow write:{yard.beside}" in refused.words
    asked = await yard.admit("git push")
    assert isinstance(asked, Refuse)
    assert "taking the rule ask 'run_command git push' out of the settings" in asked.words
    bare = await Yard(tmp_path, rung=Rung.OFF, somebody=False).admit("ls")
    assert isinstance(bare, Refuse)
    assert "--sandbox unconfined" in bare.words
    assert yard.by == [(False, "nobody", "")] * 2


async def test_less_than_what_is_required_runs_nothing(tmp_path: Path) -> None:
    yard = Yard(tmp_path, rung=Rung.LANDLOCK, require=Rung.FULL)
    assert "sandbox.require is 'full', but here the sandbox is 'landlock'" in await yard.gate.unmet()
    for admitted in (await yard.admit("ls"), await yard.tool("read_file", {"path": "a"})):
        assert isinstance(admitted, Refuse)
        assert "agent doctor" in admitted.words
    assert await Yard(tmp_path, rung=Rung.FULL, require=Rung.LANDLOCK).gate.unmet() == ""


async def test_a_host_without_a_list_means_the_whole_network_and_the_question_says_so(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(Scope.ONCE), rung=Rung.LANDLOCK)
    run = await yard.admit("curl https://a.org", "network:a.org:443")
    assert isinstance(run, Run)
    assert run.policy is not None
    assert run.policy.network is Network.ON
    assert any("the whole network" in note for note in yard.asker.asked[0].notes)


async def test_a_session_s_grant_widens_the_main_worker_or_is_served_beside_its_jobs(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(Scope.SESSION))
    yard.workers.idle = False
    need = f"write:{yard.beside}"
    run = await yard.admit("make", need)
    assert isinstance(run, Run)
    assert run.policy is not None
    assert yard.workers.replaced[-1] == run.policy
    background = await yard.admit("make", need, background=True)
    assert isinstance(background, Refuse)
    assert "background jobs still run" in background.words
    yard.workers.idle = True
    assert await yard.admit("make", need) == Run()
    assert len(yard.asker.asked) == 1


async def test_a_decision_that_can_t_be_written_down_counts_for_nothing(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(Scope.SESSION), Answer(Scope.ONCE))
    yard.full = True
    with pytest.raises(StopError, match="disk is full"):
        await yard.admit("make", f"write:{yard.beside}")
    yard.full = False
    run = await yard.admit("make", f"write:{yard.beside}")
    assert isinstance(run, Run)
    assert len(yard.asker.asked) == 2
    assert yard.gate.grants.standing() == ()


async def test_two_calls_that_need_the_same_ask_once(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    found: list[Run | Refuse] = []

    async def admit() -> None:
        found.append(await yard.admit("make", f"write:{yard.beside}"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(admit)
        nursery.start_soon(admit)
        await trio.testing.wait_all_tasks_blocked()
        yard.asker.answer(Answer(Scope.SESSION))
    assert found == [Run(), Run()]
    assert len([event for event in yard.told if isinstance(event, PermissionAsked)]) == 1
    assert yard.by == [(True, "user", "session"), (True, "grant", "session")]


async def test_a_new_turn_may_ask_again_and_a_refused_place_is_refused_in_other_commands(
    tmp_path: Path,
) -> None:
    yard = Yard(tmp_path, Answer(None, "no"), Answer(Scope.ONCE))
    need = f"write:{yard.beside}"
    first = await yard.admit("make", need)
    assert await yard.admit("make install", need, "network:a.org:443") == first
    yard.gate.start_turn()
    assert isinstance(await yard.admit("make", need), Run)
    assert len(yard.asker.asked) == 2


async def test_read_only_gives_no_writing_to_anybody(tmp_path: Path) -> None:
    yard = Yard(tmp_path, mode=Mode.READ_ONLY)
    refused = await yard.admit("make", f"write:{yard.beside}")
    assert isinstance(refused, Refuse)
    assert "read-only" in refused.words
    assert yard.asker.asked == []


async def test_a_page_asks_for_its_host_and_nothing_else_is_opened(tmp_path: Path) -> None:
    yard = Yard(tmp_path, Answer(Scope.ONCE), Answer(Scope.SESSION), rung=Rung.LANDLOCK)
    page: dict[str, object] = {"url": "https://a.org/page"}
    run = await yard.tool("fetch", page)
    assert isinstance(run, Run)
    assert run.policy is not None
    assert (run.policy.network, run.policy.hosts) == (Network.OFF, ("a.org:443",))
    assert await yard.tool("fetch", page) == Run()
    assert yard.workers.replaced[-1].hosts == ("a.org:443",)
    assert await yard.tool("fetch", page) == Run()
    first, second = yard.asker.asked
    assert (first.subject, first.permissions) == ("https://a.org/page", ("network:a.org:443",))
    assert first.notes == second.notes == ()


async def test_who_granted_a_host_for_pages_is_asked_before_a_command_gets_the_whole_network(
    tmp_path: Path,
) -> None:
    yard = Yard(tmp_path, Answer(Scope.SESSION), Answer(Scope.SESSION), rung=Rung.LANDLOCK)
    await yard.tool("fetch", {"url": "https://a.org/"})
    assert await yard.admit("curl https://a.org", "network:a.org:443") == Run()
    assert any("the whole network" in note for note in yard.asker.asked[1].notes)
    assert yard.workers.replaced[-1].network is Network.ON
    assert await yard.admit("curl https://a.org", "network:a.org:443") == Run()
    assert len(yard.asker.asked) == 2


async def test_a_host_of_a_flag_gives_the_whole_network_only_to_commands_that_name_it(tmp_path: Path) -> None:
    given = (parse("network:a.org:443"),)
    yard = Yard(tmp_path, rung=Rung.LANDLOCK, given=given, somebody=False)
    run = await yard.admit("curl https://a.org", "network:a.org:443")
    assert isinstance(run, Run)
    assert run.policy is not None
    assert run.policy.network is Network.ON
    assert yard.gate.policy.network is Network.OFF


async def test_where_no_worker_can_be_had_nobody_is_asked(tmp_path: Path) -> None:
    yard = Yard(tmp_path, rung=Rung.OFF)
    yard.workers.refusal = "No worker process can be had: the zygote fails"
    refused = await yard.admit("ls", "unconfined")
    assert refused == Refuse("not run: No worker process can be had: the zygote fails")
    assert yard.told == []
