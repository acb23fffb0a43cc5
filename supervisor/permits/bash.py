"""A shell command as its parts: every simple command that it may run, and every file that it writes.

Parsed by tree-sitter with its grammar of bash, which is imported when a rule is judged first (some 8 ms).
The reading is strict: a kind of node that is not named here, a word that the tree and bash may see
differently, a name that is known only when the command runs: each is a doubt, and what is in doubt asks.
What is *not* here: words (words.py), commands that run others (wrappers.py), rules (rules.py).
"""

import re
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from supervisor.permits import words
from supervisor.permits.words import text_of
from supervisor.permits.wrappers import ANY, Inner, Script, Unclear, Words, inner

if TYPE_CHECKING:
    from tree_sitter import Node

LENGTH_MAX = 10_000
"""Characters.  Nobody can judge a longer command, and the parser's time grows with the square of what it
can't make sense of: at this length two seconds at worst."""
DEPTH_MAX = 60
"""Commands within commands, and scripts within scripts: beyond, Python's own stack would end."""

_CONTAINERS = frozenset(
    ("program", "list", "pipeline", "subshell", "if_statement", "elif_clause", "else_clause",
     "while_statement", "do_group", "case_item", "function_definition", "negated_command",
     "redirected_statement", "command_substitution", "process_substitution", "variable_assignments",
     "case_statement", "array")
)  # fmt: skip
_WORDS = frozenset(
    ("word", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation",
     "simple_expansion", "expansion", "arithmetic_expansion", "number", "extglob_pattern", "regex",
     "test_operator")
)  # fmt: skip
_TESTS = frozenset(("unary_expression", "binary_expression", "parenthesized_expression"))
_COUNTING = re.compile(r"\s-(eq|ne|lt|le|gt|ge|v|R)\s")
_RESERVED = frozenset(
    ("!", "[[", "]]", "{", "}", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
     "function", "if", "in", "select", "then", "until", "while")
)  # fmt: skip
_VARIABLE = re.compile(r"[a-z][a-z0-9_]*")
"""Names in small letters belong to the command; others may change what programs do (PATH, LD_PRELOAD)."""
_NOT_SEEN_ALIKE = re.compile(r"[^ \t]\\\n|[\x00-\x08\x0b-\x1f\x7f]")
"""A line that goes on within a word, and control characters."""
_READING = frozenset(("<", "<&", "<&-", ">&-"))


class Command(Struct, frozen=True):
    """A simple command; its first word is its name, and plain."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(_shown(word) for word in self.words)


class Writing(Struct, frozen=True):
    """A redirection that writes this file."""

    target: str


class Parsed(Struct, frozen=True):
    parts: tuple[Command | Writing, ...]
    doubt: str = ""
    """Why there may be more than these parts; empty where there can't."""


def parse(command: str) -> Parsed:
    """The parts of a command."""
    reader = _Reader()
    reader.script(command, 0)
    return Parsed(tuple(reader.parts), reader.why)


def _shown(word: str) -> str:
    """A word as rules see it: one with white space in it stands in quotes, so it can't look like two."""
    if ANY in word:
        return word  # it may be two
    return f"'{word}'" if not word or re.search(r"\s", word) else word


def _line(node: "Node") -> str:
    """The whole line on which this node begins."""
    root = node
    while root.parent is not None:
        root = root.parent
    data, at = root.text or b"", node.start_byte - root.start_byte
    end = data.find(b"\n", at)
    return data[data.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(data)].decode()


class _Reader:
    def __init__(self) -> None:
        self.parts: list[Command | Writing] = []
        self.why = ""

    def doubt(self, why: str) -> None:
        self.why = self.why or why

    def script(self, text: str, depth: int) -> None:
        # Late: only who has rules pays for it.
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        if len(text) > LENGTH_MAX or depth > DEPTH_MAX:
            self.doubt("it is too long or too deep")
            return
        if _NOT_SEEN_ALIKE.search(text) or ANY in text:
            self.doubt("it holds characters, or text made when it runs, that can't be judged")
        try:
            data = text.encode()
        except UnicodeEncodeError:
            self.doubt("it is not UTF-8")
            return
        root = Parser(Language(tree_sitter_bash.language())).parse(data).root_node
        if root.has_error:
            self.doubt("it is no plain bash")
        self.visit(root, depth)

    def visit(self, node: "Node", depth: int) -> None:
        """Read this node and what is below it."""
        depth += 1
        if depth > DEPTH_MAX:
            self.doubt("it is too deep")
            return
        kind = node.type
        if node.is_error or node.is_missing or kind in _CONTAINERS:
            if kind in ("subshell", "command_substitution") and text_of(node).startswith(("((", "$((")):
                self.doubt("two brackets that may be arithmetic or commands")
            self._below(node, depth)
        elif kind in _WORDS:
            self.word(node, depth)
        elif kind == "command":
            self._command(node, depth)
        elif kind in ("variable_assignment", "variable_name", "subscript"):
            self._assigned(node, depth)
        elif kind in ("declaration_command", "unset_command"):
            self._declared(node, depth)
        elif kind in ("test_command", *_TESTS):
            if _COUNTING.search(f" {text_of(node)} "):
                self.doubt("a test that counts or looks at a variable by its name")
            self._below(node, depth)
        elif kind == "file_redirect":
            self._redirected(node, depth)
        elif kind == "heredoc_redirect":
            self._here_document(node, depth)
        elif kind == "herestring_redirect":
            self._below(node, depth)
        else:
            self._rarer(node, depth)

    def _rarer(self, node: "Node", depth: int) -> None:
        match node.type:
            case "comment" | "file_descriptor" | "heredoc_start" | "heredoc_end" | "special_variable_name":
                return
            case "compound_statement":
                if text_of(node).startswith("(("):
                    words.calculated(node, self.doubt, partial(self.visit, depth=depth))
                else:
                    self._below(node, depth)
            case "for_statement":
                self._below(node, depth)
            case other:
                self.doubt(f"there is something in it that is not judged ({other.replace('_', ' ')})")
                self._below(node, depth)

    def _below(self, node: "Node", depth: int) -> None:
        for child in node.named_children:
            self.visit(child, depth)

    def word(self, node: "Node", depth: int) -> str:
        return words.word(node, self.doubt, partial(self.visit, depth=depth))

    def _command(self, node: "Node", depth: int) -> None:
        found: list[str] = []
        for child in node.named_children:
            if child.type == "command_name" or child.type in (*_WORDS, *words.SUBSTITUTIONS):
                found.append(self.word(child, depth))
            elif child.type == "variable_assignment":
                self.doubt(f"it sets {text_of(child).partition('=')[0]} for a command")
                self.visit(child, depth)
            else:
                self.visit(child, depth)
        if found:
            self._simple(tuple(found), depth)

    def _simple(self, found: tuple[str, ...], depth: int) -> None:
        """A command with these words, and what it runs."""
        self.parts.append(Command(found))
        name = found[0]
        if ANY in name or not name or re.search(r"\s", name) or name in _RESERVED:
            self.doubt("the name of a command in it is not plain")
            return
        for one in inner(found):
            self._inner(one, depth + 1)

    def _inner(self, found: Inner, depth: int) -> None:
        if depth > DEPTH_MAX:
            self.doubt("it is too deep")
            return
        match found:
            case Words(inside):
                self._simple(inside, depth)
            case Script(text):
                self.script(text, depth)
            case Unclear(why):
                self.doubt(why)
            case None:
                return
            case _ as never:
                assert_never(never)

    def _assigned(self, node: "Node", depth: int) -> None:
        name = re.split(r"[+\[=]", text_of(node), maxsplit=1)[0]
        if not _VARIABLE.fullmatch(name) or name.endswith("_proxy"):
            self.doubt(f"it sets {name[:40]}, which may change what programs do")
        for child in node.named_children:
            if child.type == "subscript":
                if not re.fullmatch(r"\w+\[\d+\]", text_of(child)):
                    self.doubt("an index that is counted when it runs")
                words.calculated(child, lambda why: None, partial(self.visit, depth=depth))
            elif child.type != "variable_name":
                self.visit(child, depth)

    def _declared(self, node: "Node", depth: int) -> None:
        """`export`, `declare`, `unset` and their like are commands too."""
        first = text_of(node).split(None, 1)[0]
        found = [first]
        for child in node.named_children:
            if child.type in _WORDS:
                found.append(self.word(child, depth))
                # `export "PATH=x"` is no assignment for the tree.
                if not re.fullmatch(r"-[a-zA-Z]+|[a-z][a-z0-9_]*(=.*)?", found[-1], re.DOTALL):
                    self.doubt(f"which variables {first} sets may matter")
            else:
                found.append(text_of(child) if child.type == "variable_name" else ANY)
                self.visit(child, depth)
        self.parts.append(Command(tuple(found)))

    def _redirected(self, node: "Node", depth: int) -> None:
        targets = [self.word(child, depth) for child in node.children_by_field_name("destination")]
        operator = next((child.type for child in node.children if not child.is_named), "")
        if any(child.is_error for child in node.children) or len(targets) > 1:
            self.doubt("words after a redirection that can't be told from its target")
        for child in node.named_children:
            if child.is_error:
                self.visit(child, depth)
        if operator in _READING and operator != "<&":
            return
        for target in targets:
            if target == "/dev/null" or (operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", target)):
                continue
            if operator not in _READING:
                self.parts.append(Writing(target))

    def _here_document(self, node: "Node", depth: int) -> None:
        start = next((text_of(child) for child in node.named_children if child.type == "heredoc_start"), "")
        ends = [_line(child) for child in node.named_children if child.type == "heredoc_end"]
        delimiter = re.sub(r"[\\'\"]", "", start)
        if text_of(node).startswith("<<-"):
            ends = [end.lstrip("\t") for end in ends]
        if not re.fullmatch(r"\w+", delimiter) or ends != [delimiter]:
            self.doubt("a here-document whose end is not plain")
        if _line(node).count("<<") > 1:
            self.doubt("more than one here-document on a line")
        for child in node.named_children:
            if child.type == "heredoc_body":
                if any(line.strip() == delimiter for line in text_of(child).splitlines()):
                    self.doubt("a here-document whose end is not plain")
                if delimiter == start:
                    self._here_text(child, depth)
            elif child.type in _WORDS:
                self.doubt("words after a here-document's beginning")
                self.word(child, depth)
            else:
                self.visit(child, depth)

    def _here_text(self, node: "Node", depth: int) -> None:
        """The text of a here-document in which bash looks for substitutions."""
        if words.runs_beside(node):
            self.doubt("a here-document that may hold a command")
        for child in node.named_children:
            if child.type != "heredoc_content":
                self.visit(child, depth)
