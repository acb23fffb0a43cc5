"""Limits without bombs: the words for the model, what a disk may lose, and what a process is held to."""

import json
import os
import resource

import pytest

from protocol.policy import Limit, Limits
from protocol.wire import Status
from tests.worker.ordinary import as_ordinary_user
from worker.processes.ended import exited, made_to_end
from worker.processes.usage import over
from worker.processes.verdict import Struck, advice, limit_said, size
from worker.sandbox import rlimits

GIB = 1024**3


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (2 * GIB, "2.0 GiB"), (1 << 50, "1024.0 TiB")],
)
def test_sizes_read_well(count: int, words: str) -> None:
    assert size(count) == words


@pytest.mark.parametrize("limit", Limit)
def test_every_limit_has_an_advice(limit: Limit) -> None:
    assert advice(limit)


def test_a_limit_that_struck_is_named_with_what_was_used_and_what_to_do() -> None:
    ended = made_to_end(Struck(Limit.MEMORY, "2.1 GiB of 2.0 GiB in use"), timed_out=False, seconds=1)
    assert (ended.status, ended.limit, ended.brief) == (Status.FAILED, Limit.MEMORY, "limit of memory")
    assert ended.words == (
        "ended: the limit of memory was reached (2.1 GiB of 2.0 GiB in use); "
        "process the data in parts, or run fewer processes at a time"
    )


@pytest.mark.parametrize(
    ("code", "text", "limit", "word"),
    [
        (-24, "", Limit.CPU, "[the limit of CPU time was reached (600 s for one process)"),
        (152, "", Limit.CPU, "[the limit of CPU time"),
        (153, "", Limit.FILE_SIZE, "[the limit of file size was reached (4.0 GiB for one file)"),
        (1, "OSError: [Errno 27] File too large\n", Limit.FILE_SIZE, "[probably the limit of file size"),
        (1, "x: Too many open files", Limit.FILES, "[probably the limit of open files was reached (8,192"),
        (254, "bash: fork: retry: Resource temporarily unavailable", Limit.PROCESSES, "[probably the limit"),
        (1, "RuntimeError: can't start new thread", Limit.PROCESSES, "[probably the limit of processes"),
        (0, "Too many open files", None, "exit code 0"),
        (1, "Too many open files" + "x" * 9000, None, "exit code 1"),
        (137, "", None, "was killed by SIGKILL (137)"),
        (124, "", None, "exit code 124"),
    ],
)
def test_what_the_kernel_did_is_told_from_what_a_program_says(
    code: int, text: str, limit: Limit | None, word: str
) -> None:
    ended = exited(code, text, Limits())
    assert ended.limit is limit
    assert word in ended.words
    assert ended.status is (Status.FAILED if code < 0 or 128 < code < 160 else Status.DONE)


def test_of_several_complaints_one_is_named() -> None:
    assert limit_said("Too many open files\nFile too large\n") is Limit.FILE_SIZE


@pytest.mark.parametrize(
    ("began", "free", "word"),
    [
        (50 * GIB, 50 * GIB, ""),
        (50 * GIB, 60 * GIB, ""),
        (50 * GIB, 40 * GIB, ""),
        (50 * GIB, 40 * GIB - 1, "shrank by 10.0 GiB, 10.0 GiB are allowed"),
        (3 * GIB, GIB, ""),
        (3 * GIB, GIB - 1, "are free on the disk, 1.0 GiB must stay so"),
        (GIB, GIB // 2, ""),
        (GIB, GIB // 2 - 1, "512.0 MiB must stay so"),
        (-1, 0, ""),
        (GIB, -1, ""),
    ],
)
def test_a_disk_may_lose_so_much_and_keeps_the_rest(began: int, free: int, word: str) -> None:
    found = over("the disk", began, free, Limits())
    assert word in found
    assert bool(found) is bool(word)


def held(limits: Limits, *, namespaced: bool) -> str:
    """What a process is held to that applies these limits."""
    names = ("RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_CPU", "RLIMIT_AS")
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    rlimits.apply(limits, namespaced)
    found = {name: resource.getrlimit(getattr(resource, name)) for name in names}
    found["NPROC as before"] = found["RLIMIT_NPROC"] == before  # type: ignore[assignment]
    return json.dumps(found)


LIMITS = Limits(file_bytes=1000, open_files=100, processes=50)


def test_a_process_of_an_ordinary_user_in_a_namespace_is_held_to_all() -> None:
    found = json.loads(as_ordinary_user(lambda: held(LIMITS, namespaced=True), apart=True))
    assert found["RLIMIT_CORE"] == [0, 0]
    assert found["RLIMIT_FSIZE"] == [1000, 1000]
    assert found["RLIMIT_NOFILE"] == [100, 100]
    assert found["RLIMIT_NPROC"] == [200, 200]
    assert found["RLIMIT_CPU"] == found["RLIMIT_AS"] == [-1, -1]


def test_outside_of_a_namespace_all_that_the_user_runs_would_count_so_processes_are_left() -> None:
    assert json.loads(as_ordinary_user(lambda: held(LIMITS, namespaced=False), apart=True))["NPROC as before"]


def test_a_limit_that_is_lower_already_stays() -> None:
    def lowered() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 80))
        return held(Limits(open_files=100, file_bytes=0), namespaced=False)

    found = json.loads(as_ordinary_user(lowered, apart=True))
    assert found["RLIMIT_NOFILE"] == [80, 80]


def test_cpu_time_is_a_shell_s_and_comes_in_two_steps() -> None:
    assert rlimits.cpu_seconds(Limits(cpu_seconds=5)) == (5, 15)
    assert rlimits.cpu_seconds(Limits(cpu_seconds=0)) == (-1, -1)


def test_commands_leave_the_processor_to_others() -> None:
    def niceness() -> str:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        rlimits.step_back()
        rlimits.step_back()
        return f"{os.getpriority(os.PRIO_PROCESS, 0) - before}"

    assert as_ordinary_user(niceness, apart=True) == "5"
