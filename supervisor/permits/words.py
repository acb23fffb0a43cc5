"""The words of a shell command as far as they are known before it runs, from nodes of a syntax tree.

What is known only when the command runs (a variable, a glob, a substitution) is ANY.  Text in which the
tree may have missed something that bash would run raises a doubt.  What is *not* here: which commands there
are (bash.py).
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from supervisor.permits.wrappers import ANY

if TYPE_CHECKING:
    from tree_sitter import Node

Doubt = Callable[[str], None]
_STRANGE = re.compile(r"""[$`"'<>();&|\s]""")
_GLOB = re.compile(r"[*?]")
_GROUPED = re.compile(r"[\[{]|[@!+?*]\(")
"""Brackets and braces: what they stand for is not the text between them.  Only `{}` is just itself."""
_RUNS = re.compile(r"`|\$[({\[]")
_INDEX_RUNS = re.compile(r"\[[^\]]*(\$\(|`)")
"""Where bash takes a word for the name of a variable, it runs what stands in its index, quoted or not."""
_EXPANSION = re.compile(
    r"\$\{#?([A-Za-z_]\w*|\d+|[@*#?$!-])(\[([@*]|\d+)\])?"
    r"((:?[-+?]|\#\#?|%%?|//?|\^\^?|,,?).*|:\s?\d+(:\s?-?\d+)?)?\}",
    re.ASCII | re.DOTALL,
)
"""Expansions that only look something up.  Not `${!x}`, `${x@P}`, `${x:=y}` and indexes that are counted."""
_NUMBERS = re.compile(r"[\s0-9+\-*/%()<>=!&|^~?:,]*")
SUBSTITUTIONS = ("command_substitution", "process_substitution")


def text_of(node: "Node") -> str:
    return (node.text or b"").decode()


def word(node: "Node", doubt: Doubt, visit: Callable[["Node"], None]) -> str:
    """The word of this node; substitutions in it are handed to `visit`."""
    text = _word(node, doubt, visit)
    if _INDEX_RUNS.search(text):
        doubt("a word holds a command in an index")
    return text


def _word(node: "Node", doubt: Doubt, visit: Callable[["Node"], None]) -> str:
    text = text_of(node)
    match node.type:
        case "word" | "number" | "variable_name" | "extglob_pattern" | "regex" | "test_operator":
            for child in node.named_children:
                visit(child)
            return ANY if node.named_children else _bare(text, doubt)
        case "raw_string":
            return text[1:-1]
        case "ansi_c_string":
            return text[2:-1] if "\\" not in text else ANY
        case "string":
            return _string(node, doubt, visit)
        case "translated_string":
            return "".join(_word(child, doubt, visit) for child in node.named_children)
        case "concatenation":
            return _concatenation(node, doubt, visit)
        case "command_name":
            return "".join(_word(child, doubt, visit) for child in node.named_children)
        case "simple_expansion":
            return ANY
        case "expansion":
            if not _EXPANSION.fullmatch(text):
                doubt(f"an expansion that may do more than look up: {text[:40]}")
            _nothing_missed(node, doubt)
            for child in node.named_children:
                if child.type not in ("variable_name", "special_variable_name", "subscript"):
                    _word(child, doubt, visit)
            return ANY
        case "arithmetic_expansion":
            calculated(node, doubt, visit)
            return ANY
        case "command_substitution" | "process_substitution":
            visit(node)
            return ANY
        case _:
            doubt(f"a word that can't be read: {text[:40]}")
            for child in node.named_children:
                visit(child)
            return ANY


def calculated(node: "Node", doubt: Doubt, visit: Callable[["Node"], None]) -> None:
    """Arithmetic runs commands in indexes of what its variables hold, so only numbers are clear."""
    if not _NUMBERS.fullmatch(text_of(node).removeprefix("$").strip("[]")):
        doubt("arithmetic with more than numbers")
    _substitutions(node, visit)


def _substitutions(node: "Node", visit: Callable[["Node"], None]) -> None:
    for child in node.named_children:
        if child.type in SUBSTITUTIONS:
            visit(child)
        else:
            _substitutions(child, visit)


def _bare(text: str, doubt: Doubt) -> str:
    """A word without quotes: backslashes taken away, globs as ANY."""
    made: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            made.append(next(characters, ""))
        elif _STRANGE.match(character):
            doubt(f"a word that can't be read: {text[:40]}")
            return ANY
        else:
            made.append(ANY if _GLOB.match(character) else character)
    if _GROUPED.search(re.sub(r"\\.", "", text)) and text != "{}":
        return ANY
    return "".join(made)


def _string(node: "Node", doubt: Doubt, visit: Callable[["Node"], None]) -> str:
    """Text in double quotes.  The tree leaves some white space out, so what lies between is read here."""
    made: list[str] = []
    whole, at = node.text or b"", 1
    if not (len(whole) > 1 and whole.startswith(b'"') and whole.endswith(b'"')):
        doubt("a string without an end")
        whole += b'"'
    for child in node.named_children:
        if child.type == "string_content":
            continue
        start = child.start_byte - node.start_byte
        made += [_quoted(whole[at:start].decode(), doubt), _word(child, doubt, visit)]
        at = child.end_byte - node.start_byte
    made.append(_quoted(whole[at : len(whole) - 1].decode(), doubt))
    return "".join(made)


def _quoted(text: str, doubt: Doubt) -> str:
    if _RUNS.search(text):
        doubt("a string that may hold a command")
    return re.sub(r'\\([\\"$`])', r"\1", text)


def _concatenation(node: "Node", doubt: Doubt, visit: Callable[["Node"], None]) -> str:
    at = node.start_byte
    pieces: list[str] = []
    grouped = False
    for child in node.named_children:
        if child.start_byte != at:
            doubt("a word that can't be read whole")
        at = child.end_byte
        pieces.append(_word(child, doubt, visit))
        grouped = grouped or (child.type == "word" and bool(_GROUPED.search(text_of(child))))
    if at != node.end_byte:
        doubt("a word that can't be read whole")
    return ANY if grouped and text_of(node) != "{}" else "".join(pieces)


def _nothing_missed(node: "Node", doubt: Doubt) -> None:
    """Doubt where text beside the children would run something."""
    if runs_beside(node):
        doubt("an expansion that may hold a command")


def runs_beside(node: "Node") -> bool:
    """Whether text of this node that no substitution or expansion below it covers may run something."""
    left = bytearray(node.text or b"")
    for child in _covering(node):
        start = child.start_byte - node.start_byte
        left[start : child.end_byte - node.start_byte] = b" " * (child.end_byte - child.start_byte)
    inside = left[2:] if node.type == "expansion" else left
    return bool(_RUNS.search(inside.decode()))


def _covering(node: "Node") -> list["Node"]:
    found: list[Node] = []
    for child in node.named_children:
        if child.type in (
            "expansion",
            "simple_expansion",
            "arithmetic_expansion",
            *SUBSTITUTIONS,
        ):
            found.append(child)
        else:
            found += _covering(child)
    return found
