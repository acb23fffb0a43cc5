import pytest

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
