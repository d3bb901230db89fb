"""A rank of a job of processes whose selectors differ: by a knob, by a file, or by raising."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist

import ahbm.torch  # noqa: F401 - registers the backend.
from ahbm.selectors import Choice, Static

how, rank = sys.argv[1], int(os.environ["RANK"])
selector: Any = Static({"all_reduce": Choice("selector", "ring_allreduce", channels=2 + rank)})
if how == "file":
    selector = sys.argv[2 + rank]
if how == "raise":

    def selector(algorithms: Any, request: Any) -> str:
        return "ring_allreduce" if rank == 0 else str(1 / 0)


dist.init_process_group("ahbm", pg_options={"selector": selector})
try:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.all_reduce(torch.ones(64))
    print(f"rank {rank} ended", [str(one.message) for one in caught])
except RuntimeError as error:
    print(f"rank {rank} was told: {error}")
dist.destroy_process_group()
