"""The gate: what must be green before a change is taken.  `python -m tests.gate` runs all of it.

Each step is an ordinary command that can be run by itself.  All steps run, also after one has failed; what
failed is named before the tests' own summary, which is the last line.  `python -m tests.gate STEP...` runs
some of them; their names are the keys of STEPS.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable

STEPS: dict[str, tuple[str, ...]] = {
    "format": ("-m", "ruff", "format", "--check", "-q", "."),
    "lint": ("-m", "ruff", "check", "-q", "."),
    "types": ("-m", "mypy"),
    "contracts": ("-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-logo"),
    "tests": ("-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--cov", "--cov-report="),
}

INCLUDED = "--include=protocol/*,supervisor/*,worker/*"
"""This checkout's files; the tests of an installed wheel measure copies of them elsewhere."""

OVERALL = 90.0
"""Per cent of statements and branches of protocol, supervisor and worker that the tests reach."""

PURE = (
    "protocol/",
    "supervisor/context/budget.py",
    "supervisor/context/compaction.py",
    "supervisor/exits.py",
    "supervisor/harmless.py",
    "supervisor/masks.py",
    "supervisor/model/assembly.py",
    "supervisor/model/chunks.py",
    "supervisor/model/dialect.py",
    "supervisor/model/errors.py",
    "supervisor/model/refusals.py",
    "supervisor/model/reply.py",
    "supervisor/model/request.py",
    "supervisor/model/retries.py",
    "supervisor/model/sse.py",
    "supervisor/options.py",
    "supervisor/pool/bounds.py",
    "supervisor/rehearsal/cache.py",
    "supervisor/rehearsal/grammar.py",
    "supervisor/rehearsal/script.py",
    "supervisor/rehearsal/tour.py",
    "supervisor/rehearsal/validation.py",
    "supervisor/screen/cells.py",
    "supervisor/screen/diff.py",
    "supervisor/screen/prompt.py",
    "supervisor/screen/sessions.py",
    "supervisor/screen/slash.py",
    "supervisor/session/ending.py",
    "supervisor/store/lines.py",
    "supervisor/store/repair.py",
    "worker/files/diffs.py",
    "worker/files/edits.py",
    "worker/files/encodings.py",
    "worker/files/globs.py",
    "worker/files/misses.py",
    "worker/files/names.py",
    "worker/files/slices.py",
    "worker/output/clip.py",
    "worker/output/terminal_text.py",
    "worker/processes/verdict.py",
)
"""Files that decide and do no I/O: every branch of them is reached."""


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"gate: no step {unknown[0]!r}; there are: {', '.join(STEPS)}")
        return 2
    failed: list[str] = []
    last = ""
    for name in names or STEPS:
        print(f"gate: {name}", flush=True)
        code, last = _step(name)
        if code:
            failed.append(name)
    if "tests" in (names or STEPS):
        failed += _coverage()
    if failed:
        print(f"gate: FAILED: {', '.join(failed)}")
    if last or not failed:
        print(last or "gate: green")
    return 1 if failed else 0


def _step(name: str) -> tuple[int, str]:
    """Run one step; its exit code and, of the tests, the summary line."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("AGENT_")}
    environ.pop("DEEPSEEK_API_KEY", None)
    environ["POLIER_MEASURE"] = str(ROOT / "pyproject.toml")  # workers, started with -I, are measured by this
    command = [PYTHON, *STEPS[name]]
    if name != "tests":
        done = subprocess.run(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, check=False)
        return done.returncode, ""
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as tests:
        last = ""
        for line in tests.stdout or ():
            if last:
                print(last, flush=True)
            last = line.rstrip("\n") or last
    return tests.returncode, last


def _coverage() -> list[str]:
    """What of the coverage is below its mark, in words."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        command = [PYTHON, "-m", "coverage", "json", "-q", "-o", report.name, INCLUDED]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return ["coverage (no data)"]
        measured = json.load(report)
    below = []
    total = float(measured["totals"]["percent_covered"])
    print(f"gate: coverage {total:.1f} %")
    if total < OVERALL:
        below.append(f"coverage ({total:.1f} % of {OVERALL:g} %)")
    for path, file in sorted(measured["files"].items()):
        gaps = [*file["missing_lines"], *file["missing_branches"]]
        if path.startswith(PURE) and gaps:
            below.append(f"coverage of {path} (not reached: {gaps[:8]})")
    return below


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
