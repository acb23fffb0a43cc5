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
