"""What a session without a person prints on stderr, and when."""

import pytest

from protocol.events import SandboxReady, ToolStarted
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
