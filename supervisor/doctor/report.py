"""What `agent doctor` prints: the findings as lines for a person, or as one JSON object.  Pure."""

from collections.abc import Iterator

import msgspec

from protocol.policy import Mode, Rung
from supervisor.doctor.findings import Findings, dangers, means_in_words
from supervisor.harmless import harmless_line

_GIB, _MIB = 1024**3, 1024**2
_VERSION = 1
"""Of the JSON object; fields may be added within it."""


def as_json(findings: Findings) -> str:
    ready = findings.ready
    found = {
        "v": _VERSION,
        "well": findings.well,
        "rung": ready.rung.value,
        "means": ready.means.value,
        "require": findings.require.value,
        "floor_holds": findings.floor_holds,
        "commands_run": not (ready.refuse_commands or findings.command),
        "why_not": ready.refuse_commands or findings.command,
        "mode": findings.mode.value,
        "network": findings.network.value,
        "stops": dangers(findings),
        "notes": ready.notes,
        "probes": ready.probes,
        "limits": findings.limits,
        "left": findings.left,
        "state": findings.state,
        "settings": findings.settings,
        "version": findings.version,
        "kernel": findings.kernel,
    }
    return msgspec.json.encode(found).decode()


def lines(findings: Findings) -> Iterator[str]:
    """Each harmless to print."""
    return (harmless_line(line) for line in _lines(findings))


def _lines(findings: Findings) -> Iterator[str]:
    yield from _verdict(findings)
    ready = findings.ready
    if ready.rung is not Rung.OFF or findings.mode is not Mode.UNCONFINED:
        yield ""
        yield "What a command might do:"
        width = max(len(one.verdict.value) for one in dangers(findings))
        for one in dangers(findings):
            yield f"  {one.verdict.value:{width}}  {one.what}" + (f" ({one.how})" if one.how else "")
    if ready.notes:
        yield ""
        yield "Not enforced here:"
        yield from (f"  - {note}" for note in ready.notes)
    if ready.probes:
        yield ""
        yield "What was tried:"
        for probe in ready.probes:
            yield f"  {'works ' if probe.works else 'fails '} {probe.name}: {probe.why}"
            if probe.remedy:
                yield f"         to have it: {probe.remedy}"
    yield ""
    yield from _limits(findings)
    yield ""
    yield f"State:     {findings.state}"
    yield f"Settings:  {findings.settings}"
    yield f"Version:   polier {findings.version} on Linux {findings.kernel}"
    if findings.left:
        yield "Still running of runs that are over (the next session ends them):"
        yield from (f"  {line}" for line in findings.left)
    else:
        yield "Nothing of a run that is over still runs."


def _verdict(findings: Findings) -> Iterator[str]:
    ready = findings.ready
    match ready.rung:
        case Rung.FULL | Rung.LANDLOCK:
            yield f"Sandbox: {ready.rung.value} ({means_in_words(ready)})"
        case Rung.OFF if findings.mode is Mode.UNCONFINED:
            yield "Sandbox: off, since sandbox.mode is unconfined: commands may do what you may do"
        case Rung.OFF:
            yield "Sandbox: off. Nothing confines commands here, so each one asks before it runs."
    if ready.refuse_commands:
        yield f"  {ready.refuse_commands}"
    elif findings.command:
        yield f"  A harmless command did not run: {findings.command}"
    if not findings.floor_holds:
        yield (
            f"  Your settings require {findings.require.value!r} (sandbox.require), "
            "so no command runs here at all."
        )


def _limits(findings: Findings) -> Iterator[str]:
    limits = findings.limits
    yield "Limits of commands:"
    memory = _size(limits.memory_bytes)
    yield f"  memory {memory}, {limits.processes} processes, CPU time {limits.cpu_seconds} s a process"
    yield f"  time {limits.command_seconds:g} s, or up to {limits.command_seconds_max:g} s if a call asks"
    yield (
        f"  files {_size(limits.file_bytes)} each, {limits.open_files} open, "
        f"disk {_size(limits.disk_bytes)}, printed {_size(limits.output_bytes)}"
    )


def _size(count: int) -> str:
    if not count:
        return "without limit"
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"
