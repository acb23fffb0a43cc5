"""From a policy to mounts, as whole values."""

from collections.abc import Callable

import pytest

from protocol.policy import OUTPUT_MOUNT, Mode, SandboxPolicy
from worker.sandbox.plan import (
    RUN_BYTES,
    TMP_BYTES,
    Bind,
    Devices,
    Empty,
    Found,
    Link,
    Overlay,
    Pin,
    Proc,
    Step,
    Tmpfs,
    plan,
)

POLICY = SandboxPolicy("/w", readable=("/usr",), tmp="/s/tmp", output="/s/output")


def standing(**files: str) -> Callable[[str], Found | None]:
    """Everything is a directory but these: `file`s, and what is `gone`."""

    def look(path: str) -> Found | None:
        if path in files.get("gone", "").split():
            return None
        return Found.FILE if path in files.get("file", "").split() else Found.DIRECTORY

    return look


def made(policy: SandboxPolicy, **files: str) -> dict[str, Step]:
    return {step.target: step for step in plan(policy, standing(**files))}


def with_(**fields: object) -> SandboxPolicy:
    all_fields = {name: getattr(POLICY, name) for name in POLICY.__struct_fields__}
    return SandboxPolicy(**(all_fields | fields))


def test_a_plan_is_what_the_policy_names_and_what_every_program_needs() -> None:
    assert plan(POLICY, standing(), [Link("/bin", "usr/bin")]) == (
        Link("/bin", "usr/bin"),
        Devices(),
        Proc(),
        Tmpfs("/run", RUN_BYTES),
        Bind("/s/tmp", "/tmp", True, needed=True),
        Bind("/usr", "/usr"),
        Bind("/w", "/w", True, needed=True),
        Bind("/s/output", "/s/output"),
        Bind("/s/tmp", "/s/tmp", True, needed=True),
        Bind("/s/tmp", "/var/tmp", True, needed=True),
        Bind("/s/output", OUTPUT_MOUNT),
    )


def test_a_read_only_policy_leaves_only_the_private_directory_writable() -> None:
    steps = made(with_(mode=Mode.READ_ONLY, writable=("/cache",)))
    assert steps["/w"] == Bind("/w", "/w", False, needed=True)
    assert steps["/cache"] == Bind("/cache", "/cache", False)
    assert steps["/s/tmp"] == Bind("/s/tmp", "/s/tmp", True, needed=True)


def test_what_is_protected_is_pinned_where_it_could_be_written_and_only_if_it_is_there() -> None:
    policy = with_(protected=("/w/.git", "/w/.idea", "/usr/x"), pinned=("/w/.git", "/w/sub"))
    steps = plan(policy, standing(gone="/w/.idea"))
    assert [step for step in steps if isinstance(step, Pin)] == [Pin("/w/sub", True), Pin("/w/.git", False)]


def test_what_is_hidden_is_masked_by_its_kind_where_it_could_be_seen() -> None:
    policy = with_(hidden=("/w/.env", "/usr/secret", "/home/u/.ssh", "/w/gone"))
    steps = plan(policy, standing(file="/w/.env", gone="/w/gone"))
    assert [step for step in steps if isinstance(step, Empty)] == [
        Empty("/usr/secret", directory=True),
        Empty("/w/.env", directory=False),
    ]


def test_the_state_is_hidden_but_for_what_is_the_worker_s_own() -> None:
    policy = with_(readable=("/usr", "/s"), hidden=("/s",))
    assert "/s" not in made(policy)
    policy = with_(readable=("/home",), hidden=("/home/s",), tmp="/home/s/tmp", output="/home/s/out")
    steps = made(policy)
    order = list(steps)
    assert steps["/home/s"] == Empty("/home/s", directory=True)
    assert order.index("/home") < order.index("/home/s") < order.index("/home/s/tmp")


def test_a_readable_place_takes_no_rights_away_and_is_not_shown_twice() -> None:
    steps = made(with_(readable=("/usr", "/usr/bin", "/w/.venv/bin", "/proc", "/dev/x")))
    assert not {"/usr/bin", "/dev/x"} & steps.keys()
    assert steps["/proc"] == Proc()
    assert "/w/.venv/bin" not in steps


def test_a_grant_to_read_reaches_below_what_is_hidden() -> None:
    steps = made(with_(readable=("/usr", "/home"), hidden=("/home/u",), opened=("/home/u/notes",)))
    assert steps["/home/u"] == Empty("/home/u", directory=True)
    assert steps["/home/u/notes"] == Bind("/home/u/notes", "/home/u/notes")


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
def test_a_workspace_that_is_the_temporary_directory_stays_itself(place: str) -> None:
    steps = made(with_(workspace=place))
    assert steps[place] == Bind(place, place, True, needed=True)


def test_the_way_to_a_workspace_below_tmp_is_closed() -> None:
    steps = made(with_(workspace="/tmp/a/b/w"))
    assert steps["/tmp/a"] == Empty("/tmp/a", directory=True)
    assert steps["/tmp/a/b/w"] == Bind("/tmp/a/b/w", "/tmp/a/b/w", True, needed=True)
    assert "/tmp/a/b" not in steps


def test_nothing_that_is_masked_can_be_seen_at_a_second_place() -> None:
    steps = made(with_(workspace="/s/tmp/w", hidden=("/s/tmp/w/.env",)), file="/s/tmp/w/.env")
    assert steps["/s/tmp/w/.env"] == Empty("/s/tmp/w/.env", directory=False)
    assert steps["/tmp"] == Tmpfs("/tmp", TMP_BYTES)


def test_sockets_of_the_machine_are_masked_but_for_the_worker_s_own() -> None:
    sockets = ["/usr/agent.sock", "/run/docker.sock", "/s/tmp/own.sock"]
    steps = plan(POLICY, standing(file=" ".join(sockets)), sockets=sockets)
    assert [step for step in steps if isinstance(step, Empty)] == [Empty("/usr/agent.sock", directory=False)]


def test_a_layer_lies_over_the_workspace_and_what_is_protected_over_the_layer() -> None:
    steps = plan(with_(layer="/s/layer", protected=("/w/.git",)), standing())
    assert Overlay("/w", "/s/layer/upper", "/s/layer/work", "/w") in steps
    assert Pin("/w/.git", False) in steps


def test_the_directories_that_lead_to_a_closed_place_can_t_be_moved() -> None:
    found = made(with_(protected=("/w/a/b/.git",), hidden=("/w/c/.env", "/usr/lib/key"), writable=("/x",)))
    assert [step for step in found.values() if isinstance(step, Pin)] == [
        Pin("/w/a", True),
        Pin("/w/c", True),
        Pin("/w/a/b", True),
        Pin("/w/a/b/.git", False),
    ]


def test_the_machine_s_own_proc_and_devices_are_shown_by_no_policy() -> None:
    assert made(with_(writable=("/", "/proc", "/dev", "/sys/kernel"))) == made(POLICY)
