"""A sweep: two algorithms on two machines at three sizes, as a table, a CSV file, and a pandas.DataFrame."""

from pathlib import Path
from tempfile import mkdtemp

import ahbm
from ahbm.errors import UnsupportedError

table = ahbm.sweep(
    "all_reduce",
    ["ring_allreduce", "lrab_hierarchical_allreduce"],
    ["npu_ring_8", "npu_switch_8"],
    sizes=["4K", "64K", "1M"],
    data=False,
)
print(table)

# One of the algorithms does not know the switch: its cells are rows with a code, and the others have run.
for cell in table.refused[:1]:
    print(f"{cell.algorithm} on {cell.machine}: {cell.error.code}, {cell.error.message}")

path = table.to_csv(Path(mkdtemp()) / "sweep.csv")
print(f"{len(path.read_text().splitlines())} lines in {path.name}")

try:
    frame = table.to_pandas().dropna(subset=["latency_ns"])
    print(frame.pivot_table(values="busbw_gbs", index="bytes", columns=["machine", "algorithm"]))
except UnsupportedError as error:
    print(error)
