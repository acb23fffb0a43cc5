"""Words to permissions, what a grant covers, the queue of questions, grants on the disk."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from protocol.events import AnyEvent, PermissionAsked
from protocol.permission import Kind, Permission, PermissionWordError, parse
from protocol.policy import Mode, Network, SandboxPolicy
from supervisor.exits import StopError
from supervisor.permits.asking import Answer, Decider, Question, Questions, Scope
from supervisor.permits.grants import Grants, ProjectGrants, covers
from supervisor.permits.wanted import Place, has, wanted
from tests.supervisor.asking import ScriptedAsker

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in ("workspace/src", "home/cache", "home/.config/polier", "state/sessions"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "home"
    return Place(tmp_path / "workspace", home, tmp_path / "state", home / ".config/polier")


@pytest.mark.parametrize(
    ("word", "permission"),
    [
        ("read:src", "read:{}/workspace/src"),
        ("write:~/cache", "write:{}/home/cache"),
        ("write:~", "write:{}/home"),
        ("read:../home/cache/", "read:{}/home/cache"),
        ("network:Example.ORG:443", "network:example.org:443"),
        ("git-write", "git-write"),
    ],
)
def test_words_become_permissions_for_real_places(place: Place, word: str, permission: str) -> None:
    (one,) = wanted([word], place)
    assert str(one.permission) == permission.format(place.workspace.parent)
    assert one.shown == str(one.permission)


def test_a_link_is_shown_with_where_it_leads(place: Place) -> None:
    (place.workspace / "build").symlink_to(place.home / "cache")
    (one,) = wanted(["write:build"], place)
    assert one.permission.target == str(place.home / "cache")
    assert one.shown == f"write:{place.home}/cache (build leads there)"


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("write:/nowhere/at/all", "as in write:/"),
        ("write:new/deep", "as in write:{}/workspace"),
        ("read:~root", "only ~ and ~/PATH"),
        ("write:../state/sessions", "this program's own files"),
        ("write:~/.config/polier", "this program's own files"),
        (f"read:/{'a' * 5000}/b", "longer than any path"),
        (f"read:/{'a' * 300}/b", "as in read:/"),
        ("read:/etc/passwd/x", "as in read:/etc/passwd"),
        ("admin", "there are: read:PATH"),
        ("network:example.org", "a host and a port"),
        ("read:", "a path is wanted"),
    ],
)
def test_words_that_can_t_be_granted_are_answered_with_what_is_wanted(
    place: Place, word: str, says: str
) -> None:
    with pytest.raises(PermissionWordError) as refused:
        wanted([word], place)
    assert says.format(place.workspace.parent) in str(refused.value)


def test_the_same_permission_in_two_spellings_is_one(place: Place) -> None:
    assert len(wanted(["read:src", f"read:{place.workspace}/./src"], place)) == 1


@pytest.mark.parametrize(
    ("grant", "asked", "yes"),
    [
        ("write:/a", "write:/a/b", True),
        ("write:/a", "read:/a", True),
        ("write:/a", "write:/ab", False),
        ("write:/a/b", "write:/a", False),
        ("read:/a", "write:/a", False),
        ("read:/", "read:/etc", True),
        ("network:x.org:443", "network:x.org:443", True),
        ("network:x.org:443", "network:x.org:80", False),
        ("network:*.x.org:443", "network:a.x.org:443", True),
        ("network:*.x.org:443", "network:x.org:443", False),
        ("network:*.x.org:443", "network:evilx.org:443", False),
        ("network:a.x.org:443", "network:*.x.org:443", False),
        ("network:*.x.org:443", "network:*.a.x.org:443", True),
        ("git-write", "git-write", True),
        ("git-write", "unconfined", False),
        ("unconfined", "write:/a", True),
    ],
)
def test_what_a_grant_covers(grant: str, asked: str, yes: bool) -> None:
    assert covers(parse(grant), parse(asked)) is yes


def test_what_commands_may_do_anyway_needs_no_grant() -> None:
    policy = SandboxPolicy(
        "/w", readable=("/usr",), writable=("/x",), hidden=("/w/.env",), protected=("/w/.git",)
    )
    yes = ("read:/w/a", "write:/w/a", "read:/usr/include", "write:/x/y", "read:/w/.git/config")
    no = ("read:/w/.env", "write:/w/.env", "write:/w/.git/x", "write:/usr", "read:/home", "git-write",
          "unconfined", "network:x.org:443")  # fmt: skip
    assert [word for word in (*yes, *no) if has(policy, parse(word), listed=True)] == list(yes)
    open_ = SandboxPolicy("/w", mode=Mode.UNCONFINED)
    assert all(has(open_, parse(word), listed=True) for word in no)
    assert not has(SandboxPolicy("/w", mode=Mode.READ_ONLY), parse("write:/w/a"), listed=True)
    assert has(SandboxPolicy("/w", network=Network.ON), parse("network:x.org:443"), listed=False)
    some = SandboxPolicy("/w", network=Network.LISTED, hosts=("x.org:443",))
    assert has(some, parse("network:x.org:443"), listed=True)
    assert not has(some, parse("network:x.org:443"), listed=False)
    assert not has(some, parse("network:y.org:443"), listed=True)


def test_grants_for_a_project_are_kept_in_a_private_file_and_can_be_taken_back(tmp_path: Path) -> None:
    kept = ProjectGrants(tmp_path, "key")
    kept.add([parse("write:/x"), parse("git-write")], "make it")
    kept.add([parse("write:/x")], "again")
    path = tmp_path / "projects/key/grants.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(one.permission, one.command) for one in kept.all()] == [
        ("write:/x", "make it"),
        ("git-write", "make it"),
    ]
    assert list(path.parent.iterdir()) == [path]
    assert kept.revoke("write:/x")
    assert not kept.revoke("write:/x")
    assert ProjectGrants(tmp_path, "key").permissions() == (Permission(Kind.GIT_WRITE),)
    assert ProjectGrants(tmp_path, "another").permissions() == ()


def test_a_file_of_grants_that_can_t_be_read_grants_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "projects/key").mkdir(parents=True)
    (tmp_path / "projects/key/grants.json").write_text('[{"permission": "unconfined"')
    kept = ProjectGrants(tmp_path, "key")
    assert Grants([], kept).covering(parse("git-write")) is None
    assert "can't be read" in kept.problem


@pytest.mark.parametrize("content", ['[{"permission": "write:/x"', "[]x", "\xff", '[{"x":' + "[" * 100_000])
def test_a_file_of_grants_that_makes_no_sense_is_put_aside_and_nothing_of_it_is_lost(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "projects/key/grants.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode("latin-1"))
    ProjectGrants(tmp_path, "key").add([parse("git-write")], "c")
    assert ProjectGrants(tmp_path, "key").permissions() == (parse("git-write"),)
    (aside,) = (other for other in path.parent.iterdir() if other != path)
    assert aside.read_bytes() == content.encode("latin-1")


def test_two_sessions_of_a_project_lose_none_of_each_other_s_grants(tmp_path: Path) -> None:
    words = [f"write:/{number}" for number in range(40)]
    each = (
        "import sys; from pathlib import Path; from protocol.permission import parse; "
        "from supervisor.permits.grants import ProjectGrants; "
        "kept = ProjectGrants(Path(sys.argv[1]), 'key'); "
        "[kept.add([parse(word)], 'c') for word in sys.argv[2:]]"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", each, str(tmp_path), *words[half::2]], cwd=CHECKOUT)
        for half in (0, 1)
    ]
    assert [one.wait(60) for one in both] == [0, 0]
    assert sorted(map(str, ProjectGrants(tmp_path, "key").permissions())) == sorted(words)


def test_a_later_version_s_word_among_the_grants_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "projects/key").mkdir(parents=True)
    rows = [{"permission": word, "time": "t", "command": "c"} for word in ("fly:/x", "write:/x")]
    (tmp_path / "projects/key/grants.json").write_text(json.dumps(rows))
    assert ProjectGrants(tmp_path, "key").permissions() == (parse("write:/x"),)


def test_a_grant_that_can_t_be_kept_is_none(tmp_path: Path) -> None:
    (tmp_path / "projects").write_text("no directory")
    grants = Grants([], ProjectGrants(tmp_path / "none", "key"))
    assert grants.covering(parse("git-write")) is None
    blocked = Grants([], ProjectGrants(tmp_path, "key"))
    with pytest.raises(StopError, match=r"grants\.json"):
        blocked.add([parse("git-write")], Scope.PROJECT, "c")
    assert blocked.covering(parse("git-write")) is None


def test_who_granted_is_known_and_unconfined_never_stands(tmp_path: Path) -> None:
    grants = Grants([parse("unconfined"), parse("read:/y")], ProjectGrants(tmp_path, "key"))
    grants.add([parse("write:/x")], Scope.SESSION, "c")
    grants.add([parse("write:/once")], Scope.ONCE, "c")
    assert grants.standing() == (parse("read:/y"), parse("write:/x"))
    assert grants.covering(parse("read:/y/z")) is Decider.FLAG
    only = Grants([], ProjectGrants(tmp_path, "key"))
    only.add([parse("write:/x")], Scope.SESSION, "c")
    assert only.covering(parse("write:/x/y")) is Decider.GRANT
    assert only.covering(parse("write:/once")) is None


def _question(id: str) -> Question:
    return Question(call_id=id, tool="run_command", subject=id, reason="because")


async def test_questions_come_one_at_a_time_and_in_order() -> None:
    asker, told = ScriptedAsker(), list[AnyEvent]()
    questions = Questions(asker, told.append)
    answers: dict[str, tuple[int, Answer]] = {}

    async def ask(id: str) -> None:
        answers[id] = await questions.ask(_question(id), lambda: None)

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(ask, name)
            await trio.testing.wait_all_tasks_blocked()
        for name in "abc":
            assert [one.call_id for one in asker.shown] == [name]
            asker.answer(Answer(Scope.ONCE, name))
            await trio.testing.wait_all_tasks_blocked()
    assert {name: (number, answer.words) for name, (number, answer) in answers.items()} == {
        "a": (1, "a"),
        "b": (2, "b"),
        "c": (3, "c"),
    }
    assert [event.question for event in told if isinstance(event, PermissionAsked)] == [1, 2, 3]


async def test_a_cancelled_call_takes_its_question_with_it_and_the_next_one_is_shown() -> None:
    asker = ScriptedAsker()
    questions = Questions(asker, lambda _event: None)
    scopes: dict[str, trio.CancelScope] = {}

    async def ask(id: str) -> None:
        with trio.CancelScope() as scopes[id]:
            await questions.ask(_question(id), lambda: None)

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(ask, name)
            await trio.testing.wait_all_tasks_blocked()
        scopes["b"].cancel()  # one that waits was never shown
        scopes["a"].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert [one.call_id for one in asker.shown] == ["c"]
        assert asker.gone == ["a"]
        asker.answer(Answer())


async def test_a_question_that_was_settled_while_it_waited_is_not_shown() -> None:
    asker = ScriptedAsker()
    number, answer = await Questions(asker, lambda _event: None).ask(
        _question("a"), lambda: Answer(Scope.SESSION)
    )
    assert (number, answer.scope, asker.shown) == (0, Scope.SESSION, [])
