"""The zygote's side played by the test: answers that no good zygote gives, and one that can't be started."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from protocol import control
from protocol.control import Birth, Fork, Forked, FromZygote, NotForked, ZygoteReady
from protocol.policy import Limits, SandboxPolicy
from supervisor.pool.zygote import Launch, NoWorkerError, Zygote
from tests.supervisor.full_disk import full_disk

BIRTH = Birth(SandboxPolicy("/nowhere"), Limits())
LONG = Birth(SandboxPolicy("/nowhere", hidden=("/nothing/there",) * 10_000), Limits())


class Played:
    """`zygote` asks, the test answers on `theirs`."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.theirs.settimeout(5)
        self.process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        words = os.memfd_create("words", os.MFD_CLOEXEC)
        os.write(words, b"first\nno memory\n")
        self.zygote = Zygote(self.process, ours, "0:0:0:none", words)

    def say(self, message: FromZygote) -> None:
        self.theirs.send(control.encode_control(message))

    def hear(self) -> tuple[Fork, Birth]:
        payload, (wire, second, content), _, _ = socket.recv_fds(self.theirs, 4096, 3)
        os.close(wire)
        os.close(second)
        with open(content, "rb") as file:
            return control.decode_to_zygote(payload), control.decode_birth(file.read())


@asynccontextmanager
async def played() -> AsyncIterator[Played]:
    found = Played()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.zygote.serve)
        try:
            with trio.fail_after(10):
                yield found
        finally:
            found.process.kill()
            await found.zygote.end()
            found.theirs.close()


async def test_a_fork_that_is_refused_says_why() -> None:
    async with played() as found:
        found.say(ZygoteReady(1))
        found.say(NotForked(1, "too many processes"))
        with pytest.raises(NoWorkerError, match="could be forked: too many processes"):
            await found.zygote.fork(BIRTH)
        assert found.hear() == (Fork(1), BIRTH)


async def test_a_birth_arrives_though_no_file_can_grow_and_though_it_is_longer_than_a_pipe() -> None:
    async with played() as found:
        found.say(ZygoteReady(1))
        found.say(NotForked(1, "for a test"))
        with full_disk(0), pytest.raises(NoWorkerError, match="for a test"):
            await found.zygote.fork(BIRTH)
        found.say(NotForked(2, "for a test"))
        with pytest.raises(NoWorkerError, match="for a test"):
            await found.zygote.fork(LONG)
        assert [found.hear(), found.hear()] == [(Fork(1), BIRTH), (Fork(2), LONG)]


async def test_a_birth_that_nothing_holds_leaves_no_descriptor_behind() -> None:
    async with played() as found:
        found.say(ZygoteReady(1))
        before = os.listdir("/proc/self/fd")
        with (
            full_disk(0),
            pytest.raises(NoWorkerError, match="File too large"),
        ):
            await found.zygote.fork(LONG)
        assert os.listdir("/proc/self/fd") == before


async def test_a_worker_whose_descriptor_was_lost_on_the_way_is_none() -> None:
    async with played() as found:
        found.say(ZygoteReady(1))
        found.say(Forked(1, 2**22 + 1))
        with pytest.raises(NoWorkerError, match="descriptor did not arrive"):
            await found.zygote.fork(BIRTH)


@pytest.mark.parametrize("said", [b"\xc1", b""], ids=["garbage", "the end"])
async def test_a_zygote_that_says_nothing_of_use_is_gone_with_its_last_words(said: bytes) -> None:
    async with played() as found:
        if said:
            found.theirs.send(said)
        else:
            found.theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises(NoWorkerError, match="failed: no memory"):
            await found.zygote.fork(BIRTH)
        assert found.zygote.gone.is_set()


async def test_a_zygote_that_can_t_be_asked_any_more_is_named() -> None:
    async with played() as found:
        found.say(ZygoteReady(1))
        found.theirs.close()
        with pytest.raises(NoWorkerError, match=r"failed|can't be asked"):
            await found.zygote.fork(BIRTH)


def test_a_zygote_that_can_t_be_started_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        Zygote.start(Launch(), {}, "0:0:0:none")
    assert len(os.listdir("/proc/self/fd")) == len(before)
