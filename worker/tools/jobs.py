"""jobs: list, read, feed, await and stop what runs in the background."""

import time
from typing import assert_never

from protocol.display import Display
from protocol.tools.jobs import Jobs
from protocol.wire import Status
from worker.call import BackgroundJob, Call, Desk, Outcome, ToolError
from worker.output.capture import preview, whereabouts
from worker.output.terminal_text import shown

WAIT_SECONDS = 60.0
"""Of `wait`, when the call names none."""

PROCESSES_NAMED = 20
"""Of one job in the list."""

TICK = 0.05
"""Seconds: how late a cancel may be noticed."""


def run(arguments: Jobs, call: Call) -> Outcome:
    """Do one of the five.  Raises ToolError for an unknown id and for what the job can't do."""
    if arguments.action == "list":
        return _list(call.desk)
    job = _job(arguments, call.desk)
    match arguments.action:
        case "output":
            return _output(job, arguments.since, call.desk.limits.result_cap_bytes)
        case "input":
            return _input(job, arguments.text)
        case "wait":
            longest = call.desk.limits.command_seconds_max
            return _wait(job, min(arguments.timeout or WAIT_SECONDS, longest), call)
        case "stop":
            return _stop(job)
        case _:
            assert_never(arguments.action)


def _job(arguments: Jobs, desk: Desk) -> BackgroundJob:
    with desk.lock:
        jobs = dict(desk.jobs)
    if arguments.id is None:
        raise ToolError(f"{arguments.action} needs the id of a job; {_there_are(jobs)}", Status.REFUSED)
    job = jobs.get(arguments.id)
    if job is None:
        raise ToolError(f"there is no job {arguments.id!r}; {_there_are(jobs)}")
    return job


def _there_are(jobs: dict[str, BackgroundJob]) -> str:
    return f"there are: {', '.join(jobs)}" if jobs else "there are none"


def _list(desk: Desk) -> Outcome:
    """A line for each process of each job; of a job with very many, the first."""
    with desk.lock:
        jobs = list(desk.jobs.values())
    lines: list[str] = []
    for job in jobs:
        told = job.lines()
        lines += [f"{line} [{job.size:,} bytes of output]" for line in told[:PROCESSES_NAMED]]
        if len(told) > PROCESSES_NAMED:
            lines.append(f"{job.id} and {len(told) - PROCESSES_NAMED} more processes")
    running = sum(not job.wait(0) for job in jobs)
    text = _newest(lines, desk.limits.result_cap_bytes) or "there are no jobs"
    return Outcome(text, Display(f"{running} of {len(jobs)} jobs running"))


def _newest(lines: list[str], cap: int) -> str:
    """As many of the last lines as fit, and how many came before them."""
    room = cap - 100
    kept = len(lines)
    while kept and (room := room - len(lines[kept - 1].encode(errors="replace")) - 1) >= 0:
        kept -= 1
    return "\n".join([*([f"[{kept} earlier lines are left out]"] if kept else []), *lines[kept:]])


def _output(job: BackgroundJob, since: int, cap: int) -> Outcome:
    """A piece of at most half the cap: what is not UTF-8 grows as text."""
    ended = job.wait(0)
    since = min(since, job.size)  # from beyond the end nothing would ever come
    start, data = job.read(since, max(cap // 3, 200))
    data = _whole_characters(data, at_the_end=ended and start + len(data) >= job.size)
    lines = [f"[the bytes before {start:,} are lost]"] if start > since else []
    text = shown(data)
    if text:
        lines.append(text.removesuffix("\n"))
    following = start + len(data)
    more = f"; {job.size - following:,} bytes follow" if job.size > following else ""
    lines.append(f"[bytes {start:,} to {following:,}{more}; next since={following}; {_state(job)}]")
    if job.file and more:
        lines.append(f"[{whereabouts(job.file)}]")
    count = len(text.rstrip("\n").split("\n"))
    return Outcome(
        "\n".join(lines), Display(f"{job.id}: {len(data):,} bytes", preview=preview(text, count), lines=count)
    )


def _whole_characters(data: bytes, at_the_end: bool) -> bytes:
    """Without a character of UTF-8 that is torn at the end; its beginning comes with the next piece."""
    if at_the_end:
        return data
    for back in range(1, min(3, len(data) - 1) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if needed > back else data
        if byte < 0x80:
            return data
    return data


def _input(job: BackgroundJob, text: str | None) -> Outcome:
    if text is None:
        raise ToolError("input needs `text`; an empty one closes the input", Status.REFUSED)
    data = text.encode(errors="replace")
    done = job.write(data)
    if done < len(data):
        raise ToolError(f"{job.id} took only {done:,} of {len(data):,} bytes; it doesn't read just now")
    words = f"{done:,} bytes written to {job.id}" if data else f"the input of {job.id} is closed"
    return Outcome(words, Display(words))


def _wait(job: BackgroundJob, seconds: float, call: Call) -> Outcome:
    until = time.monotonic() + seconds
    while not job.wait(min(TICK, max(0.0, until - time.monotonic()))):
        if call.cancelled.is_set():
            return Outcome(f"cancelled; {_state(job)}", Display("cancelled"), Status.CANCELLED)
        if time.monotonic() >= until:
            words = f"after {seconds:g} s {_state(job)}"
            return Outcome(words, Display(words))
    return Outcome(_state(job), Display(_state(job)))


def _stop(job: BackgroundJob) -> Outcome:
    already = job.wait(0)
    job.stop()
    words = _state(job) if already else f"{job.id} is stopped"
    return Outcome(words, Display(words))


def _state(job: BackgroundJob) -> str:
    return f"{job.id} is over: {job.how}" if job.wait(0) else f"{job.id} still runs"
