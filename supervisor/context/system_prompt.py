"""Position 0 of every request: `system_prompt.txt` and the facts that stay the same for a whole session.

No clock, no git status, nothing that changes: a changed byte here makes the provider's cache miss all that
follows.
"""

from pathlib import Path


def read_system_prompt() -> str:
    """The text of `system_prompt.txt`: beside this package in a wheel, above it in a checkout."""
    package = Path(__file__).parent.parent
    for place in (package / "system_prompt.txt", package.parent / "system_prompt.txt"):
        if place.is_file():
            return place.read_text(encoding="utf-8").strip()
    raise FileNotFoundError(f"system_prompt.txt is missing beside {package}: install polier anew")


def system_prompt(workspace: Path) -> str:
    """The whole system message of a session in this workspace."""
    return f"{read_system_prompt()}\n\nThe workspace is {workspace}.\n"
