"""A supervisor that plays all attacks on one rung, as the user that it runs as.

`python -m tests.escapes.player PART STORY`, two files.

All of them in a worker of a real pool, one after the other; or all of them without a sandbox, which is what
proves them.  Everything is put back after each.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

import msgspec
import trio

from protocol import policy as policies
from protocol.conversation import ToolCall
from protocol.permission import parse
from protocol.policy import Limits, SandboxPolicy
from protocol.wire import ToolFinished
from supervisor import machine
from supervisor.policy.default import default_policy
from supervisor.policy.widen import widened
from supervisor.pool.opening import PoolOpening, open_pool
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch
from tests.escapes.attack import Attack, Ran, Rung, Who, Work
from tests.escapes.bombing import play_bombs
from tests.escapes.decoys import Decoys, decoys
from tests.escapes.links import play_links
from tests.escapes.list import ATTACKS, WORKS
from tests.escapes.play import PART, Outcome, Part, Story

_CALL_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_WITHOUT = {
    Rung.NATIVE: ("bubblewrap",),
    Rung.BUBBLEWRAP: ("native",),
    Rung.BARE: ("bubblewrap", "landlock"),
    Rung.LANDLOCK: ("native", "bubblewrap"),
}
"""Means that are not to be tried, so that the rung is the one that is meant or none."""

_ids = count(1)


def environ_of(decoys: Decoys) -> dict[str, str]:
    """A user's environment, with much in it that must not reach a command."""
    return {
        "PATH": f"{decoys.workspace}/bin:{os.environ['PATH']}",
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
        "PYTHONSTARTUP": f"{decoys.workspace}/json.py",
    }


def policy_of(decoys: Decoys) -> SandboxPolicy:
    state = decoys.state
    return default_policy(decoys.workspace, state / "output", state / "tmp", environ_of(decoys), state)


class Play:
    def __init__(self, decoys: Decoys, pool: Pool, policy: SandboxPolicy, rung: policies.Rung) -> None:
        self._policy = policy
        self._rung = rung
        self._decoys = decoys
        self._pool = pool
        self._job = ""

    async def call(
        self, tool: str, arguments: dict[str, object], grants: tuple[str, ...] = ()
    ) -> ToolFinished:
        finished: list[ToolFinished] = []
        made = ToolCall(f"call-{next(_ids)}", tool, json.dumps(arguments))
        with trio.fail_after(_CALL_SECONDS):
            await self._pool.run(made, finished.append, lambda text: None, policy=self._granted(grants))
        return finished[0]

    def _granted(self, grants: tuple[str, ...]) -> SandboxPolicy | None:
        """The policy of a worker with these permissions; None for the one that is there."""
        if not grants:
            return None
        home = str(self._decoys.home)
        return widened(self._policy, [parse(grant) for grant in grants], rung=self._rung, home=home)

    async def shell(self, script: str, grants: tuple[str, ...] = (), *, background: bool = False) -> Ran:
        arguments: dict[str, object] = {"command": self._decoys.variables() + script}
        finished = await self.call("run_command", arguments | {"background": background}, grants)
        text = finished.text
        if background:
            self._job = finished.background[0].split()[0].rstrip(":")
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
                if attack.before:
                    await self.shell(attack.before, background=attack.stays)
                ran = await self.shell(attack.script, attack.grants)
                if attack.stays:
                    await self.call("jobs", {"action": "stop", "id": self._job})
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
        before = _start(decoys, attack.before, out) if attack.before else None
        if before and attack.stays:
            time.sleep(0.1)  # until it has its name
        elif before:
            before.wait(_CALL_SECONDS)
        process = _start(decoys, attack.script, out)
        deadline = time.monotonic() + _CALL_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if attack.meanwhile:
                seen += filter(None, [attack.meanwhile(decoys)])
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
        for each in filter(None, (before, process)):
            each.kill()
            each.wait()
        code = process.returncode
        out.seek(0)
        text = out.read().decode(errors="replace")
        return attack.judge(decoys, Ran(text, code == 0)) or "".join(seen[:1]), text


def _start(decoys: Decoys, script: str, out: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["/bin/bash", "-c", decoys.variables() + script],
        cwd=decoys.workspace,
        env=environ_of(decoys) | {"PYTHONPATH": ""},
        stdin=decoys.tty,
        stdout=out,
        stderr=out,
    )


def controls(part: Part, decoys: Decoys) -> Story:
    """Everything without a sandbox."""
    told = {}
    for attack in ATTACKS:
        if part.who in attack.who and part.only in attack.name:
            if why := attack.why_uncontrolled(decoys):
                told[attack.name] = Outcome("", "", why)
            else:
                told[attack.name] = Outcome(*unconfined(attack, decoys))
    return Story("", attacks=told)


async def play(part: Part, decoys: Decoys) -> Story:
    policy, environ = policy_of(decoys), environ_of(decoys)
    launch = Launch(without=_WITHOUT[part.rung])

    def open_output(call_id: str) -> tuple[str, int]:
        path = decoys.state / "output" / call_id
        return call_id, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def opened(limits: Limits) -> PoolOpening:
        return open_pool(policy, limits, open_output, lambda event: None, environ=environ, launch=launch)

    attacked: dict[str, Outcome] = {}
    worked: dict[str, Outcome] = {}
    async with opened(Limits(grace_seconds=0.2)) as pool:
        ready = await pool.ready()
        if lacks := lacking(part.rung, ready.rung.value, ready.means.value):
            return Story(f"{lacks}: {ready.refuse_commands} {ready.probes}")
        stage = Play(decoys, pool, policy, ready.rung)
        for attack in ATTACKS:
            if part.who in attack.who and part.rung in attack.rungs and part.only in attack.name:
                attacked[attack.name] = Outcome(*await stage.attack(attack))
        for work in WORKS:
            if part.only in work.name and (not work.needs or shutil.which(work.needs)):
                worked[work.name] = Outcome(*await stage.work(work))
        links = await play_links(stage.call, decoys) if not part.only else {}
    bombs = (
        await play_bombs(opened, decoys) if part.only in ("", "bombs") and part.rung is not Rung.BARE else {}
    )
    return Story("", ready.rung.value, ready.means.value, ready.notes, attacked, worked, bombs, links)


def lacking(wanted: Rung, rung: str, means: str) -> str:
    meant = {
        Rung.NATIVE: ("full", "native"),
        Rung.BUBBLEWRAP: ("full", "bubblewrap"),
        Rung.BARE: ("full", "native"),
        Rung.LANDLOCK: ("landlock", "none"),
        Rung.NONE: ("off", "none"),
    }
    return "" if meant[wanted] == (rung, means) else f"the worker is on the rung {rung}, by {means}"


def main(part_file: str, story_file: str) -> None:
    part = PART.decode(Path(part_file).read_bytes())
    assert (os.geteuid() == 0) == (part.who is Who.ROOT)
    machine.harden()
    with decoys(Path(part.root), Path(part.run) if part.run else None) as made:
        story = controls(part, made) if part.rung is Rung.NONE else trio.run(play, part, made)
    Path(story_file).write_bytes(msgspec.json.encode(story))


if __name__ == "__main__":
    main(*sys.argv[1:])
