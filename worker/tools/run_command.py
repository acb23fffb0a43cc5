"""run_command: one bash script, in the foreground or as a job, and the words for what came of it.

The pieces are elsewhere: starting and watching in worker/processes, what output looks like in worker/output.
"""

import dataclasses
import os
import signal
import time

from msgspec import structs

from protocol.display import Display
from protocol.tools.run_command import RunCommand
from protocol.wire import Status
from worker.call import Call, Desk, Outcome, ToolError
from worker.output.capture import RESERVE, Capture, preview, whereabouts
from worker.output.record import Record
from worker.output.terminal_text import shown
from worker.processes import tree
from worker.processes.begun import begun, script_of
from worker.processes.denials import Failed, denials, line
from worker.processes.ended import exited, made_to_end
from worker.processes.guard import guard_of
from worker.processes.jobs import Job
from worker.processes.watch import TICK, Ending, Pipe, Running, drain, end, follow, outlast, settle
from worker.sandbox import rlimits

FIRST_SECONDS = 0.2
"""How long a background command is watched before the call returns."""

NAMED = 8
"""Processes that a result names; `jobs` lists them all."""

FIRST_BYTES = 4000
"""What is shown of its output by then."""


def run(arguments: RunCommand, call: Call) -> Outcome:
    """Run the command.  Raises ToolError where it can't even be started."""
    desk = call.desk
    if desk.refuse_commands and not call.approved:
        raise ToolError(f"commands can't run here: {desk.refuse_commands}", Status.REFUSED)
    if arguments.background and call.alone:
        raise ToolError(
            "not run: this command has a worker of its own, which ends with the call, and a background job "
            "would end with it. Run it without `background`.",
            Status.REFUSED,
        )
    if arguments.dry_run and not desk.policy.tries:
        raise ToolError("not run: there is no view of the workspace for a dry run here", Status.REFUSED)
    script = script_of(arguments.command)
    if desk.keeper is None:
        return _run(script, arguments, call)
    desk.keeper.before(jobs_run=any(not job.how for job in tuple(desk.jobs.values())))
    try:
        outcome = _run(script, arguments, call)
    finally:
        told = desk.keeper.after()
    return dataclasses.replace(outcome, text="\n".join((outcome.text, *told))) if told else outcome


def _run(script: bytes, arguments: RunCommand, call: Call) -> Outcome:
    desk = call.desk
    notes: list[str] = []
    cpu_seconds = rlimits.cpu_seconds(desk.limits)
    shell = begun(script, call, notes, with_input=arguments.background, cpu_seconds=cpu_seconds)
    record = Record(
        max(desk.limits.result_cap_bytes - RESERVE, 0),
        desk.limits.output_file_cap,
        call.open_output,
        desk.policy.output,
    )
    running = Running(shell, Pipe(shell.output), tree.Family(call.id, shell.pid))
    try:
        guard_of(desk).watch(running, record)
    except RuntimeError as error:
        _leave(desk, running, record)
        raise ToolError(f"the command can't be watched, so it was not run: {error}") from error
    if arguments.background:
        return _background(arguments.command, call, running, record, notes)
    return _Foreground(call, running, record, arguments.command).outcome(arguments.timeout, notes)


def _background(command: str, call: Call, running: Running, record: Record, notes: list[str]) -> Outcome:
    name = " ".join(command.split())
    job: Job | None = None
    try:
        record.spill()
        job = Job(call.desk, name if len(name) <= 80 else name[:79] + "…", running, record)
    finally:
        if job is None:
            _leave(call.desk, running, record)
    until = time.monotonic() + FIRST_SECONDS
    while not job.wait(TICK) and time.monotonic() < until:
        if call.cancelled.is_set():
            job.stop()
            return Outcome(
                f"{job.id} was stopped: the call was cancelled",
                Display(f"{job.id} stopped"),
                Status.CANCELLED,
            )
    job.let_go()
    background = () if job.how else job.lines()
    _, first = job.read(0, FIRST_BYTES)
    text = shown(first).rstrip("\n")
    if not background:
        state = f"{job.id} is already over: {job.how}"
    else:
        state = f"{job.id} runs in the background, pid {running.shell.pid}"
    lines = [*notes, state, f"[{_kept(record)}; `jobs` reads it, waits for it, stops it]"]
    if text:
        lines += [f"its first output ({len(first):,} bytes):", text]
    return Outcome(
        "\n".join(lines),
        Display(state, preview=preview(text, text.count("\n") + 1), lines=text.count("\n") + 1),
        background=background,
    )


def _leave(desk: Desk, running: Running, record: Record) -> None:
    """On every way out that leaves no job: nothing of the command stays behind."""
    running.release()
    shell = running.shell
    if shell.process.returncode is None:
        # Without a descriptor to spare nothing else is found; until it is reaped the group is its own.
        os.killpg(shell.pid, signal.SIGKILL)
        tree.send(tree.living(running.family), signal.SIGKILL)
        shell.reap()
        with desk.lock:
            desk.shells.discard(shell.pid)
    shell.close()
    record.close()


def _kept(record: Record) -> str:
    if record.file:
        return whereabouts(record.file)
    return f"only its newest output is kept: {record.why_no_file}"


class _Foreground:
    """One command in the foreground, from its start to the outcome."""

    def __init__(self, call: Call, running: Running, record: Record, command: str) -> None:
        self.call = call
        self.command = command
        self.began_in = str(call.desk.cwd)
        self.desk: Desk = call.desk
        self.running = running
        self.shell = running.shell
        self.pipe = running.pipe
        self.capture = Capture(record, call.desk.limits.result_cap_bytes, call.say)
        self.seconds = 0.0

    def outcome(self, wish: float | None, notes: list[str]) -> Outcome:
        limits = self.desk.limits
        allowed = min(wish or limits.command_seconds, limits.command_seconds_max)
        if wish is not None and wish > allowed:
            notes.append(f"[the timeout was cut to {allowed:g} s, the most that is allowed]")
        job: Job | None = None
        code: int | None = None
        try:
            ending = follow(self.running, self.capture, self.shell.started + allowed, self.call.cancelled)
            self.seconds = time.monotonic() - self.shell.started
            if ending is Ending.EXITED:
                code, left = self._after_exit(notes)
                if self.running.struck is not None:
                    left = outlast(self.running, self.capture)
                elif self.call.alone:
                    left = self._end_left(left, notes)
                job = self._keep(left, notes)
            else:
                if ending is Ending.STRUCK:
                    resisting = outlast(self.running, self.capture)
                else:
                    resisting = end(self.running, self.capture, limits.grace_seconds)
                code = self._reaped(notes) if self.shell.ended() else None
                notes += [f"[pid {one.pid} resists SIGKILL]" for one in resisting]
        finally:
            if job is None:
                _leave(self.desk, self.running, self.capture.record)
        self.capture.finish()
        if job is not None:
            job.let_go()
        return self._told(ending, code, notes, job)

    def _after_exit(self, notes: list[str]) -> tuple[int, list[tree.Process]]:
        """The exit code, and what still runs."""
        drain(self.running, self.capture)
        if not self.pipe.open and self._is_only():
            # Most commands leave nothing behind, and then there is nothing to look for.
            code = self._reaped(notes)
            if tree.childless():
                return code, []
            left = self._settled()
            with self.desk.lock:
                tree.reap_adopted(self.desk.shells)
            return code, left
        left = self._settled()
        return self._reaped(notes), left

    def _is_only(self) -> bool:
        """Whether nothing but this command runs here, as far as the desk knows."""
        with self.desk.lock:
            jobs = any(not job.how for job in self.desk.jobs.values())
            return not jobs and self.desk.shells == {self.shell.pid}

    def _settled(self) -> list[tree.Process]:
        with self.desk.lock:
            taken = set(self.desk.shells).union(*(job.pids for job in self.desk.jobs.values()))
        self.running.family = structs.replace(self.running.family, taken=frozenset(taken))
        return settle(self.running, self.capture)

    def _reaped(self, notes: list[str]) -> int:
        """The exit code; the desk forgets the shell and learns where it ended."""
        place = self.shell.place()
        with self.desk.lock:
            code = self.shell.reap()
            self.desk.shells.discard(self.shell.pid)
            if not tree.childless():
                tree.reap_adopted(self.desk.shells)
            if place is not None and place.is_dir():
                self.desk.cwd = place
        if place is not None and not place.is_dir():
            notes.append(f"[{place} is gone; the next command starts in {self.desk.cwd}]")
        return code

    def _end_left(self, left: list[tree.Process], notes: list[str]) -> list[tree.Process]:
        """Nothing outlives a worker that ends with the call, and whoever reads the result must know."""
        if left:
            names = ", ".join(f"pid {one.pid} {tree.command_line(one.pid)}" for one in left[:NAMED])
            end(self.running, self.capture, self.desk.limits.grace_seconds)
            notes.append(f"[what it left running was ended, since its worker ends with the call: {names}]")
        return []

    def _keep(self, left: list[tree.Process], notes: list[str]) -> Job | None:
        """What still runs becomes a job."""
        if not left:
            if self.pipe.open:
                notes.append(
                    "[a process that can't be found still holds the output open; it is not followed]"
                )
            return None
        if self.pipe.open:
            self.capture.record.spill()
        self.running.family = structs.replace(self.running.family, taken=None)
        name = tree.command_line(left[0].pid)
        return Job(self.desk, name, self.running, self.capture.record)

    def _told(self, ending: Ending, code: int | None, notes: list[str], job: Job | None) -> Outcome:
        lines: list[str] = [*notes]
        text = self.capture.text()
        if text:
            lines.append(text.removesuffix("\n"))
        lines += self.capture.notes()
        background = job.lines() if job is not None else ()
        if job is not None:
            lines += ["[still running, see `jobs`:]", *background[:NAMED]]
            if len(background) > NAMED:
                lines.append(f"[and {len(background) - NAMED} more]")
            if job.file:
                lines.append(f"[{whereabouts(job.file)}]")
        struck = self.running.struck
        if ending is Ending.EXITED and struck is None:
            ended = exited(0 if code is None else code, text, self.desk.limits)
        else:
            ended = made_to_end(struck, timed_out=ending is Ending.TIMED_OUT, seconds=self.seconds)
        if code != 0 or ended.limit is not None or ending is not Ending.EXITED:
            lines.append(ended.words)
        elif not text:
            lines.append("(no output, exit code 0)")
        failed = Failed(self.command, self.began_in, text, well=code == 0)
        refused = () if code is None else denials(self.desk.policy, self.desk.rung, failed)
        lines += map(line, refused)
        count = self.capture.lines
        plural = "" if count == 1 else "s"
        display = Display(
            f"{ended.brief} in {self.seconds:.1f} s, {count} line{plural}",
            preview=self.capture.preview(),
            lines=count,
        )
        return Outcome(
            "\n".join(lines), display, ended.status, background, denials=refused, limit=ended.limit
        )
