"""Whole outputs of results that were cut: named to the model, and readable by tools and commands."""

import json
from pathlib import Path

from protocol.events import ToolFinished
from supervisor.options import Continue
from supervisor.rehearsal.script import ScriptedCall, Step
from tests.supervisor.house import calling, command, house, say

BIG = Step(calls=(ScriptedCall("run_command", {"command": "seq 1 20000"}, id="call_big"),))
NAME = "/run/polier/output/call_big.txt"


async def test_a_long_output_is_cut_and_its_file_can_be_read_by_the_model_and_by_commands(
    tmp_path: Path,
) -> None:
    steps = (
        BIG,
        calling(("read_file", {"path": NAME, "offset": 10_000, "limit": 2})),
        command("wc -l < $POLIER_OUTPUT/call_big.txt"),
        Step(text="20000 lines."),
    )
    async with house(tmp_path, *steps) as home, home.session() as session:
        await say(session, "count")
    results = [message["content"] for message in home.messages() if message["role"] == "tool"]
    (shown, *_) = (event.display for event in home.told if isinstance(event, ToolFinished))
    assert (shown.summary.endswith("20000 lines"), shown.lines) == (True, 20_000)
    assert NAME in str(results[0])
    assert len(str(results[0])) < 40_000
    assert "10000\t10000\n10001\t10001" in str(results[1])
    assert str(results[2]).strip() == "20000"


async def test_the_file_is_there_for_a_resume_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    steps = (BIG, Step(text="Done."), calling(("read_file", {"path": NAME, "limit": 1})), Step(text="One."))
    async with house(tmp_path, *steps) as home:
        async with home.session() as session:
            await say(session, "count")
        async with home.session(Continue()) as session:
            await say(session, "the first?")
    (file,) = home.home.glob("sessions/*/output/*")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "1\t1" in json.loads(home.bodies()[-1])["messages"][-1]["content"]


async def test_the_model_can_not_write_where_outputs_lie(tmp_path: Path) -> None:
    steps = (
        BIG,
        calling(("write_file", {"path": NAME, "content": "forged"})),
        command("echo forged > $POLIER_OUTPUT/call_big.txt"),
        Step(text="No."),
    )
    async with house(tmp_path, *steps) as home, home.session() as session:
        await say(session, "forge")
    (file,) = home.home.glob("sessions/*/output/*")
    assert "forged" not in file.read_text()
