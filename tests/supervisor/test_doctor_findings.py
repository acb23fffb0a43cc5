"""What the doctor makes of what it finds: a verdict for every rung, and words that can be printed."""

import json

import msgspec
import pytest

from protocol.policy import Limits, Means, Mode, Network, Rung
from protocol.wire import Probe, Ready
from supervisor.doctor.findings import Findings, Verdict, dangers
from supervisor.doctor.report import as_json, lines

FULL = Findings(
    Ready(Rung.FULL, means=Means.NATIVE, probes=(Probe("native", True, "namespaces of its own"),)),
    Mode.WORKSPACE_WRITE,
    Network.OFF,
    Rung.OFF,
    Limits(),
    "",
    (),
    "/home/u/.local/state/polier",
    "/home/u/.config/polier/settings.toml",
    "1.0",
    "6.18",
)


def changed(**changes: object) -> Findings:
    return msgspec.structs.replace(FULL, **changes)


def verdicts(findings: Findings) -> dict[str, Verdict]:
    return {one.what: one.verdict for one in dangers(findings)}


def verdict_about(findings: Findings, words: str) -> Verdict:
    [found] = [verdict for what, verdict in verdicts(findings).items() if words in what]
    return found


LANDLOCK = changed(ready=Ready(Rung.LANDLOCK))
OFF = changed(ready=Ready(Rung.OFF, refuse_commands="This kernel offers no Landlock."))


def test_every_rung_speaks_about_the_same_dangers() -> None:
    assert list(verdicts(FULL)) == list(verdicts(LANDLOCK)) == list(verdicts(OFF))
    assert set(verdicts(FULL).values()) == {Verdict.STOPPED}
    assert set(verdicts(OFF).values()) == {Verdict.OPEN}
    assert set(verdicts(LANDLOCK).values()) == set(Verdict)


@pytest.mark.parametrize("ready", [Ready(Rung.FULL, means=Means.NATIVE), Ready(Rung.LANDLOCK)])
def test_a_network_that_is_on_is_not_stopped_on_any_rung(ready: Ready) -> None:
    on = changed(ready=ready, network=Network.ON)
    assert verdict_about(on, "to the network") is verdict_about(on, "servers and agents") is Verdict.OPEN


def test_a_list_of_hosts_counts_only_where_it_can_be_enforced() -> None:
    listed = changed(network=Network.LISTED)
    assert verdict_about(listed, "to the network") is Verdict.PARTLY
    below = msgspec.structs.replace(listed, ready=Ready(Rung.LANDLOCK))
    assert verdict_about(below, "to the network") is Verdict.STOPPED


@pytest.mark.parametrize(
    ("rung", "note", "words"),
    [
        (Rung.LANDLOCK, "commands can signal other processes of this user", "signal, stop or trace"),
        (Rung.FULL, "other processes and their command lines can be seen in /proc", "command lines"),
        (Rung.FULL, "system calls are not filtered on this processor (riscv64)", "gain privileges"),
    ],
)
def test_what_a_worker_notes_changes_the_verdict(rung: Rung, note: str, words: str) -> None:
    assert verdict_about(changed(ready=Ready(rung)), words) is Verdict.STOPPED
    assert verdict_about(changed(ready=Ready(rung, (note,))), words) is not Verdict.STOPPED


@pytest.mark.parametrize(
    ("findings", "well"),
    [
        (FULL, True),
        (LANDLOCK, True),
        (OFF, False),
        (changed(ready=Ready(Rung.LANDLOCK), require=Rung.FULL), False),
        (changed(require=Rung.FULL), True),
        (changed(command="bash can't be started"), False),
        (changed(mode=Mode.UNCONFINED, ready=Ready(Rung.OFF)), False),
    ],
)
def test_all_is_well_where_commands_run_confined_as_far_as_is_required(
    findings: Findings, well: bool
) -> None:
    assert findings.well is well
    assert json.loads(as_json(findings))["well"] is well


def test_a_person_reads_the_rung_what_was_tried_with_its_remedy_and_where_state_lies() -> None:
    refused = Probe("native", False, "unshare: Operation not permitted", "start the container otherwise")
    text = "\n".join(lines(changed(ready=Ready(Rung.LANDLOCK, ("names can be seen",), probes=(refused,)))))
    for words in (
        "Sandbox: landlock (Landlock and a filter",
        "fails  native: unshare: Operation not permitted",
        "to have it: start the container otherwise",
        "- names can be seen",
        "/home/u/.local/state/polier",
        "Nothing of a run that is over still runs.",
    ):
        assert words in text
    off = "\n".join(lines(OFF))
    assert "Sandbox: off. Nothing confines commands here" in off
    assert "This kernel offers no Landlock." in off


def test_what_is_not_there_is_not_said_to_confine() -> None:
    missing = "there is no Landlock here: commands can signal those of other calls"
    (head, *_) = lines(changed(ready=Ready(Rung.FULL, (missing,), means=Means.NATIVE)))
    assert head == "Sandbox: full (namespaces of its own and a filter of system calls)"


def test_a_floor_that_does_not_hold_and_a_stray_are_said() -> None:
    text = "\n".join(
        lines(msgspec.structs.replace(LANDLOCK, require=Rung.FULL, left=("4711 sleep 60\x1b[2J",)))
    )
    assert "require 'full'" in text
    assert "4711 sleep 60" in text
    assert "\x1b" not in text
