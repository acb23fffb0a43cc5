"""What a session needs of a request beside its bytes: sizes, digests, and a way back."""

import hashlib

from protocol.conversation import MODEL, Answer, User
from supervisor.model.dialect import DEEPSEEK
from supervisor.model.request import Request


def made() -> Request:
    return Request(DEEPSEEK, "m", "S", [{"type": "function", "function": {"name": "f"}}], 100)


def test_the_digest_is_that_of_the_whole_body_with_and_without_tools_and_line() -> None:
    request = made()
    request.append([User.says("hi")])
    request.append([Answer.by(MODEL, "ho")])
    assert request.digest() == hashlib.sha256(request.body()).hexdigest()
    last = request.body(tools=False, volatile="now")
    assert request.digest(tools=False, volatile="now") == hashlib.sha256(last).hexdigest()


def test_a_rollback_leaves_no_trace_and_the_digest_follows() -> None:
    request, same = made(), made()
    for each in (request, same):
        each.append([User.says("one")])
    mark = request.mark()
    request.append([User.says("two")])
    request.rollback(mark)
    assert request.body() == same.body()
    assert request.digest() == same.digest()


def test_the_size_is_that_of_the_body_and_the_parts_add_up() -> None:
    request = made()
    added = request.append([User.says("hi")])
    assert request.size == len(request.body())
    assert request.conversation_size == added == request.sized([User.says("hi")])
    rest = request.size - added - sum(size for _, size in request.fixed_parts())
    assert 0 < rest < 50


def test_a_restart_keeps_position_0_alone() -> None:
    request = made()
    request.append([User.says("hi")])
    request.restart()
    assert request.body() == made().body()
