"""Columns: one that is added where they are declared stands in rows, stores, files, and in what `ahbm bench` prints."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.commands import environment

pytestmark = pytest.mark.usefixtures("here")

TOY = """
import json
from ahbm.table import columns

toy = columns.Column("toy", int, of=lambda report: 2 * report.messages)
at = len(columns.MEASURED)
columns.MEASURED = (*columns.MEASURED, toy)
columns.STORED = (*columns.STORED[:at], toy, *columns.STORED[at:])
columns.PRINTED = (*columns.PRINTED, columns.Printed("toys", "(2)", 6, lambda report: f"{2 * report.messages}"))

import ahbm
from ahbm.table.store import Store
from ahbm.table.cases import Sweep
from ahbm.table.nccl import columns as heading, row
from ahbm.table.running import attempt

asked = {"topologies": "npu_ring_8", "algorithms": "ring_allreduce", "sizes": 1024}
table = ahbm.sweep(ahbm.Space("all_reduce", **asked), store="rows")
(report,) = attempt([Sweep("all_reduce", 1024, 1024, algorithms=("ring_allreduce",), topology="npu_ring_8")])
found = {
    "messages": report.messages,
    "row": table[0]["toy"],
    "csv": table.csv().splitlines()[0].split(",").count("toy"),
    "stored": Store("rows").rows().column("toy"),
    "heading": [line.split()[-1] for line in heading(report)[-2:]],
    "printed": row(report).split()[-1],
}
print(json.dumps(found))
"""


def test_a_column_is_declared_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOY], env=environment(), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    twice = 2 * found["messages"]
    assert twice > 0 and found["row"] == twice and found["stored"] == [twice]
    assert found["csv"] == 1 and found["heading"] == ["toys", "(2)"] and found["printed"] == f"{twice}"
