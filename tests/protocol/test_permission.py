"""The words for what may be asked for."""

import pytest

from protocol.permission import Kind, Permission, PermissionWordError, parse


@pytest.mark.parametrize(
    ("word", "permission"),
    [
        ("read:src", Permission(Kind.READ, "src")),
        (" write:/a b:c ", Permission(Kind.WRITE, "/a b:c")),
        ("network:Example.ORG:443", Permission(Kind.NETWORK, "example.org:443")),
        ("network:*.example.org:80", Permission(Kind.NETWORK, "*.example.org:80")),
        ("git-write", Permission(Kind.GIT_WRITE)),
        ("unconfined", Permission(Kind.UNCONFINED)),
    ],
)
def test_a_word_is_a_permission_and_a_permission_is_its_word(word: str, permission: Permission) -> None:
    assert parse(word) == permission
    assert parse(str(permission)) == permission


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("", "is no permission; there are: read:PATH"),
        ("readable:x", "is no permission"),
        ("read", "a path is wanted, as in read:PATH"),
        ("write:", "a path is wanted, as in write:PATH"),
        ("read:a\0b", "a path is wanted"),
        ("git-write:x", "git-write stands alone"),
        ("unconfined:", "unconfined stands alone"),
        ("network:example.org", "network:example.org"),
        ("network:example.org:0", "network:example.org:0"),
        ("network:*.127.0.0.1:80", "an address has no names below it"),
    ],
)
def test_what_is_no_word_is_named(word: str, words: str) -> None:
    with pytest.raises(PermissionWordError) as error:
        parse(word)
    assert words in str(error.value)
