"""Denials of output as other programs and rungs print it, judged without running anything."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.permission import Kind, Permission
from protocol.policy import Mode, Network, Rung, SandboxPolicy
from protocol.wire import Denial
from worker.processes.denials import SHOWN, Failed, denials, line


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    root = tmp_path.resolve()
    for name in ("ws/.git/hooks", "tmp", "out", "else"):
        (root / name).mkdir(parents=True)
    return SandboxPolicy(
        f"{root}/ws", tmp=f"{root}/tmp", output=f"{root}/out", readable=("/usr", "/etc"),
        protected=(f"{root}/ws/.git",),
    )  # fmt: skip


def words(policy: SandboxPolicy, output: str, command: str = "true", rung: Rung = Rung.FULL) -> list[str]:
    found = denials(policy, rung, Failed(command, policy.workspace, output))
    return [str(denial.permission or denial.what) for denial in found]


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        ("fatal: Unable to create '$WS/.git/index.lock': Read-only file system", "git-write"),
        ("error: could not lock config file .git/config: Read-only file system", "git-write"),
        ("bash: line 1: .git/hooks/x: Read-only file system", "git-write"),
        ("touch: cannot touch '/etc/x': Read-only file system", "write:/etc"),
        ("Error: EROFS: read-only file system, open '/etc/hosts'", "write:/etc/hosts"),
        ("open /etc/hosts: read-only file system", "write:/etc/hosts"),
        ("java.io.FileNotFoundException: /etc/hosts (Read-only file system)", "write:/etc/hosts"),
        ("thread 'main' panicked: Os { code: 30 } /etc/hosts (os error 30)", "write:/etc/hosts"),
        ("cat: /home/ada/notes: No such file or directory", "read:/home/ada/notes"),
        ("dial tcp: lookup go.example on 10.0.0.1:53: connection refused", "network:go.example:443"),
        ("ERROR: Could not resolve host: files.example", "network:files.example:443"),
        ("curl: (56) CONNECT tunnel failed, response 403", "network:example.org:443"),
        (
            "curl: (7) Failed to connect to a.example port 80 after 0 ms: Couldn't connect to server",
            "network:a.example:80",
        ),
        ("error: no matching package; you're using offline mode", "network:example.org:443"),
        ("docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "unconfined"),
        ("sudo: The \"no new privileges\" flag is set", "unconfined"),
        ("Failed to connect to bus: No such file or directory", "unconfined"),
        ("Failed to move to new namespace: PID namespaces supported", "unconfined"),
    ],
)  # fmt: skip
def test_what_programs_print_leads_to_what_would_allow_it(
    policy: SandboxPolicy, output: str, wanted: str
) -> None:
    output = output.replace("$WS", policy.workspace)
    assert words(policy, output, "curl https://example.org/x") == [wanted]


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Permission denied",
        "mv: cannot stat 'nothing': No such file or directory",
        "cat: /usr/share/none: No such file or directory",
        "cat: /none: No such file or directory",
        "cat: /tmp/none: No such file or directory",
        "login: Permission denied (publickey)",
        "assert 'Permission denied: /etc/hosts'" + "x" * 3000,
    ],
)
def test_ordinary_errors_are_nobody_s_doing(policy: SandboxPolicy, output: str) -> None:
    assert words(policy, output) == []


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("../beside", "read:$AROUND/beside"),
        ("../gone/kept", "read:$AROUND/gone/kept"),
        ("/home/ada/notes", "read:/home/ada/notes"),
        ("none", ""),
    ],
)
def test_a_link_that_leads_out_is_told_with_where_it_leads(
    policy: SandboxPolicy, target: str, wanted: str
) -> None:
    workspace = Path(policy.workspace)
    (workspace / "link").symlink_to(target)
    found = words(policy, "cat: link: No such file or directory")
    assert found == [wanted.replace("$AROUND", str(workspace.parent))][: bool(wanted)]


def test_what_a_link_that_leads_out_was_to_write_is_told(policy: SandboxPolicy) -> None:
    (Path(policy.workspace) / "link").symlink_to("/home/ada/notes")
    said = "bash: line 1: link: No such file or directory"
    assert words(policy, said, "echo x > link") == ["write:/home/ada"]


def test_of_a_private_tmp_what_the_machine_has_there_is_told(policy: SandboxPolicy) -> None:
    assert words(policy, "cat: /tmp/of-others/x: No such file or directory") == ["read:/tmp/of-others/x"]
    lent = replace(policy, opened=("/tmp/lent",), readable=("/tmp/lent",))
    assert words(lent, "cat: /tmp/lent/none: No such file or directory") == []


def test_what_may_only_be_read_stays_so_below_a_private_place(policy: SandboxPolicy) -> None:
    lent = Path(policy.workspace).parent / "else"
    said = f"bash: line 1: {lent}/x: Read-only file system"
    assert words(replace(policy, readable=(str(lent),)), said, f"echo > {lent}/x") == [f"write:{lent}"]


def test_a_process_of_another_call_is_for_the_jobs_tool(policy: SandboxPolicy) -> None:
    (found,) = words(policy, "bash: line 1: kill: (123) - Operation not permitted")
    assert "`jobs`" in found


def test_the_machine_s_own_address_is_no_network(policy: SandboxPolicy) -> None:
    output = "curl: (7) Failed to connect to localhost port 8080: Connection refused: Couldn't resolve"
    assert words(policy, output) == []
    assert "this machine" in words(policy, output, rung=Rung.LANDLOCK)[0]


def test_under_git_write_its_configuration_is_for_nobody_but_the_user(policy: SandboxPolicy) -> None:
    git = f"{policy.workspace}/.git"
    granted = replace(policy, protected=(f"{git}/config",), pinned=(git,))
    said = f"error: could not lock config file {git}/config: Read-only file system"
    assert words(granted, said) == ["unconfined"]
    assert words(granted, f"bash: line 1: {git}/x: Read-only file system") == []


def test_where_the_network_is_on_or_nothing_is_confined_nothing_is_blamed(policy: SandboxPolicy) -> None:
    said = "curl: (6) Could not resolve host: example.org"
    assert words(replace(policy, network=Network.ON), said) == []
    assert words(policy, said, rung=Rung.OFF) == []
    assert words(replace(policy, mode=Mode.UNCONFINED), said) == []


def test_a_read_only_sandbox_names_the_file_and_itself(policy: SandboxPolicy) -> None:
    said = "bash: line 1: new: Read-only file system"
    (found,) = denials(
        replace(policy, mode=Mode.READ_ONLY), Rung.FULL, Failed("true", policy.workspace, said)
    )
    assert "the sandbox is read-only" in found.what


def test_of_many_denials_a_few_are_named_and_each_once(policy: SandboxPolicy) -> None:
    said = "\n".join(f"rm: cannot remove '/usr/{i % 7}/f': Read-only file system" for i in range(100))
    assert len(words(policy, said)) <= SHOWN
    twice = "touch: cannot touch '/etc/x': Read-only file system\n" * 2
    assert words(policy, twice) == ["write:/etc"]


def test_a_line_for_the_model_has_one_form() -> None:
    denial = Denial("write /x (outside the workspace)", Permission(Kind.WRITE, "/x"))
    assert line(denial) == (
        "[sandbox: blocked write /x (outside the workspace): not an ordinary error, and no way around it; "
        'keep to the workspace, or ask with needs=["write:/x"]]'
    )
    assert line(replace(denial, sure=False)).startswith("[sandbox: probably blocked write /x")
    assert line(Denial("a signal", None)) == "[sandbox: blocked a signal]"
