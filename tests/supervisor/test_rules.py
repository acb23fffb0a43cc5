"""Rules: what they say of each command, judged part by part, and of each path."""

import os.path
import time

import pytest

from protocol.tools.catalog import decode
from protocol.tools.fetch import Fetch
from protocol.tools.read_file import ReadFile
from protocol.tools.run_command import RunCommand
from supervisor.choices.tables import RulesChoices
from supervisor.permits.judgement import Judgement, Verdict
from supervisor.permits.rules import Where, judge

ALLOW, ASK, DENY, NONE = Verdict.ALLOW, Verdict.ASK, Verdict.DENY, Verdict.NONE
WHERE = Where(workspace="/w", home="/home/u")
RULES = RulesChoices(
    allow=("run_command git status", "run_command ls", "run_command echo", "run_command cat"),
    deny=("run_command rm",),
)
WRAPPED = RulesChoices(
    allow=(
        *RULES.allow,
        *(
            f"run_command {name}"
            for name in ("env", "sudo", "xargs", "timeout", "sh", "bash", "eval", "find")
        ),
        *(f"run_command {name}" for name in ("command", "exec", "nohup", "time", "trap", "nice", "printf")),
    ),
    deny=RULES.deny,
)


def verdict(command: str, rules: RulesChoices = RULES, otherwise: Verdict = ASK) -> Verdict:
    return judge(rules, "run_command", RunCommand(command=command), WHERE, otherwise).verdict


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("git status", ALLOW),
        ("ls -la", ALLOW),
        ("git status && rm -r x", DENY),
        ("ls; rm x", DENY),
        ("ls | sh", ASK),
        ("ls || curl http://example.invalid", ASK),
        ("lsof", ASK),
        ("git statusx", ASK),
        ('echo "a && b"', ALLOW),
        ("echo 'rm x'", ALLOW),
        ("echo $(rm x)", DENY),
        ("echo `rm x`", DENY),
        ("cat a > b", ASK),
        ("ls & rm x", DENY),
        # parts, wherever they stand
        ("git status --short", ALLOW),
        ("git  status", ALLOW),
        ("ls\nrm x", DENY),
        ("ls\necho a", ALLOW),
        ('echo "a $(rm x) b"', DENY),
        ('echo "a `rm x` b"', DENY),
        ("echo ${x:-$(rm y)}", DENY),
        ("echo \"${x:-'$(rm y)'}\"", ASK),
        ("diff <(rm a) b", DENY),
        ("cat < <(rm a)", DENY),
        ("(ls; rm x)", DENY),
        ("{ ls; rm x; }", DENY),
        ("f() { rm x; }; f", DENY),
        ("ls() { curl x; }; ls", ASK),
        ("if ls; then rm x; fi", DENY),
        ("if ls; then echo a; else cat b; fi", ALLOW),
        ("for i in $(rm a); do ls; done", DENY),
        ("for i in a b; do ls $i; done", ALLOW),
        ("while ls; do rm x; done", DENY),
        ("case x in a) rm y;; esac", DENY),
        ("case $(rm x) in a) ls;; esac", DENY),
        ("! rm x", DENY),
        ("time rm x", DENY),
        ("x=$(rm y)", DENY),
        ("x=$(ls); echo $x", ALLOW),
        ("a=(1 $(rm x))", DENY),
        ("[[ -n $(rm x) ]]", DENY),
        ("echo $((1 + $(rm x)))", DENY),
        ("for ((i=$(rm x);i<3;i++)); do ls; done", DENY),
        ("ls # rm x", ALLOW),
        ("ls |& cat", ALLOW),
        # here-documents
        ("cat <<EOF\n$(rm x)\nEOF", DENY),
        ("cat <<'EOF'\n$(rm x) `rm y`\nEOF", ALLOW),
        ("cat <<EOF\n`rm x`\nEOF", ASK),
        ("cat <<EOF\nplain $x\nEOF", ALLOW),
        ("cat <<EOF | sh\nx\nEOF", ASK),
        ("cat <<EOF\nx\nEOF\nrm y", DENY),
        ('cat <<< "$(rm x)"', DENY),
        ("cat <<-E\n\ta $(ls)\n\tE\necho a", ALLOW),
        ("cat <<-E\n\t$(ls)\n\tE\necho a", ASK),
        ("cat <<-E\na\n\t E\necho '$(rm x)'", ASK),
        ("cat <<E\na\nE \necho '$(rm x)'", ASK),
        ("cat <<E\n$(( echo '$(rm x)' ))\nE", ASK),
        ("((ls); ls)", ASK),
        ("cat <<E | cat <<'E'\necho '$(rm x)'\nE\nls\na\nE", ASK),
        ("cat <<E | ls\na\nE | echo '$(rm x)'", ASK),
        ("cat <<'E'\nE x\nE\nls", ASK),
        # redirections
        ("ls > /dev/null 2>&1", ALLOW),
        ("ls &> /dev/null", ALLOW),
        ("cat < a", ALLOW),
        ("ls >> a", ASK),
        ("ls 2> a", ASK),
        ("> a", ASK),
        ("> /dev/null rm x", DENY),
        ("ls > /dev/null rm x", ASK),
        ("ls > $x", ASK),
        # names
        ('"rm" x', DENY),
        ("r'm' x", DENY),
        ("\\rm x", DENY),
        ("r\\\nm x", ASK),
        ("/bin/rm x", DENY),
        ("../../bin/rm x", DENY),
        ("/tmp/ls", ASK),
        ("./ls", ASK),
        ("$x a", ASK),
        ("r* x", ASK),
        ("r?m x", ASK),
        ("{r,}m x", ASK),
        ("{r,}m\nls", ASK),
        ("$'\\x72m' x", ASK),
        ("$(echo rm) x", ASK),
        ("'ls -la'", ASK),
        # assignments
        ("LD_PRELOAD=x ls", ASK),
        ("a=b ls", ASK),
        ("PATH=/tmp; ls", ASK),
        ("export PATH=/tmp; ls", ASK),
        ("for PATH in /tmp; do ls; done", ASK),
        # words that bash counts or looks up
        ("x='a[$(rm x)]'; echo $((x))", ASK),
        ("echo ${x@P}", ASK),
        ("echo ${!x}", ASK),
        ("echo ${x} ${#x} ${x%.c} ${x/a/b} $? $1", ALLOW),
        ("echo $((6 * 7))", ALLOW),
        ("git $x", ASK),
        ("echo *.py {a,b}", ALLOW),
        # what is no bash
        ("echo 'a", ASK),
        ("ls (", ASK),
        ("ls \x1b", ASK),
        ("", ASK),
        ("# nothing", ASK),
    ],
)
def test_a_command_is_allowed_part_by_part(command: str, wanted: Verdict) -> None:
    assert verdict(command) is wanted


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("env rm x", DENY),
        ("env -i ls", ALLOW),
        ("env -u X -- rm x", DENY),
        ("env A=b ls", ASK),
        ("env -S 'rm x'", ASK),
        ("sudo -u root rm x", DENY),
        ("sudo -n ls", ALLOW),
        ("sudo -Z ls", ASK),
        ("ls | xargs rm", DENY),
        ("ls | xargs -0 -n 1 cat", ALLOW),
        ("ls | xargs sh -c", ASK),
        ("ls | xargs $x", ASK),
        ("timeout 5 rm x", DENY),
        ("timeout -s KILL 5 ls", ALLOW),
        ("timeout -k 1 5 env nice -n 5 rm x", DENY),
        ("sh -c 'ls; rm x'", DENY),
        ("sh -c 'ls; cat b'", ALLOW),
        ("bash -lc 'rm x'", DENY),
        ('bash -c "$x"', ASK),
        ("bash -c 'ls' rm x", ALLOW),
        ("bash $x", ASK),
        ("sh file", ALLOW),
        ("eval rm x", DENY),
        ("eval 'ls; rm x'", DENY),
        ("eval $x", ASK),
        ("command rm x", DENY),
        ("command -v rm", ALLOW),
        ("exec rm x", DENY),
        ("exec 3> a", ASK),
        ("nohup rm x &", DENY),
        ("trap 'rm x' EXIT", DENY),
        ("trap - EXIT", ALLOW),
        ("find . -name '*.py' -exec rm {} \\;", DENY),
        ("find . -exec cat {} +", ALLOW),
        ("find . -exec {} \\;", ASK),
        ("printf -v PATH /tmp; ls", ASK),
        ("printf '%s' a", ALLOW),
        ('sh -c "sh -c \'sh -c \\"rm x\\"\'"', DENY),
    ],
)
def test_a_command_within_a_command_counts_too(command: str, wanted: Verdict) -> None:
    assert verdict(command, WRAPPED) is wanted


@pytest.mark.parametrize(
    "name", ["alias ls=rm", "parallel rm", "su -c ls", "coproc ls", "hash -p /bin/rm ls"]
)
def test_what_runs_others_in_ways_that_are_not_read_asks(name: str) -> None:
    every = RulesChoices(allow=(f"run_command {name.partition(' ')[0]}", *RULES.allow), deny=RULES.deny)
    assert verdict(name, every) is ASK


@pytest.mark.parametrize(
    ("pattern", "command", "wanted"),
    [
        ("git push*", "git push --force", DENY),
        ("git push*", "git pushx", DENY),
        ("git push", "git pushx", NONE),
        ("git push", "git $x", ASK),
        ("git push", "git $x push", ASK),
        ("git push", "git {push,}", ASK),
        ("git push", "git pu$x", ASK),
        ("git push", "git pull $x", NONE),
        ("git push", "git 'push now'", NONE),
        ("git * --force", "git push --force", DENY),
        ("git * --force", "git push $x", ASK),
        ("*secret*", "cat my-secret.txt", DENY),
        ("?at", "cat a", DENY),
        ("a.b", "axb", NONE),
        ("rm", "LD_PRELOAD=x ls", ASK),
        ("rm", "make > log", NONE),
        ("rm", "make", NONE),
    ],
)
def test_a_rule_that_denies_is_not_dodged_by_what_is_known_only_later(
    pattern: str, command: str, wanted: Verdict
) -> None:
    assert verdict(command, RulesChoices(deny=(f"run_command {pattern}",)), NONE) is wanted


def test_deny_beats_ask_beats_allow() -> None:
    rules = RulesChoices(
        allow=("run_command git",), ask=("run_command git push",), deny=("run_command git push --force",)
    )
    assert verdict("git log", rules) is ALLOW
    assert verdict("git push", rules) is ASK
    assert verdict("git log && git push --force", rules) is DENY
    assert verdict("git push; git push --force", rules) is DENY


def test_a_rule_without_a_pattern_is_about_every_call() -> None:
    assert verdict("LD_PRELOAD=x ls > a", RulesChoices(allow=("run_command",))) is ALLOW
    assert verdict("ls", RulesChoices(ask=("run_command",), allow=("run_command ls",)), NONE) is ASK
    assert verdict("ls", RulesChoices(deny=("run_command",))) is DENY


def test_without_a_rule_the_sandbox_alone_decides() -> None:
    assert verdict("LD_PRELOAD=x r* > a", RulesChoices(), NONE) is NONE
    assert verdict("ls", RulesChoices(deny=("read_file .env",)), NONE) is NONE
    assert verdict("A=b make", RulesChoices(allow=("run_command ls",)), NONE) is NONE


def test_a_judgement_names_the_rule_and_the_part_that_it_met() -> None:
    found = judge(RULES, "run_command", RunCommand(command="ls && rm -r $x"), WHERE, ASK)
    assert found == Judgement(DENY, "run_command rm", "rm -r …")
    found = judge(RULES, "run_command", RunCommand(command="ls > a"), WHERE, ASK)
    assert found == Judgement(ASK, "", "no rule names a redirection: > a")
    found = judge(RULES, "run_command", RunCommand(command="a=b ls"), WHERE, ASK)
    assert found == Judgement(ASK, "", "it can't be judged: it sets a for a command", doubt=True)


@pytest.mark.parametrize(
    ("pattern", "path", "wanted"),
    [
        ("src/**", "src/a/b.py", DENY),
        ("src", "src/a/b.py", DENY),
        ("src/", "src/a", DENY),
        ("src/**", "./src/../src/a", DENY),
        ("src/**", "/w/src/a", DENY),
        ("src/**", "x/src/a", NONE),
        ("/w/src", "src/a", DENY),
        ("./src/*.py", "src/a.py", DENY),
        ("src/*.py", "src/a/b.py", NONE),
        ("src/**/*.py", "src/a/b/c.py", DENY),
        ("src/**/*.py", "src/c.py", DENY),
        ("*.env", "a/b/x.env", DENY),
        (".env", ".env", DENY),
        (".env", ".env.example", NONE),
        ("*.env", "x.environ", NONE),
        ("*.env", "/etc/x.env", DENY),
        ("~/.ssh", "/home/u/.ssh/id", DENY),
        ("~/.ssh", "~/.ssh/id", DENY),
        ("/etc/**", "../etc/passwd", DENY),
        ("a?c", "abc", DENY),
        ("a[b-c]d", "acd", DENY),
        ("a[!b]d", "abd", NONE),
        ("a.c", "abc", NONE),
    ],
)
def test_a_path_is_judged_as_git_would_ignore_it(pattern: str, path: str, wanted: Verdict) -> None:
    rules = RulesChoices(deny=(f"read_file {pattern}",))
    arguments = decode("read_file", f'{{"path": "{path}"}}')
    assert judge(rules, "read_file", arguments, WHERE).verdict is wanted
    assert judge(rules, "search", decode("search", '{"pattern": "x"}'), WHERE).verdict is NONE


def test_neither_the_name_nor_the_target_of_a_link_gets_around_a_rule() -> None:
    links = {"/w/open": "/w/secret", "/w/open/x": "/w/secret/x"}
    where = Where(workspace="/w", home="/home/u", real=lambda path: links.get(path, path))
    read = decode("read_file", '{"path": "open/x"}')
    for rule in ("secret", "open"):
        assert judge(RulesChoices(deny=(f"read_file {rule}",)), "read_file", read, where).verdict is DENY
        assert judge(RulesChoices(allow=(f"read_file {rule}",)), "read_file", read, where).verdict is NONE
    both = RulesChoices(allow=("read_file *",))
    assert judge(both, "read_file", read, where).verdict is ALLOW


@pytest.mark.parametrize("path", ["a\0b", "a" * 100_000, "a/" * 50_000])
def test_what_can_be_no_path_is_judged_too(path: str) -> None:
    where = Where("/w", "/home/u", real=os.path.realpath)
    rules = RulesChoices(deny=("read_file *.pem", "read_file a*"))
    assert judge(rules, "read_file", ReadFile(path=path), where).verdict is DENY


@pytest.mark.parametrize(
    "command",
    [
        "git " + " -c " * 2400,
        "a" * 9999,
        "a;" * 4999,
        "a|" * 4999,
        "<<a\na\n" * 1600,
        "$x" + "a" * 9000,
        "a" * 10**7,
    ],
)
def test_no_command_takes_the_rules_long(command: str) -> None:
    """A model writes commands, and a stranger's project may name rules."""
    stars = ("run_command " + "*a" * 240, "run_command git * -c * -c * push", "run_command " + "x" * 480)
    began = time.process_time()
    verdict(command, RulesChoices(deny=stars, ask=stars, allow=stars))
    assert time.process_time() - began < 10  # some 2 s for the worst of them; for ever once


def test_a_redirection_is_met_by_rules_for_the_tools_that_write() -> None:
    rules = RulesChoices(deny=("write_file src/**",), ask=("edit_file docs/**",), allow=("run_command echo",))
    assert verdict("echo a > src/b", rules, NONE) is DENY
    assert verdict("echo a | tee b >> docs/b", rules, NONE) is ASK
    assert verdict("echo a > $x", rules, NONE) is ASK
    assert verdict("echo a > out", rules, NONE) is NONE
    below = Where(workspace="/w", home="/home/u", cwd="/w/src")
    command = RunCommand(command="echo a > b")
    assert judge(rules, "run_command", command, below).verdict is DENY


def test_jobs_are_judged_by_their_action_and_id() -> None:
    rules = RulesChoices(deny=("jobs stop j1",), ask=("jobs input",))
    for arguments, wanted in (("stop j1", DENY), ("stop j2", NONE), ("input j1", ASK), ("list", NONE)):
        action, _, job = arguments.partition(" ")
        decoded = decode("jobs", f'{{"action": "{action}", "id": "{job}"}}')
        assert judge(rules, "jobs", decoded, WHERE).verdict is wanted


@pytest.mark.parametrize(
    ("pattern", "url", "wanted"),
    [
        ("example.org", "https://Example.org/a", DENY),
        ("example.org", "http://example.org:8080", DENY),
        ("example.org:443", "https://example.org/", DENY),
        ("example.org:443", "http://example.org/", NONE),
        ("*.example.org", "https://a.example.org/", DENY),
        ("*.example.org", "https://example.org/", NONE),
        ("example.org", "https://example.org.evil.invalid/", NONE),
        ("example.org", "https://evil.invalid/?example.org", NONE),
        ("https://example.org/docs", "https://example.org/docs/a?b", DENY),
        ("https://example.org/docs", "https://example.org/docs?a", DENY),
        ("https://example.org/docs", "https://example.org/docsx", NONE),
        ("https://example.org/", "https://example.org", DENY),
        ("*://*/*.exe", "http://a.invalid/b/c.exe", DENY),
        ("*", "no url", NONE),
        ("", "no url", DENY),
    ],
)
def test_a_page_is_judged_by_its_host_or_its_address(pattern: str, url: str, wanted: Verdict) -> None:
    rules = RulesChoices(deny=(f"fetch {pattern}".rstrip(),))
    assert judge(rules, "fetch", decode("fetch", f'{{"url": "{url}"}}'), WHERE).verdict is wanted


@pytest.mark.parametrize(
    "path",
    [
        "private/x",
        "%70rivate/x",
        "%50%52x/../private",
        "./private",
        "a/%2e%2E/private",
        "//private?q",
        "x/..//private",
    ],
)
def test_no_spelling_of_an_address_gets_around_a_rule(path: str) -> None:
    rules = RulesChoices(deny=("fetch https://site.example/private",))
    arguments = Fetch(url=f"https://site.example/{path}")
    assert judge(rules, "fetch", arguments, WHERE).verdict is DENY
