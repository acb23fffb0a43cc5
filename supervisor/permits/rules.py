"""What the rules of the settings say of a call: deny beats ask beats allow.

    TOOL             every call of the tool
    TOOL PATTERN     run_command: the beginning of a part's words, `*` and `?` as wildcards;
                     file tools: a path as in .gitignore, relative to the workspace, or from / or ~/;
                     fetch: HOST, HOST:PORT or the beginning of a URL, `*` and `?` as wildcards;
                     jobs: the beginning of its action and id

A command is allowed where each of its parts is, and denied where one of them is.  Pure but for
`Where.real`.  What is *not* here: parts of a command (bash.py), which patterns there are (settings).
"""

import os.path
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import assert_never

from msgspec import Struct

from protocol.tools.catalog import Arguments
from protocol.tools.edit_file import EditFile
from protocol.tools.fetch import Fetch, Url, UrlError
from protocol.tools.fetch import parse as parse_url
from protocol.tools.jobs import Jobs
from protocol.tools.list_files import ListFiles
from protocol.tools.read_file import ReadFile
from protocol.tools.run_command import RunCommand
from protocol.tools.search import Search
from protocol.tools.write_file import WriteFile
from supervisor.choices.tables import RulesChoices
from supervisor.permits.bash import Command, Parsed, Writing, parse
from supervisor.permits.globs import path_matches, text_matches, text_may_match, url_matches
from supervisor.permits.judgement import Judgement, Verdict
from supervisor.permits.wanted import LONGEST
from supervisor.permits.wrappers import ANY

WRITING_TOOLS = ("write_file", "edit_file")
"""Their rules that deny or ask hold for redirections too."""


class Where(Struct, frozen=True):
    """What paths are read against.  `real`: where a path leads once its links are followed; both the path and
    that place are judged, so that neither `..` nor a link gets around a rule."""

    workspace: str
    home: str
    cwd: str = ""
    """Of commands; empty: the workspace."""
    real: Callable[[str], str] = os.path.normpath


Patterns = tuple[tuple[str, str], ...]
"""The rules of one list for one tool: each pattern with its rule."""


def judge(
    rules: RulesChoices, tool: str, arguments: Arguments, where: Where, otherwise: Verdict = Verdict.NONE
) -> Judgement:
    """What the rules say of this call.  `otherwise`: the verdict on what no rule names."""
    if isinstance(arguments, RunCommand):
        return _command(rules, arguments.command, where, otherwise)
    matches = _matching(arguments, where)
    for verdict, listed, enough in (
        (Verdict.DENY, rules.deny, any),
        (Verdict.ASK, rules.ask, any),
        (Verdict.ALLOW, rules.allow, all),
    ):
        for pattern, rule in _of(tool, listed):
            if not pattern or enough(matches(pattern)):
                return Judgement(verdict, rule)
    return Judgement(otherwise)


def _of(tool: str, rules: Sequence[str]) -> Patterns:
    split = [(*rule.partition(" "), rule) for rule in rules]
    return tuple((pattern, rule) for name, _, pattern, rule in split if name == tool)


def _matching(arguments: Arguments, where: Where) -> Callable[[str], Iterator[bool]]:
    """For a pattern, whether it matches each name of what the call is about."""
    match arguments:
        case ReadFile() | WriteFile() | EditFile() | ListFiles() | Search():
            paths = _names(arguments.path, where.workspace, where)
            return lambda pattern: (
                path_matches(pattern, path, where.workspace, where.home) for path in paths
            )
        case Jobs():
            text = f"{arguments.action} {arguments.id}" if arguments.id else arguments.action
            return lambda pattern: iter((text_matches(pattern, text),))
        case Fetch():
            url = _url(arguments)
            return lambda pattern: iter((url is not None and _names_url(pattern, url),))
        case RunCommand():
            raise AssertionError("commands are judged by their parts")
        case _ as never:
            assert_never(never)


def _url(arguments: Fetch) -> Url | None:
    """None for what is no URL, which the tool refuses by itself."""
    try:
        return parse_url(arguments.url)
    except UrlError:
        return None


def _names_url(pattern: str, url: Url) -> bool:
    if "://" in pattern:
        return url_matches(pattern, re.sub(r"(?<!:)//+", "/", str(url)))
    host = pattern.lower()
    return text_matches(host, url.permission.target) or text_matches(host, url.host)


def _names(path: str, base: str, where: Where) -> list[str]:
    """The path as it is written and where it leads, both absolute.  What can be no path is nowhere else."""
    if path == "~" or path.startswith("~/"):
        path = where.home + path[1:]
    whole = str(Path(base, path))
    lexical = os.path.normpath(whole)
    if "\0" in whole or len(whole) > LONGEST:
        return [lexical]
    # A `..` after a link leads elsewhere than its text says.
    return list(dict.fromkeys((lexical, where.real(lexical), where.real(whole))))


def _command(rules: RulesChoices, command: str, where: Where, otherwise: Verdict) -> Judgement:
    deny, ask, allow = (_of("run_command", each) for each in (rules.deny, rules.ask, rules.allow))
    guarding = any(rule.partition(" ")[0] in WRITING_TOOLS for rule in (*rules.deny, *rules.ask))
    if not (deny or ask or allow or guarding):
        return Judgement(otherwise)
    for verdict, patterns in ((Verdict.DENY, deny), (Verdict.ASK, ask)):
        if whole := _rule_for_all(patterns):
            return Judgement(verdict, whole)
    parsed = parse(command)
    return (
        _first(parsed, deny, Verdict.DENY, text_matches)
        or _written(parsed, rules.deny, Verdict.DENY, where)
        or _first(parsed, ask, Verdict.ASK, text_matches)
        or _written(parsed, rules.ask, Verdict.ASK, where)
        or _perhaps(parsed, deny, ask, guarding)
        or _allowed(parsed, allow, otherwise)
    )


def _rule_for_all(patterns: Patterns) -> str:
    return next((rule for pattern, rule in patterns if not pattern), "")


def _first(
    parsed: Parsed, patterns: Patterns, verdict: Verdict, matches: Callable[[str, str], bool]
) -> Judgement | None:
    """The verdict, if a rule matches a part."""
    for part in parsed.parts:
        if isinstance(part, Command):
            for text in _spellings(part):
                for pattern, rule in patterns:
                    if matches(pattern, text):
                        return Judgement(verdict, rule, _shown(str(part)))
    return None


def _spellings(part: Command) -> Iterator[str]:
    """The command as it is written, and with its program by name alone: /bin/rm is rm."""
    yield str(part)
    name = part.words[0].rpartition("/")[2]
    if name != part.words[0]:
        yield str(Command((name, *part.words[1:])))


def _written(parsed: Parsed, rules: Sequence[str], verdict: Verdict, where: Where) -> Judgement | None:
    """The verdict, if a redirection writes what a rule for the writing tools names."""
    for part in parsed.parts:
        if isinstance(part, Writing) and ANY not in part.target:
            paths = _names(part.target, where.cwd or where.workspace, where)
            for pattern, rule in (each for tool in WRITING_TOOLS for each in _of(tool, rules)):
                if not pattern or any(
                    path_matches(pattern, path, where.workspace, where.home) for path in paths
                ):
                    return Judgement(verdict, rule, _shown(f"> {part.target}"))
    return None


def _perhaps(parsed: Parsed, deny: Patterns, ask: Patterns, guarding: bool) -> Judgement | None:
    """To ask, where something may match a rule that denies or asks."""
    if not (deny or ask or guarding):
        return None
    if parsed.doubt:
        return Judgement(Verdict.ASK, "", f"it can't be judged: {_shown(parsed.doubt)}", doubt=True)
    for listed in (deny, ask):
        if found := _first(parsed, listed, Verdict.ASK, text_may_match):
            return Judgement(Verdict.ASK, found.rule, f"it may be met by {found.why}", doubt=True)
    if guarding and any(isinstance(part, Writing) and ANY in part.target for part in parsed.parts):
        return Judgement(Verdict.ASK, "", "which file it writes is known only when it runs", doubt=True)
    return None


def _allowed(parsed: Parsed, allow: Patterns, otherwise: Verdict) -> Judgement:
    if whole := _rule_for_all(allow):
        return Judgement(Verdict.ALLOW, whole)
    if parsed.doubt:
        return Judgement(otherwise, "", f"it can't be judged: {_shown(parsed.doubt)}")
    used = ""
    for part in parsed.parts:
        if isinstance(part, Writing):
            return Judgement(otherwise, "", f"no rule names a redirection: {_shown(f'> {part.target}')}")
        used = next((rule for pattern, rule in allow if text_matches(pattern, str(part))), "")
        if not used:
            return Judgement(otherwise, "", f"no rule names: {_shown(str(part))}")
    return Judgement(Verdict.ALLOW, used) if used else Judgement(otherwise)


def _shown(text: str) -> str:
    text = re.sub(f"{ANY}+", "…", text)
    return text if len(text) <= 200 else text[:200] + "…"
