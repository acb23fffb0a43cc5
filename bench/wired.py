"""P16: the wire between supervisor and worker, against a blocking socket with the same codec.

`python -m bench.wired PART FD COUNT BYTES` is the peer, the same for bound and subject: a blocking loop that
echoes or floods.
"""

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from bench.ground import ROOT
from bench.row import Measured
from protocol import wire
from supervisor.pool import channel
from supervisor.pool.channel import Channel, ChannelClosedError

REPEATS = 2
_ROUND_TRIPS = 3000
_SMALL, _SMALL_COUNT = 100, 60_000
_LARGE, _LARGE_COUNT = 1_000_000, 150
_DELTAS, _MERGED = 20_000, 64
_DELTA_BYTES = 4
_TRIES = 5
"""The start of a peer varies by more than what is measured; the least disturbed try counts."""
_READ = 256 * 1024


@contextmanager
def peer(part: str, count: int, size: int) -> Iterator[socket.socket]:
    """Our end of the wire to a peer that plays this part."""
    ours, theirs = channel.pair(socket.SOCK_STREAM)
    with ours, theirs:
        command = [sys.executable, "-m", "bench.wired", part, str(theirs.fileno()), str(count), str(size)]
        with subprocess.Popen(command, cwd=ROOT, pass_fds=(theirs.fileno(),)):
            theirs.close()
            ours.setblocking(True)
            ours.recv(1)  # it is there
            yield ours
            ours.shutdown(socket.SHUT_RDWR)


def play(part: str, fd: int, count: int, size: int) -> None:
    """The peer's part: `echo` answers until the end, `flood` sends `count` messages of `size` bytes."""
    with socket.socket(fileno=fd) as wired:
        wired.sendall(b"!")
        frame = wire.encode(wire.ToolOutput("a", "x" * size))
        if part == "flood":
            for _ in range(count):
                wired.sendall(frame)
            return
        frames = wire.Frames()
        while data := wired.recv(_READ):
            for payload in frames.feed(data):
                wire.decode_to_worker(payload)
                wired.sendall(frame)


def bound_trips(ours: socket.socket) -> None:
    frames = wire.Frames()
    for _ in range(_ROUND_TRIPS):
        ours.sendall(wire.encode(wire.RunTool("a", "b", "x" * _SMALL)))
        while not (payloads := frames.feed(ours.recv(_READ))):
            pass
        wire.decode_to_supervisor(payloads[0])


def our_trips(ours: socket.socket) -> None:
    async def run() -> None:
        wired = over(ours)
        for _ in range(_ROUND_TRIPS):
            wired.post(wire.RunTool("a", "b", "x" * _SMALL))
            await wired.receive()

    trio.run(run)


def bound_reading(ours: socket.socket) -> None:
    frames = wire.Frames()
    while data := ours.recv(_READ):
        for payload in frames.feed(data):
            wire.decode_to_supervisor(payload)


def our_reading(ours: socket.socket) -> None:
    async def run() -> None:
        try:
            await over(ours).read(lambda message: None)
        except ChannelClosedError:
            return

    trio.run(run)


def over(ours: socket.socket) -> Channel:
    """A channel over a socket that stays the caller's."""
    ours.setblocking(False)
    return Channel(ours)


def seconds(use: Callable[[socket.socket], None], part: str, count: int, size: int) -> float:
    with peer(part, count, size) as ours:
        begun = time.perf_counter()
        use(ours)
        return time.perf_counter() - begun


def rates(count: int, size: int) -> tuple[float, float]:
    """Messages per second of the bound and of ours, the least disturbed of tries that take turns."""
    times = [
        (seconds(bound_reading, "flood", count, size), seconds(our_reading, "flood", count, size))
        for _ in range(_TRIES)
    ]
    return count / min(bound for bound, _ in times), count / min(ours for _, ours in times)


def p16_round_trip() -> Measured:
    """A message of 100 B there and back, 3,000 times: our channel against a blocking socket, one codec."""
    bound = seconds(bound_trips, "echo", 0, _SMALL) / _ROUND_TRIPS
    ours = seconds(our_trips, "echo", 0, _SMALL) / _ROUND_TRIPS
    return ("P16 round trip, 100 B", bound * 1e6, ours * 1e6, "µs", "<= 4")


def p16_small_messages() -> Measured:
    """60,000 messages of 100 B from a peer that floods, per second of reading them."""
    bound, ours = rates(_SMALL_COUNT, _SMALL)
    return ("P16 rate, 100 B", bound / 1e3, ours / 1e3, "k/s", ">= 0.7")


def p16_large_messages() -> Measured:
    """150 messages of 1 MB from a peer that floods, per second of reading them."""
    bound, ours = rates(_LARGE_COUNT, _LARGE)
    return ("P16 rate, 1 MB", bound, ours, "MB/s", ">= 0.7")


def p16_merged_deltas() -> Measured:
    """CPU of both ends beyond what a peer needs to start."""
    idle, bound, ours = (
        min(_cpu(count, size) for _ in range(_TRIES))
        for count, size in (
            (1, _DELTA_BYTES),
            (_DELTAS, _DELTA_BYTES),
            (_DELTAS // _MERGED + 1, _DELTA_BYTES * _MERGED),
        )
    )
    return (
        "P16 CPU of 20,000 deltas, merged",
        (bound - idle) * 1e3,
        max(ours - idle, 0.0) * 1e3,
        "ms",
        "<= 0.05",
    )


def _cpu(count: int, size: int) -> float:
    before = _used()
    seconds(our_reading, "flood", count, size)
    return _used() - before


def _used() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


ROWS = [p16_round_trip, p16_small_messages, p16_large_messages, p16_merged_deltas]

if __name__ == "__main__":
    play(sys.argv[1], *map(int, sys.argv[2:]))
