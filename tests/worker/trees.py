"""Trees of files that the tests of list_files and search share."""

import os
from pathlib import Path

ODD_NAMES = (
    b"-rf.txt",
    b" leading.txt",
    b"caf\xc3\xa9.txt",
    b"two\nlines.txt",
    b"quo\"te's.txt",
    b"bad\xff.txt",
)


def odd_names(directory: Path) -> None:
    """Six files whose names are easily misread, each with the line "needle"."""
    for name in ODD_NAMES:
        with open(os.path.join(os.fsencode(directory), name), "wb") as file:
            file.write(b"needle\n")


def loops_and_a_locked_directory(directory: Path) -> None:
    """One readable file, links in circles, and a directory that nobody but root can read."""
    (directory / "t" / "sub").mkdir(parents=True)
    (directory / "t" / "locked").mkdir()
    (directory / "t" / "sub" / "a.md").write_bytes(b"x needle\n")
    (directory / "t" / "locked" / "b.md").write_bytes(b"x\n")
    (directory / "t" / "sub" / "up").symlink_to("..")
    (directory / "t" / "one").symlink_to("two")
    (directory / "t" / "two").symlink_to("one")
    (directory / "t" / "locked").chmod(0)


def ignoring(directory: Path) -> None:
    """A project with `.gitignore` files at two levels, and what they leave out."""
    for name, text in {
        ".gitignore": "*.log\n/build/\nnode_modules/\n!keep.log\n\\\n",
        "a.py": "needle a\n",
        "a.log": "needle log\n",
        "keep.log": "needle keep\n",
        "build/out.py": "needle out\n",
        "sub/build/in.py": "needle in\n",
        "sub/.gitignore": "*.tmp\n!special.log\n",
        "sub/x.tmp": "needle tmp\n",
        "sub/special.log": "needle special\n",
        "node_modules/m/index.js": "needle module\n",
        ".github/ci.yml": "needle ci\n",
        ".git/config": "needle git\n",
    }.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


KEPT = (
    ".github/ci.yml",
    ".gitignore",
    "a.py",
    "keep.log",
    "sub/.gitignore",
    "sub/build/in.py",
    "sub/special.log",
)
"""What `ignoring` leaves, in order of name."""
