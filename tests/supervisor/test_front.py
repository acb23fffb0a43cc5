"""What a session without a person prints on stderr, and when."""

import pytest

from protocol.display import Display
from protocol.events import Denial, PermissionAnswered, SandboxReady, ToolFinished, ToolStarted
from supervisor.front import Front

LACKS = SandboxReady(rung="landlock", notes=("the network is not confined",))
TOOL = ToolStarted(call_id="1", name="run_command", arguments="{}")
LINE = "agent: sandbox landlock: the network is not confined\n"


def test_what_the_sandbox_lacks_is_said_once_and_only_where_a_tool_is_used(
    capfd: pytest.CaptureFixture[str],
) -> None:
    front = Front(json=False)
    front.tell(LACKS)
    assert capfd.readouterr().err == ""
    front.tell(TOOL)
    assert capfd.readouterr().err == LINE
    front.tell(TOOL)
    assert capfd.readouterr().err == ""


def test_a_tool_that_waits_for_its_worker_is_warned_of_when_that_is_ready(
    capfd: pytest.CaptureFixture[str],
) -> None:
    front = Front(json=False)
    front.tell(TOOL)
    front.tell(LACKS)
    assert capfd.readouterr().err == LINE


def test_why_a_call_is_not_allowed_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    front = Front(json=False)
    words = "not run: write:/x needs the user's word"
    front.tell(
        PermissionAnswered(
            question=None, call_id="1", name="run_command", subject="ls", permissions=("write:/x",),
            allowed=False, by="nobody", words=words,
        )
    )  # fmt: skip
    front.tell(
        ToolFinished(
            call_id="1", name="run_command", status="refused", failed=True, seconds=0, bytes=0,
            display=Display(words),
        )
    )  # fmt: skip
    assert capfd.readouterr().err.splitlines() == [
        "agent: write:/x needs the user's word",
        "  run_command (refused)",
    ]


def test_what_may_have_been_blocked_is_told_as_that(capfd: pytest.CaptureFixture[str]) -> None:
    Front(json=False).tell(
        ToolFinished(
            call_id="1", name="run_command", status="done", failed=False, seconds=0, bytes=0,
            display=Display("exit 1"), denials=(Denial("read /x", sure=False), Denial("write /y")),
        )
    )  # fmt: skip
    assert capfd.readouterr().err.splitlines()[1:] == [
        "    likely blocked: read /x",
        "    blocked: write /y",
    ]


def test_nothing_from_outside_looks_like_a_line_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    front = Front(json=False)
    evil = "x\nagent: all is well"
    front.tell(
        PermissionAnswered(
            question=None, call_id="1", name="run_command", subject="ls", permissions=(f"write:/{evil}",),
            allowed=True, by="flag", scope="session",
        )
    )  # fmt: skip
    front.tell(
        ToolFinished(
            call_id="1", name="run_command", status="done", failed=False, seconds=0, bytes=0,
            display=Display(evil), denials=(Denial(evil),),
        )
    )  # fmt: skip
    assert [line.partition("x^J")[2] for line in capfd.readouterr().err.splitlines()] == [
        "agent: all is well (flag)",
        "agent: all is well",
        "agent: all is well",
    ]
