"""What still gets through, and why.  Each is a fault of the sandbox, not of its test; what gets through no
more must leave this list."""

from tests.escapes.attack import ISOLATED, Rung

_COMMONDIR = "redirects git by .git/commondir, where git may write"

OPEN: dict[tuple[Rung, str], str] = {
    (rung, _COMMONDIR): "the file that would keep the place taken is not made yet before a worker is born"
    for rung in ISOLATED
}
