"""Processor time of replaying jobs of many equal ranks, beyond reading them, against a job of eight; with folding and
without.

    python benches/fold.py [--whole]

Jobs are steps of a transformer of 24 layers, in a folder for temporary files. Every time is of one process: all of it,
less what `Workload.read` takes, and of that the call of `replay` alone. Ratios are to the job of eight ranks on the
same machine. `--whole` also replays without folding.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from ahbm.base.words import aligned
from ahbm.job.transformer import Transformer

STEP = Transformer(layers=24, hidden=2048, micro_batches=1)
JOBS = [(1, 8), (16, 8), (128, 8)]
"""Data-parallel and tensor-parallel ranks; the first one is the measure."""
ONE_GROUP = [(8, 1), (64, 1), (256, 1)]
MACHINES = ["npu_switch_8", "npu_ring_8", "npu_fully_connected_8"]

CHILD = """
import json, sys, time
from ahbm._core import Workload
from ahbm.job.reading import How
from ahbm.job.replay import replay
from ahbm.ranks.setup import Setup
path, topology, fold = sys.argv[1], sys.argv[2], sys.argv[3] == "fold"
begin = time.process_time()
job = Workload.read(path)
read = time.process_time() - begin
begin = time.process_time()
report = replay(job, "step", Setup(topology, overrides={"system.sips.count": job.ranks}), How(fold=fold))
str(report)
end = time.process_time()
print(json.dumps({"ranks": job.ranks, "simulated": report.simulated, "read": read, "replay": end - begin,
                  "beyond": end - read, "hash": report.times_hash}))
"""


def measured(path: Path, topology: str, fold: str) -> dict[str, float]:
    """The quickest of three processes."""
    command = [sys.executable, "-c", CHILD, str(path), topology, fold]
    found = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
    return dict(min(found, key=lambda one: one["beyond"]))


def main() -> None:
    ways = ("fold", "whole") if "--whole" in sys.argv else ("fold",)
    rows = [("machine", "dp x tp", "", "simulated", "reading (s)", "replay (s)", "beyond reading (s)", "ratio")]
    with tempfile.TemporaryDirectory() as folder:
        for topology in MACHINES:
            for jobs in (JOBS, ONE_GROUP):
                measure = 0.0
                for dp, tp in jobs:
                    path = Path(folder) / f"step{dp}x{tp}.0.et"
                    if not path.exists():
                        job = Transformer(**{**vars(STEP), "dp": dp, "tp": tp}).workload()
                        job.write(path.with_name(f"step{dp}x{tp}"))
                    hashes = set()
                    for way in ways:
                        one = measured(path, topology, way)
                        measure = measure or one["beyond"]
                        hashes.add(one["hash"])
                        times = (f"{one[name]:.3f}" for name in ("read", "replay", "beyond"))
                        ratio = f"{one['beyond'] / measure:.2f}"
                        rows.append((topology, f"{dp} x {tp}", way, f"{one['simulated']:.0f}", *times, ratio))
                    assert len(hashes) == 1, f"{topology}, {dp} x {tp}: folding changes times"
    print("\n".join(aligned(rows)))


if __name__ == "__main__":
    main()
