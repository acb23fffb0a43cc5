"""What the user is shown of a tool call.  It never reaches the model nor changes what the model gets."""

from msgspec import Struct


class Display(Struct, frozen=True):
    """One line, and what may be unfolded below it.  Raw text: whoever prints makes it harmless first."""

    summary: str
    """One line without a line break: "read 40 lines", "exit 1 in 0.4 s, 120 lines"."""
    preview: str = ""
    """The first and last lines of a result (a command's output), at most a few kB; where the user wants to
    see everything, all that the model gets."""
    diff: str = ""
    """A unified diff of what an edit changed, at most a few kB; `summary` says when it was cut."""
    path: str = ""
    """The file that was changed, relative to the workspace, where one was."""
    lines: int = 0
    """Lines of the whole result; 0 where `preview` is all there is."""
