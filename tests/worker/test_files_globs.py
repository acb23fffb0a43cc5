import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from worker.files.globs import GlobError, matcher


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.py", ["a.py", "sub/a.py"], ["a.pyc", "a.py/x"]),
        ("./*.py", ["a.py"], ["sub/a.py"]),
        ("**/*.md", ["a.md", "x/y/a.md"], ["a.txt"]),
        ("src/**/t?.c", ["src/t1.c", "src/a/b/t2.c"], ["src/t12.c", "t1.c"]),
        ("src/**", ["src/a", "src/b/c"], ["other/a"]),
        ("*.{ts,tsx}", ["a.ts", "b/a.tsx"], ["a.js", "a.t"]),
        ("[a-c]*[!0-9]", ["ax", "bxy"], ["dx", "a1"]),
        ("[]x]", ["]", "x"], ["y"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("a,b}", ["a,b}"], ["a"]),
        ("caf*", ["café"], []),
        ("x[y", ["x[y"], ["xy"]),
    ],
)
def test_a_glob_matches_as_ripgrep_does(glob: str, yes: list[str], no: list[str]) -> None:
    matches = matcher(glob)
    assert [path for path in yes if not matches(path.encode())] == []
    assert [path for path in no if matches(path.encode())] == []


@pytest.mark.parametrize("glob", ["", "./", "/", "{a,b", "[z-a]"])
def test_a_malformed_glob_is_refused(glob: str) -> None:
    with pytest.raises(GlobError):
        matcher(glob)


def test_a_glob_that_nobody_wrote_is_refused_without_repeating_it() -> None:
    with pytest.raises(GlobError, match=r"50,000 characters; at most 1,000"):
        matcher("{" * 50_000)


def plainly(glob: str, path: str, at_the_start: bool = True) -> bool:
    """The same by trying everything; the glob of letters, `*`, `**`, `?` and slashes."""
    if not glob:
        return not path
    if glob.startswith("**/") and at_the_start:
        ends = [end + 1 for end, char in enumerate(path) if char == "/"]
        return any(plainly(glob[3:], path[end:]) for end in [0, *ends])
    if glob.startswith("**"):
        return any(plainly(glob[2:], path[end:], False) for end in range(len(path) + 1))
    if glob[0] == "*":
        name = path.partition("/")[0]
        return any(plainly(glob[1:], path[end:], False) for end in range(len(name) + 1))
    fits = path[:1] != "/" if glob[0] == "?" else path[:1] == glob[0]
    return bool(path) and fits and plainly(glob[1:], path[1:], glob[0] == "/")


@given(st.text("ab/*?", max_size=9), st.text("ab/", max_size=9))
@example("*a*", "xa")
@example("**a*b", "a/ab")
@example("**/a*/b", "a/aa/b")
def test_a_glob_of_stars_matches_what_trying_everything_finds(glob: str, path: str) -> None:
    glob = glob.rstrip("/")
    expected = plainly(f"t/{glob}".rstrip("/") + "x", f"t/{path}x")
    assert matcher(f"t/{glob}".rstrip("/") + "x")(f"t/{path}x".encode()) == expected


def test_a_glob_of_many_stars_is_decided_at_once() -> None:
    began = time.monotonic()
    assert not matcher("*a" * 40 + "*b")(b"a" * 250)
    assert not matcher("d/" + "**a" * 40 + "**b")(b"d/" + b"a" * 250)
    assert time.monotonic() - began < 1
