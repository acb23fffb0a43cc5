"""Frames, the codec of both directions, and the handshake."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import control, wire
from protocol.display import Display
from protocol.policy import Limits, Mode, Rung, SandboxPolicy
from protocol.wire import FrameError, Frames

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
text_tuples = st.lists(texts, max_size=3).map(tuple)

to_worker: st.SearchStrategy[wire.ToWorker] = st.one_of(
    st.builds(wire.Welcome, st.integers(1, 9), st.builds(SandboxPolicy, texts), st.builds(Limits)),
    st.builds(wire.Nope, texts),
    st.builds(wire.RunTool, texts, texts, texts),
    st.builds(wire.Cancel, texts),
    st.builds(wire.OutputOpened, texts, texts),
    st.builds(wire.OutputRefused, texts, texts),
)
to_supervisor: st.SearchStrategy[wire.ToSupervisor] = st.one_of(
    st.builds(wire.Hello, st.integers(0, 9), st.integers(0, 9)),
    st.builds(wire.Ready, st.sampled_from(Rung), text_tuples, texts),
    st.builds(wire.ToolOutput, texts, texts),
    st.builds(wire.OpenOutput, texts),
    st.builds(
        wire.ToolFinished,
        texts,
        st.sampled_from(wire.Status),
        texts,
        st.builds(Display, texts, texts, texts, texts, st.integers(0, 2**32)),
        text_tuples,
        text_tuples,
    ),
    st.builds(wire.JobEnded, texts, texts),
)


@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_whole_however_the_bytes_are_split(payloads: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(len(p).to_bytes(wire.HEADER, "big") + p for p in payloads)
    frames, found, at, turn = Frames(), list[bytes](), 0, 0
    while at < len(stream):
        step = sizes[turn % len(sizes)]
        found += frames.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    assert found == payloads
    assert frames.partial == 0


def test_a_frame_that_has_not_come_whole_is_kept_and_counted() -> None:
    frames = Frames()
    assert frames.feed(b"\0\0\0\x03ab") == []
    assert frames.partial == 6
    assert frames.feed(b"c\0") == [b"abc"]
    assert frames.partial == 1


def test_a_length_above_the_maximum_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(FrameError, match="a frame of 101 bytes; at most 100"):
        Frames(100).feed(b"\0\0\0\x65")
    assert Frames(100).feed(b"\0\0\0\x64" + b"x" * 100) == [b"x" * 100]


def test_a_message_above_the_maximum_is_not_sent() -> None:
    with pytest.raises(FrameError, match="at most 50 are allowed"):
        wire.encode(wire.Nope("x" * 60), max_frame=50)


def test_a_lone_surrogate_is_not_sent() -> None:
    with pytest.raises(FrameError, match="not UTF-8"):
        wire.encode(wire.Nope("\ud800"))


@given(to_worker)
def test_a_message_for_a_worker_arrives_as_it_was_sent(message: wire.ToWorker) -> None:
    (payload,) = Frames().feed(wire.encode(message))
    assert wire.decode_to_worker(payload) == message


@given(to_supervisor)
def test_a_message_for_the_supervisor_arrives_as_it_was_sent(message: wire.ToSupervisor) -> None:
    (payload,) = Frames().feed(wire.encode(message))
    assert wire.decode_to_supervisor(payload) == message


@given(
    st.one_of(
        st.builds(control.ZygoteReady, st.integers(1, 2**22)),
        st.builds(control.Forked, st.integers(0, 2**31), st.integers(1, 2**22)),
        st.builds(control.NotForked, st.integers(0, 2**31), texts),
        st.builds(control.Exited, st.integers(1, 2**22), st.integers(-64, 255)),
    )
)
def test_a_message_of_the_zygote_arrives_as_it_was_sent(message: control.FromZygote) -> None:
    assert control.decode_from_zygote(control.encode_control(message)) == message


def test_the_zygote_takes_nothing_but_forks() -> None:
    assert control.decode_to_zygote(control.encode_control(control.Fork(3))) == control.Fork(3)
    with pytest.raises(FrameError, match="not a message for the zygote"):
        control.decode_to_zygote(control.encode_control(control.Exited(1, 0)))
    with pytest.raises(FrameError, match="not a message of the zygote"):
        control.decode_from_zygote(control.encode_control(control.Fork(3)))


@given(st.binary(max_size=60))
def test_a_strangers_bytes_are_a_message_or_a_frame_error(payload: bytes) -> None:
    for decode in (
        wire.decode_to_worker,
        wire.decode_to_supervisor,
        control.decode_to_zygote,
        control.decode_from_zygote,
    ):
        try:
            decode(payload)
        except FrameError:
            continue


@given(to_supervisor, st.data())
def test_a_damaged_message_is_a_message_or_a_frame_error(
    message: wire.ToSupervisor, data: st.DataObject
) -> None:
    payload = bytearray(wire.encode(message)[wire.HEADER :])
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        wire.decode_to_supervisor(bytes(payload))
    except FrameError:
        return


def test_a_message_of_the_other_direction_is_refused() -> None:
    payload = wire.encode(wire.Cancel("c"))[wire.HEADER :]
    with pytest.raises(FrameError, match="not a message for the supervisor"):
        wire.decode_to_supervisor(payload)
    payload = wire.encode(wire.OpenOutput("c"))[wire.HEADER :]
    with pytest.raises(FrameError, match="not a message for a worker"):
        wire.decode_to_worker(payload)


def test_a_field_that_is_nested_without_end_is_refused() -> None:
    payload = b"\x83" + msgspec.msgpack.encode("type") + msgspec.msgpack.encode("nope")
    payload += msgspec.msgpack.encode("why") + msgspec.msgpack.encode("")
    payload += msgspec.msgpack.encode("new") + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(FrameError, match="not a message for a worker"):
        wire.decode_to_worker(payload)


def test_a_field_of_a_newer_build_is_ignored() -> None:
    payload = msgspec.msgpack.encode({"type": "cancel", "call_id": "c", "new": [1, 2]})
    assert wire.decode_to_worker(payload) == wire.Cancel("c")


@pytest.mark.parametrize(
    ("low", "high", "version"),
    [
        (wire.VERSION_MIN, wire.VERSION_MAX, wire.VERSION_MAX),
        (0, wire.VERSION_MAX + 5, wire.VERSION_MAX),
        (wire.VERSION_MAX, wire.VERSION_MAX + 1, wire.VERSION_MAX),
        (wire.VERSION_MAX + 1, wire.VERSION_MAX + 2, None),
        (0, wire.VERSION_MIN - 1, None),
        (3, 1, None),
    ],
)
def test_the_handshake_takes_the_highest_version_that_both_speak(
    low: int, high: int, version: int | None
) -> None:
    assert wire.agree(wire.Hello(low, high)) == version


def test_a_policy_allows_only_the_workspace_unless_it_says_more() -> None:
    policy = SandboxPolicy("/w")
    assert (policy.mode, policy.readable, policy.writable, policy.environment) == (
        Mode.WORKSPACE_WRITE,
        (),
        (),
        (),
    )


def test_a_policy_arrives_as_it_was_sent() -> None:
    policy = SandboxPolicy("/w", Mode.READ_ONLY, ("/usr",), ("/tmp/x",), "/tmp/x", "/o", (("PATH", "/bin"),))
    welcome = wire.Welcome(1, policy, Limits(result_cap_bytes=5, grace_seconds=0.5))
    assert wire.decode_to_worker(wire.encode(welcome)[wire.HEADER :]) == welcome


def test_limits_leave_a_call_less_time_than_the_longest() -> None:
    limits = Limits()
    assert 0 < limits.command_seconds <= limits.command_seconds_max
    assert 0 < limits.result_cap_bytes < limits.output_file_cap


@pytest.mark.parametrize("field", ["background", "paths", "denials"])
def test_a_list_without_end_is_no_message_and_takes_no_time(field: str) -> None:
    """Millions of texts would take seconds, in which nobody is heard."""
    endless: list[object] = [{"what": "x"} if field == "denials" else "ab"] * 2_000_000
    payload = msgspec.msgpack.encode(
        {
            "type": "finished",
            "call_id": "a",
            "status": "done",
            "text": "",
            "display": {"summary": ""},
            field: endless,
        }
    )
    began = time.process_time()
    with pytest.raises(FrameError):
        wire.decode_to_supervisor(payload)
    assert time.process_time() - began < 0.5
