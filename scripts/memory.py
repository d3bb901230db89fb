"""The peak of memory of measured training steps, and what `--fake` says: `python scripts/memory.py FOLDER [CASE ...]`.

FOLDER has `cases.py` (whose `build(case)` gives a function that makes a step) and `steps.csv`, with the columns `case`,
`peak_mib` and `reserved_mib` of torch's allocator. Prints a row a case: measured and ours in MiB, and their ratio.
"""

from __future__ import annotations

import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEP = """\
import sys
sys.path.insert(0, sys.argv[1])
import cases, torch
step = cases.build(sys.argv[2])
for _ in range(3):
    step()
torch.cuda.synchronize()
print('peak', torch.cuda.max_memory_allocated() / 2**20, torch.cuda.max_memory_reserved() / 2**20)
"""
LIMIT_S = 300


def peak(folder: Path, case: str) -> tuple[float, float] | str:
    """MiB that were allocated and reserved at most; the last line of the error of a case that fails."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, "step.py")
        script.write_text(STEP)
        env = os.environ | {"AHBM_PAGE": "0", "AHBM_STEPS": "1"}
        env.setdefault("AHBM_TOPOLOGY", "dgx_b300")  # a memory that all cases fit in
        command = [sys.executable, "-m", "ahbm.torch", "--device", "cuda:1", "--ranks", "1", "--fake", str(script)]
        done = subprocess.run(
            [*command, str(folder), case], env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    found = re.search(r"^peak (\S+) (\S+)", done.stdout, re.MULTILINE)
    if found is None:
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    return float(found[1]), float(found[2])


def main() -> None:
    """Prints the table, and how far it is off."""
    folder, asked = Path(sys.argv[1]).resolve(), sys.argv[2:]
    rows = [row for row in csv.DictReader((folder / "steps.csv").open()) if not asked or row["case"] in asked]
    off = []
    print(f"{'case':32} {'measured':>10} {'ours':>10} {'ratio':>7} {'reserved':>10} {'ours':>10}")
    for row in rows:
        ours = peak(folder, row["case"])
        if isinstance(ours, str):
            print(f"{row['case']:32} {ours}", flush=True)
            continue
        measured = float(row["peak_mib"])
        off.append(abs(ours[0] / measured - 1))
        reserved = float(row["reserved_mib"])
        row_of = (row["case"], measured, ours[0], ours[0] / measured, reserved, ours[1])
        print("{:32} {:10.2f} {:10.2f} {:7.3f} {:10.2f} {:10.2f}".format(*row_of), flush=True)
    if off:
        print(f"{len(off)} of {len(rows)} cases: median {statistics.median(off):.1%}, at most {max(off):.1%}")


if __name__ == "__main__":
    main()
