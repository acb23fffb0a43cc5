"""What the file tools refuse inside the places that they may touch, and what a grant opens to them."""

import os
from pathlib import Path

import pytest

from protocol.permission import Kind, Permission
from protocol.policy import Mode
from protocol.tools.search import Search
from protocol.tools.write_file import WriteFile
from protocol.wire import Denial, Status
from tests.worker.desk import Room
from worker.call import ToolError
from worker.files.paths import Access, resolve
from worker.files.ripgrep import program
from worker.tools import write_file
from worker.tools.search import run_with


def refused(
    room: Room, path: str, access: Access, *, make_parents: bool = False
) -> tuple[str, Denial | None]:
    with pytest.raises(ToolError) as caught:
        resolve(room.desk.policy, path, access, make_parents=make_parents)
    assert caught.value.status is Status.REFUSED
    return str(caught.value), caught.value.denial


def opened(room: Room, path: str, access: Access) -> None:
    place = resolve(room.desk.policy, path, access)
    os.close(place.parent)


def test_a_hidden_file_is_refused_with_the_permission_that_would_open_it(room: Room) -> None:
    secret = room.put(".env", b"TOKEN=1")
    (room.workspace / "link").symlink_to(".env")
    room.confine(hidden=(str(secret),))
    permission = Permission(Kind.READ, str(secret))
    for path in (".env", "link", str(secret)):
        for access in Access:
            words, denial = refused(room, path, access)
            assert f'needs=["read:{secret}"]' in words
            assert denial is not None
            assert denial.permission == permission
            assert denial.sure


def test_what_is_in_a_hidden_directory_is_hidden_but_for_what_the_policy_names_below_it(room: Room) -> None:
    room.put("keys/a/b", b"x")
    room.put("keys/open/c", b"x")
    room.confine(hidden=(f"{room.workspace}/keys",), opened=(f"{room.workspace}/keys/open",))
    assert "hidden" in refused(room, "keys/a/b", Access.READ)[0]
    opened(room, "keys/open/c", Access.READ)
    top = room.workspace.parent
    room.confine(hidden=(str(top),))
    opened(room, "keys/a/b", Access.WRITE)
    opened(room, f"{room.tmp}/new", Access.WRITE)


def test_a_protected_file_can_be_read_and_is_not_written(room: Room) -> None:
    room.put(".vscode/tasks.json", b"{}")
    room.confine(protected=(f"{room.workspace}/.vscode",))
    opened(room, ".vscode/tasks.json", Access.READ)
    for path in (".vscode/tasks.json", ".vscode/new", "./.vscode/../.vscode/new"):
        words, denial = refused(room, path, Access.WRITE)
        assert "protected" in words
        assert denial is not None
        assert denial.permission is not None
        assert denial.permission.kind is Kind.WRITE
    refused(room, ".vscode/deep/er/new", Access.WRITE, make_parents=True)
    assert os.listdir(room.workspace / ".vscode") == ["tasks.json"]


def test_what_is_git_s_own_is_left_to_git(room: Room) -> None:
    for path in (".git/config", "sub/.git/hooks/post-commit", ".git"):
        with pytest.raises(ToolError, match="belongs to git") as caught:
            write_file.run(WriteFile(path, "x"), room.call)
        assert caught.value.denial is not None
        assert caught.value.denial.permission == Permission(Kind.GIT_WRITE)
    assert not list(room.workspace.rglob(".git"))
    room.confine(mode=Mode.UNCONFINED)
    write_file.run(WriteFile(".git/description", "x"), room.call)


def test_a_grant_opens_a_place_outside_for_reading_only(room: Room) -> None:
    (room.outside / "notes").write_text("x")
    words, denial = refused(room, f"{room.outside}/notes", Access.READ)
    assert f'needs=["read:{room.outside}/notes"]' in words
    assert denial is not None
    room.confine(opened=(str(room.outside),))
    opened(room, f"{room.outside}/notes", Access.READ)
    refused(room, f"{room.outside}/notes", Access.WRITE)


def test_a_link_in_an_opened_place_is_judged_by_where_it_leads(room: Room, tmp_path: Path) -> None:
    (room.outside / "away").symlink_to(tmp_path)
    room.confine(opened=(str(room.outside),))
    refused(room, f"{room.outside}/away/other", Access.READ)


@pytest.mark.parametrize("rg", [None, program()])
def test_a_search_shows_no_line_of_a_hidden_file(room: Room, rg: str | None) -> None:
    room.put(".env", b"TOKEN=sesame\n")
    room.put("keys/deep", b"sesame\n")
    room.put("open", b"no sesame here\n")
    room.confine(hidden=(f"{room.workspace}/.env", f"{room.workspace}/keys"))
    text = run_with(rg, Search("sesame"), room.call).text
    assert "open" in text
    assert "TOKEN" not in text
    assert "deep" not in text
