"""Times of runs to given errors, of the section `work`.

    python -m benchmarks.peers.work_times peers.json

`peers.json` is what the suite has written. Times lie between those of measured steps, by
logarithms of both.
"""

import json
import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.peers.report import table

ERRORS = (1e-3, 1e-5, 1e-7, 1e-9, 1e-11)


def main() -> None:
    """Print a table in milliseconds of a run."""
    sections = json.loads(Path(sys.argv[1]).read_text())
    rows = next(section["rows"] for section in sections if section["section"] == "work")
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        curves.setdefault((row["case"]["mechanism"], row["name"]), []).append(row)
    lines = [
        f"| {mechanism} | {name} | {' | '.join(cell(points, error) for error in ERRORS)} |"
        for (mechanism, name), points in sorted(curves.items())
    ]
    print(*table(["", "", *(f"{error:.0e}" for error in ERRORS)], lines), sep="\n")


def cell(points: list[dict[str, Any]], error: float) -> str:
    """Time to this error; "≤" where the coarsest step is better, "–" where the finest is worse."""
    points = sorted(points, key=lambda point: point["case"]["steps"])
    errors = [float(point["case"]["error"]) for point in points]
    times = [1e3 * point["median"] for point in points]
    if errors[0] <= error:
        return f"≤ {_short(times[0])}"
    for (e0, t0), (e1, t1) in pairwise(zip(errors, times, strict=True)):
        if e1 <= error:
            part = math.log(e0 / error) / math.log(e0 / e1)
            return _short(t0 * (t1 / t0) ** part)
    return "–"


def _short(time: float) -> str:
    """Two digits, never with an exponent of ten."""
    return f"{float(f'{time:.2g}'):g}"


if __name__ == "__main__":
    main()
