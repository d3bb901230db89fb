"""How fast a large run is shown: `python benches/views.py`.

The timeline of one all-reduce of about a million slices: processor time of the writer alone, from the finished run to
the file. Then `ahbm explain` and `ahbm report` of an all-reduce of a million operations, whole commands: the wall time
a user waits, and the processor time (all threads) of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ahbm.base import packaged
from ahbm.runs.measure import prepare

LARGE = ("-a", "ring_allreduce", "-t", "npu_ring_8", "--set", "system.sips.count=386")
"""1.04 M operations."""
SLICED = 34
"""Ranks of the run whose timeline is written."""
RUNS = 3
"""Times are the best of so many."""


def timelines(folder: Path) -> None:
    """Prints one line per format."""
    overrides = {"system.sips.count": SLICED}
    case = prepare("all_reduce", "ring_allreduce", "default", bytes_per_rank=1 << 20, overrides=overrides)
    outcome = case.compiled()
    assert outcome.program is not None
    timeline = outcome.program.simulate(record=False, detail=True)
    for name in ("out.pftrace", "out.json"):
        path, best = folder / name, float("inf")
        for _ in range(RUNS):
            start = time.process_time()
            slices = timeline.write(path)
            best = min(best, time.process_time() - start)
        size = path.stat().st_size / 1e6
        print(f"{name}: {slices:,} slices, {size:.0f} MB in {best:.2f} s ({slices / best / 1e6:.2f} M slices/s)")


def command(*arguments: str) -> None:
    """Prints the best of three runs of `ahbm arguments`."""
    best = (float("inf"), 0.0)
    for _ in range(RUNS):
        start, used = time.perf_counter(), os.times()
        subprocess.run(
            [sys.executable, "-m", "ahbm", *arguments, "--ccl", str(packaged.CCL)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        wall, now = time.perf_counter() - start, os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        best = min(best, (wall, cpu))
    print(f"ahbm {arguments[0]}: 1.04 M operations, {best[0]:.2f} s ({best[1]:.2f} s of processor time)")


def main() -> None:
    """Prints one line per figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timelines(folder)
        command("explain", "all_reduce", *LARGE, "--size", "1M")
        command("report", "all_reduce", *LARGE, "-b", "1M", "-e", "1M", "--no-data", "-o", str(folder / "page.html"))


if __name__ == "__main__":
    main()
