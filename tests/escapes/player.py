"""A supervisor that plays all attacks on one rung, as the user that it runs as.

`python -m tests.escapes.player PART STORY`, two files.

First all of them in a worker of a real pool, one after the other, then all of them unconfined: so the sandbox
has the decoys as they were.  Everything is put back after each.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec
import trio

from protocol.conversation import ToolCall
from protocol.policy import Limits, SandboxPolicy
from protocol.wire import ToolFinished
from supervisor import machine
from supervisor.policy.default import default_policy
from supervisor.pool.workers import Pool, open_pool
from supervisor.pool.zygote import Launch
from tests.escapes.attack import Attack, Ran, Rung, Who, Work
from tests.escapes.decoys import Decoys, decoys
from tests.escapes.links import play_links
from tests.escapes.list import ATTACKS, WORKS
from tests.escapes.play import PART, Outcome, Part, Story

_CALL_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_WITHOUT = {
    Rung.NATIVE: ("bubblewrap", "landlock"),
    Rung.BUBBLEWRAP: ("native", "landlock"),
    Rung.LANDLOCK: ("native", "bubblewrap"),
}
"""Means that are not to be tried, so that the rung is the one that is meant or none."""

_ids = count(1)


def environ_of(decoys: Decoys) -> dict[str, str]:
    """A user's environment, with much in it that must not reach a command."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(decoys.home),
        "JAVA_HOME": str(decoys.opt),
        "DEEPSEEK_API_KEY": decoys.secret,
        "GITHUB_TOKEN": decoys.secret,
        "SSH_AUTH_SOCK": f"{decoys.home}/agent.sock",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
        "DISPLAY": ":0",
        "PYTHONPATH": str(decoys.workspace),
        "BASH_ENV": f"{decoys.home}/.bashrc",
        "GIT_EXTERNAL_DIFF": "false",
    }


def policy_of(decoys: Decoys) -> SandboxPolicy:
    state = decoys.state
    return default_policy(decoys.workspace, state / "output", state / "tmp", environ_of(decoys), state)


class Play:
    def __init__(self, decoys: Decoys, pool: Pool) -> None:
        self._decoys = decoys
        self._pool = pool

    async def call(
        self, tool: str, arguments: dict[str, object], grants: tuple[str, ...] = ()
    ) -> ToolFinished:
        finished: list[ToolFinished] = []
        made = ToolCall(f"call-{next(_ids)}", tool, json.dumps(arguments))
        with trio.fail_after(_CALL_SECONDS):
            await self._pool.run(made, finished.append, lambda text: None)
        return finished[0]

    async def shell(self, script: str, grants: tuple[str, ...] = ()) -> Ran:
        finished = await self.call("run_command", {"command": self._decoys.variables() + script}, grants)
        text = finished.text
        return Ran(text, finished.status.value == "done" and "\nexit code " not in f"\n{text}")

    async def attack(self, attack: Attack) -> tuple[str, str]:
        """What shows that it got through, and what it printed."""
        seen: list[str] = []
        with fresh(self._decoys):
            if attack.prepare:
                attack.prepare(self._decoys)
            async with trio.open_nursery() as nursery:
                if attack.meanwhile:
                    nursery.start_soon(_watch, attack, self._decoys, seen)
                ran = await self.shell(attack.script, attack.grants)
                nursery.cancel_scope.cancel()
            return attack.judge(self._decoys, ran) or "".join(seen[:1]), ran.text

    async def work(self, work: Work) -> tuple[str, str]:
        """Empty where it worked."""
        with fresh(self._decoys):
            ran = await self.shell(work.script, work.grants)
        return ("" if ran.done else "it failed"), ran.text


async def _watch(attack: Attack, decoys: Decoys, seen: list[str]) -> None:
    while attack.meanwhile:
        seen += filter(None, [attack.meanwhile(decoys)])
        await trio.sleep(_LOOK_SECONDS)


@contextmanager
def fresh(decoys: Decoys) -> Iterator[None]:
    """Everything stands as in the beginning, before and after."""
    try:
        yield
    finally:
        decoys.fresh()
        decoys.workspace_tree.restore()


def unconfined(attack: Attack, decoys: Decoys) -> tuple[str, str]:
    """The same without a sandbox: what shows that it gets through."""
    seen: list[str] = []
    with fresh(decoys), tempfile.TemporaryFile() as out:
        if attack.prepare:
            attack.prepare(decoys)
        process = subprocess.Popen(
            ["/bin/bash", "-c", decoys.variables() + attack.script],
            cwd=decoys.workspace, env=environ_of(decoys) | {"PYTHONPATH": ""}, stdin=decoys.tty, stdout=out,
            stderr=out,
        )  # fmt: skip
        deadline = time.monotonic() + _CALL_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if attack.meanwhile:
                seen += filter(None, [attack.meanwhile(decoys)])
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
        process.kill()
        code = process.wait()
        out.seek(0)
        text = out.read().decode(errors="replace")
        with suppress(FileNotFoundError):
            shutil.move(f"{decoys.workspace}.away", f"{decoys.workspace}.back")
            decoys.workspace.rmdir()
            os.rename(f"{decoys.workspace}.back", decoys.workspace)
        return attack.judge(decoys, Ran(text, code == 0)) or "".join(seen[:1]), text


def wanted(part: Part) -> tuple[list[Attack], list[Work]]:
    attacks = [each for each in ATTACKS if part.who in each.who and part.only in each.name]
    return attacks, [
        each for each in WORKS if part.only in each.name and (not each.needs or shutil.which(each.needs))
    ]


async def play(part: Part, decoys: Decoys) -> Story:
    attacks, works = wanted(part)
    confined: dict[str, tuple[str, str]] = {}
    worked: dict[str, Outcome] = {}
    state = decoys.state

    def open_output(call_id: str) -> tuple[str, int]:
        return call_id, os.open(state / "output" / call_id, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    launch = msgspec.convert({"without": _WITHOUT[part.rung]}, Launch)
    async with open_pool(
        policy_of(decoys),
        Limits(grace_seconds=0.2),
        open_output,
        lambda event: None,
        environ=os.environ,
        launch=launch,
    ) as pool:
        ready = await pool.ready()
        if lacks := lacking(part.rung, ready.rung.value, ready.means.value):
            return Story(f"{lacks}: {ready.refuse_commands} {ready.probes}")
        stage = Play(decoys, pool)
        for attack in attacks:
            confined[attack.name] = await stage.attack(attack)
        for work in works:
            failed, text = await stage.work(work)
            worked[work.name] = Outcome(failed, text[-2000:])
        links = await play_links(stage.call, decoys) if not part.only else {}
    return Story(
        "",
        ready.rung.value,
        ready.means.value,
        ready.notes,
        dict(_controlled(attacks, confined, decoys)),
        worked,
        links,
    )


def _controlled(
    attacks: Iterable[Attack], confined: dict[str, tuple[str, str]], decoys: Decoys
) -> Iterator[tuple[str, Outcome]]:
    for attack in attacks:
        through, text = confined[attack.name]
        control, control_text = "", ""
        if not (why := attack.why_uncontrolled(decoys)):
            control, control_text = unconfined(attack, decoys)
        yield attack.name, Outcome(through, text[-2000:], control, control_text[-2000:], why)


def lacking(wanted: Rung, rung: str, means: str) -> str:
    had = {"native": Rung.NATIVE, "bubblewrap": Rung.BUBBLEWRAP}.get(means) if rung == "full" else None
    if rung == "landlock":
        had = Rung.LANDLOCK
    return "" if had is wanted else f"the worker is on the rung {rung}, by {means}"


def main(part_file: str, story_file: str) -> None:
    part = PART.decode(Path(part_file).read_bytes())
    assert (os.geteuid() == 0) == (part.who is Who.ROOT)
    machine.harden()
    with decoys(Path(part.root), Path(part.run) if part.run else None) as made:
        story = trio.run(play, part, made)
    Path(story_file).write_bytes(msgspec.json.encode(story))


if __name__ == "__main__":
    main(*sys.argv[1:])
