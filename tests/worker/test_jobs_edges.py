"""Jobs at their edges: very many of them or of their processes, and output from beyond the end."""

from pathlib import Path

from protocol.policy import Limits
from protocol.tools.jobs import Jobs
from tests.worker.command_desk import command_desk


def test_a_job_of_very_many_processes_is_listed_by_its_first(tmp_path: Path) -> None:
    with command_desk(tmp_path) as desk:
        desk.run("for i in $(seq 200); do sleep 60 & done; echo started")
        lines = desk.jobs(Jobs("list")).text.split("\n")

    assert len(lines) == 21
    assert all(line.startswith("j1 pid ") for line in lines[:20])
    assert lines[20] == "j1 and 180 more processes"


def test_of_very_many_jobs_the_newest_are_listed(tmp_path: Path) -> None:
    with command_desk(tmp_path, Limits(result_cap_bytes=400)) as desk:
        for _ in range(12):
            desk.run("true", background=True)
        text = desk.jobs(Jobs("list")).text

    first, *others = text.split("\n")
    assert len(text) <= 400
    assert first == f"[{12 - len(others)} earlier lines are left out]"
    assert others[-1].startswith("j12 ")


def test_output_asked_for_from_beyond_the_end_goes_on_from_the_end(tmp_path: Path) -> None:
    with command_desk(tmp_path) as desk:
        desk.run("echo one", background=True)
        desk.jobs(Jobs("wait", "j1", timeout=10))
        text = desk.jobs(Jobs("output", "j1", since=1_000_000)).text

    assert text == "[bytes 4 to 4; next since=4; j1 is over: exit code 0]"
