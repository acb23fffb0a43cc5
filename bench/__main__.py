"""`python -m bench [ROW...]`: the rows of the performance goals, one table, and JSON beside it.

The rows are played from an installed wheel (bench/ground.py), in a second process that this one starts.  A
row measures a lower bound and us in the same run, one after the other, since times on a shared machine mean
nothing by themselves.  Each module of bench/ has a list `ROWS` of callables (bench/row.py) and may say in
`REPEATS` how often they are called; rows take turns, and the median of the ratios counts.
"""

import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.ground import SCRATCH, elsewhere
from bench.row import Measured, Result, Row, judged, table

ROOM = Path(__file__).parent
RESULTS = "POLIER_BENCH_RESULTS"
"""The variable with the directory for the JSON: the checkout's, not the copy's."""
FRAME = ("__init__", "__main__", "row", "bare_loop", "ground")


def main(wanted: Sequence[str]) -> int:
    """Install what is to be measured and have it measured there; the exit code."""
    if SCRATCH in os.environ:
        return measure(wanted)
    os.environ[RESULTS] = str(ROOM / "results")
    return elsewhere(wanted)


def measure(wanted: Sequence[str]) -> int:
    """Measure the rows whose name contains one of `wanted` (all without any); 1 when one could not be."""
    measured: dict[str, list[Measured]] = {}
    broken: list[str] = []
    queue = [(row, repeats, 0) for row, repeats in rows() if not wanted or named(row, wanted)]
    while queue:
        row, repeats, number = queue.pop(0)
        print(f"{row.__name__}  {number + 1}/{repeats}", file=sys.stderr, flush=True)
        try:
            found = row()
        except Exception as error:  # noqa: BLE001  a row that can't be measured must not hide the others
            broken.append(f"{row.__name__}: {type(error).__name__}: {error}")
            continue
        for each in found if isinstance(found, list) else [found]:
            measured.setdefault(each[0], []).append(each)
        if number + 1 < repeats:
            queue.append((row, repeats, number + 1))
    results = [judged(runs) for runs in measured.values()]
    print(table(results))
    print("\n".join(f"not measured: {line}" for line in broken))
    write(results)
    return 1 if broken else 0


def rows() -> list[tuple[Row, int]]:
    """Each row and how often it is called."""
    found: list[tuple[Row, int]] = []
    for path in sorted(ROOM.glob("*.py")):
        if path.stem not in FRAME:
            module = importlib.import_module(f"bench.{path.stem}")
            found += [(row, int(getattr(module, "REPEATS", 1))) for row in module.ROWS]
    return found


def named(row: Row, wanted: Sequence[str]) -> bool:
    return any(word.lower() in f"{row.__module__}.{row.__name__}".lower() for word in wanted)


def write(results: Sequence[Result]) -> None:
    results_room = Path(os.environ.get(RESULTS, str(ROOM / "results")))
    results_room.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    about = {"time": now.isoformat(timespec="seconds"), "python": platform.python_version()}
    path = results_room / f"{now:%Y%m%dT%H%M%SZ}.json"
    rows = [result._asdict() for result in results]
    path.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
