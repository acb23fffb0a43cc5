"""State that goes or comes in odd ways while the product uses it: deleted, copied onto itself."""

import json
import shutil
from pathlib import Path

from supervisor.rehearsal.script import Script, ScriptedCall, Step
from supervisor.rehearsal.thread import ServerThread
from tests.product import SECONDS, Product

WAITS = ScriptedCall(
    "run_command", {"command": "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo over > ended"}
)


def test_a_state_directory_that_is_deleted_during_a_run_is_said_and_never_passed_over(tmp_path: Path) -> None:
    with ServerThread({"main": Script(steps=(Step(calls=(WAITS,)), Step(text="Done.")))}) as server:
        product = Product(tmp_path, server.url())
        with product.start("run", "--json", "Work") as child:
            assert child.stdout is not None
            for line in child.stdout:
                if json.loads(line)["type"] == "tool_started":
                    break
            shutil.rmtree(product.home)
            (product.workspace / "go").touch()
            out, err = child.communicate(timeout=SECONDS)
    assert child.returncode == 1
    assert json.loads(out.splitlines()[-1])["type"] == "session_closed"
    assert b"was deleted while it was in use" in err
    assert b"Traceback" not in err


def test_a_transcript_that_was_copied_onto_itself_goes_on_all_the_same(tmp_path: Path) -> None:
    look = ScriptedCall("run_command", {"command": "echo looked >> log"}, id="call-1")
    steps = (Step(calls=(look,)), Step(text="Looked."), Step(text="Again."))
    with ServerThread({"main": Script(steps=steps)}) as server:
        product = Product(tmp_path, server.url())
        assert product.run("run", "Look").returncode == 0
        (path,) = product.home.glob("sessions/*/myagent_conversation_*.jsonl")
        path.write_bytes(path.read_bytes() * 2)
        done = product.run("run", "--continue", "And again")
        contents = [message["content"] for message in json.loads(server.requests()[-1].body)["messages"]]
    assert (done.returncode, done.stdout) == (0, "Again.\n")
    assert contents.count("Look") == 1
    assert contents[-1] == "And again"
    assert "lines that stand there twice are left out" in done.stderr
    assert (product.workspace / "log").read_text() == "looked\n"
