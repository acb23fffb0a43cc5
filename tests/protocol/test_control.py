"""What travels with a Fork."""

import pytest

from protocol.control import Birth, decode_birth, encode_birth
from protocol.policy import Limits, SandboxPolicy
from protocol.wire import FrameError


def test_a_birth_is_read_as_it_was_written() -> None:
    birth = Birth(SandboxPolicy("/w", hidden=("/w/.env",)), Limits(processes=7))
    assert decode_birth(encode_birth(birth)) == birth


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x80", b"\x91" * 5000])
def test_what_is_no_birth_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError, match="not a worker's birth"):
        decode_birth(payload)
