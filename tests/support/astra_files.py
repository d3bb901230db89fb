"""A small set-up of ASTRA-sim: two computations, an all_reduce of four ranks between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ahbm._core import write_recording

SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 50,
}
MICRO = 10**6
NAMES = {"workload": "job", "system": "system.json", "network": "network.yml", "remote-memory": "memory.json"}
OPTIONS = ["--parity", *(part for name, file in NAMES.items() for part in (f"--{name}-configuration", file))]
"""The command's options, in the folder of the files."""


def write(
    folder: Path, *, ranks: int = 4, size: int = 4000, late: Mapping[int, int] | None = None, **system: Any
) -> list[str]:
    """Writes the files into `folder`; the options of `ahbm astra` that name them. late: microseconds by rank."""
    for rank in range(ranks):
        start = (1 + (late or {}).get(rank, 0)) * MICRO
        events = [
            ("COMP_NODE", "forward", [], 0, start, []),
            ("COMM_COLL_NODE", "all_reduce", [0], start, 0, [("comm_size", size)]),
            ("COMP_NODE", "update", [1], start, 2 * MICRO, []),
        ]
        write_recording(folder / "job", rank, ranks, events)
    (folder / "system.json").write_text(json.dumps(SYSTEM | system))
    (folder / "network.yml").write_text(
        f"topology: [Ring]\nnpus_count: [{ranks}]\nbandwidth: [50.0]\nlatency: [500.0]\n"
    )
    (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    return [part for name, file in NAMES.items() for part in (f"--{name}-configuration", str(folder / file))]
