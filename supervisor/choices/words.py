"""Words in a settings file that are more than any text: each is checked and written in its one plain form.

All raise ValueError with what is wrong.  What is *not* here: which key holds which word (tables.py), what a
rule means (permits/rules.py).
"""

import re

from protocol.permission import PermissionWordError, parse

_SIZE = re.compile(r"(\d{1,15})\s*([KMGT])i?B?|(\d{1,15})", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_SECRET_PARTS = ("KEY", "TOKEN", "SECRET", "PASS", "CRED")
_SECRET_BEGINNINGS = ("AWS_", "AZURE_", "GOOGLE_", "GH_", "GITHUB_")
_SHOWN = 80
"""Characters of a wrong word that come back in its error."""
RULE_MAX = 500
"""Characters of a rule: each is held against each part of a command."""
HTTPS = 443
"""The port of a host that is named without one."""


def rule(given: str) -> str:
    """`TOOL` or `TOOL PATTERN`, one space between."""
    from protocol.tools.catalog import TOOLS  # late: most starts have no rule

    tool, _, pattern = given.strip().partition(" ")
    if tool not in TOOLS:
        raise ValueError(f"{_shown(given)} begins with no tool; there are: {', '.join(TOOLS)}")
    if len(given) > RULE_MAX:
        raise ValueError(f"{_shown(given)} is longer than {RULE_MAX} characters")
    if not given.isprintable():
        raise ValueError(f"{_shown(given)} has characters that can't be shown")
    return f"{tool} {pattern.strip()}".rstrip()


def begins_with_tool(given: str) -> bool:
    """Whether the text would be a rule rather than a permission."""
    from protocol.tools.catalog import TOOLS  # late: as above

    return given.strip().partition(" ")[0] in TOOLS


def looks_secret(name: str) -> bool:
    """Whether a variable of this name usually holds something that nobody else may know."""
    upper = name.upper()
    return upper.startswith(_SECRET_BEGINNINGS) or any(part in upper for part in _SECRET_PARTS)


def size(given: str) -> int:
    """Bytes: "512M" and "4 GiB" are powers of 1024."""
    found = _SIZE.fullmatch(given.strip())
    if not found:
        raise ValueError(f"{_shown(given)} is no size")
    return int(found[1] or found[3]) * _UNITS[(found[2] or "").upper()]


def host(given: str) -> str:
    """HOST:PORT in small letters; `*.HOST` is any name below HOST."""
    text = given.strip()
    # An IPv6 address stands in brackets, so the colon before a port comes after them.
    has_port = ":" in text.rpartition("]")[2]
    try:
        return parse(f"network:{text}" if has_port else f"network:{text}:{HTTPS}").target
    except PermissionWordError:
        raise ValueError(f"{_shown(given)} is no host and no host with a port") from None


def place(given: str) -> str:
    """A file or directory: absolute, or below the user's home directory by `~`."""
    if "\0" in given or not (given.startswith(("/", "~/")) or given == "~"):
        raise ValueError(f"{_shown(given)} is no absolute path")
    return given


def variable(given: str) -> str:
    """The name of an environment variable that doesn't look like a secret."""
    if looks_secret(secret_variable(given)):
        raise ValueError(f"{_shown(given)} looks like a secret; to pass it on, name it in environment_secret")
    return given


def secret_variable(given: str) -> str:
    """The name of any environment variable."""
    if not _VARIABLE.fullmatch(given):
        raise ValueError(f"{_shown(given)} is no name of a variable")
    return given


def _shown(given: str) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
