"""How fast a timeline is written: `python benches/timeline.py`.

One all-reduce of about a million slices; processor time of the writer alone, from the finished run to the file.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from ahbm.measure import prepare


def main() -> None:
    """Prints one line per format."""
    overrides = {"system.sips.count": 34}
    case = prepare("all_reduce", "ring_allreduce", "ring_1d", bytes_per_rank=1 << 20, overrides=overrides)
    outcome = case.timed()
    assert outcome.program is not None
    timeline = outcome.program.simulate(record=False, detail=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("out.pftrace", "out.json"):
            path, best = Path(folder) / name, float("inf")
            for _ in range(3):
                start = time.process_time()
                slices = timeline.write(path)
                best = min(best, time.process_time() - start)
            size = path.stat().st_size / 1e6
            print(f"{name}: {slices:,} slices, {size:.0f} MB in {best:.2f} s ({slices / best / 1e6:.2f} M slices/s)")


if __name__ == "__main__":
    main()
