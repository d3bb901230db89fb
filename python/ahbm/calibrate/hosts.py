"""How quick the host of a trace is beside the one that `compute.host` was measured on.

The profiler slows a host down, by more than half of what short operations take. So what operations of a trace take on
the host is compared with what the same ones took there, under the same profiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ahbm._core import Profile

REFERENCE: Mapping[str, float] = {
    "aten::_to_copy": 5.1, "aten::add": 20.62, "aten::addmm": 59.11, "aten::arange": 14.35, "aten::cat": 22.47,
    "aten::copy_": 13.34, "aten::detach": 1.27, "aten::empty": 4.7, "aten::empty_like": 2.46,
    "aten::empty_strided": 5.06, "aten::expand": 5.25, "aten::fill_": 17.75, "aten::gelu": 26.88,
    "aten::gelu_backward": 16.06, "aten::layer_norm": 3.78, "aten::mm": 33.61, "aten::mul": 16.66, "aten::narrow": 2.0,
    "aten::native_layer_norm": 38.8, "aten::native_layer_norm_backward": 24.76, "aten::reshape": 1.62,
    "aten::resize_": 4.92, "aten::scaled_dot_product_attention": 9.5, "aten::slice": 3.0, "aten::split": 13.85,
    "aten::sum": 25.71, "aten::t": 2.58, "aten::transpose": 2.6, "aten::zero_": 4.16,
}  # fmt: skip
"""us of an operation without those within it, launches included: medians over up to 20 traces of PyTorch 2.11 with
`record_shapes` on a server of Intel Xeons with an H200."""
OFTEN, ENOUGH = 8, 8
"""How often an operation counts at least, and how many operations."""
SURE = 1.3
"""Up to this factor hosts are one: traces of one host differ by as much."""


class Relative(NamedTuple):
    """How many times as long a host takes as the reference."""

    factor: float
    spread: float
    """Factor within which half of the operations lie."""
    operations: int


def relative(profiles: Sequence[Profile]) -> Relative | None:
    """The host of traces, together; None where they tell too little."""
    logs: list[float] = []
    for profile in profiles:
        if profile.stacks:
            continue
        rows = profile.operations
        own = rows[:, 4].astype(np.float64)
        inside = rows[:, 1] >= 0
        np.subtract.at(own, rows[inside, 1], rows[inside, 4])
        names = [name for name, _ in profile.signatures]
        for name, reference in REFERENCE.items():
            mine = own[np.isin(rows[:, 0], [at for at, each in enumerate(names) if each == name])] / 1e6
            if len(mine) >= OFTEN and (took := float(np.median(mine))) > 0:
                logs.append(float(np.log(took / reference)))
    if len(logs) < ENOUGH:
        return None
    least, middle, most = np.quantile(logs, (0.25, 0.5, 0.75)).tolist()
    return Relative(float(np.exp(middle)), float(np.exp((most - least) / 2)), len(logs))
