"""A schedule is synthesized, written as MSCCL-IR XML, checked as a file, and run like every other plan."""

from pathlib import Path
from tempfile import mkdtemp

import ahbm
from ahbm.runs.verdict import check_file

made = ahbm.synthesize("all_gather", topology="npu_torus_4x4", size=1 << 20)
print(made)

path = Path(mkdtemp()) / "gather.xml"
made.plan.save(path)

verdict = check_file(path)
print(verdict)
assert verdict.verdict == "correct"

report = ahbm.open(path, topology="npu_torus_4x4", size=1 << 20).run()
print(report)
assert report.wrong == 0
