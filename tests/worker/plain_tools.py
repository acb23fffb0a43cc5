"""A registry for tests of the pool and of serving: what a call does is told by its command.

`!word argument` plays one of the behaviours below; anything else is run by a shell, plainly.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time

from protocol.chores import Work
from protocol.display import Display
from protocol.tools.run_command import RunCommand
from protocol.wire import Status
from worker.call import Call, Outcome, ToolError


def run(arguments: Work, call: Call) -> Outcome:
    if not isinstance(arguments, RunCommand):
        raise ToolError("only commands here", Status.REFUSED)
    word, _, argument = arguments.command.partition(" ")
    if word.startswith("!"):
        return done(behave(word, argument, call))
    return shell(arguments.command, call)


def done(text: str, status: Status = Status.DONE) -> Outcome:
    return Outcome(text, Display(text[:50].partition("\n")[0]), status)


def behave(word: str, argument: str, call: Call) -> str:
    match word:
        case "!echo":
            return argument
        case "!say":
            call.say(argument)
            return "said"
        case "!flood":
            for _ in range(int(argument)):
                call.say("x" * 10_000)
        case "!raise":
            raise RuntimeError(argument)
        case "!exit":
            os._exit(int(argument))
        case "!crash":
            ctypes.string_at(0)
        case "!surrogate":
            return "a\udcffb"
        case "!large":
            return "x" * int(argument)
        case "!system-exit":
            raise SystemExit(3)
        case "!fds":
            return str(len(os.listdir("/proc/self/fd")))
        case "!links":
            links = []
            for entry in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):  # what the listing itself had open
                    links.append(os.readlink(f"/proc/self/fd/{entry}"))
            return "\n".join(links)
        case "!threads":
            return str(threading.active_count())
        case "!threads-of":
            return str(threading.stack_size(int(argument)))
        case "!deaf":
            time.sleep(30)
        case "!garbage":
            for entry in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                        os.write(int(entry), b"Traceback (most recent call last)")
            time.sleep(30)
        case "!print":
            print(argument, flush=True)
            os.write(1, argument.encode())
        case "!job":
            call.desk.tell_job_ended("j1", argument)
        case "!about":
            return (
                f"{os.getpid()} {os.getppid()} {os.getsid(0)} {os.readlink('/proc/self/fd/0')} {os.getcwd()}"
            )
        case "!output":
            name, fd = call.open_output()
            with os.fdopen(fd, "w") as file:
                file.write(argument)
            return name
    return ""


def shell(command: str, call: Call) -> Outcome:
    if call.desk.refuse_commands and not call.approved:
        raise ToolError(call.desk.refuse_commands, Status.REFUSED)
    process = subprocess.Popen(
        ["/bin/bash", "-c", command],
        env=dict(call.desk.policy.environment),
        cwd=call.desk.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    status = Status.DONE
    while True:
        try:
            text, _ = process.communicate(timeout=0.02)
            break
        except subprocess.TimeoutExpired:
            if call.cancelled.is_set() and status is Status.DONE:
                status = Status.CANCELLED
                os.killpg(process.pid, signal.SIGTERM)
                timer = threading.Timer(
                    call.desk.limits.grace_seconds, os.killpg, (process.pid, signal.SIGKILL)
                )
                timer.daemon = True
                timer.start()
    return done(text if status is Status.DONE else f"cancelled; {text}", status)
