"""What NCCL's own cost model says of launches and steps, where rows do not: the one table of it is the packaged
`nccl_model.yaml` (NVIDIA/nccl, src/graph/tuning.cc)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ahbm.base import packaged
from ahbm.selectors.files import read


class Steps(NamedTuple):
    """us of calls that speak LL."""

    launch: float
    """Of a tree, besides its steps."""
    inside: float
    """Of a step over NVLink."""
    ring: float
    """Of a ring's step between nodes."""
    tree: float
    """Of a tree's."""
    longest: float
    """Of a ring's step between nodes in Simple."""


@cache
def steps() -> Steps:
    """NCCL's."""
    model = read(packaged.NCCL_MODEL)
    inside, network = (model["step_us"][link] for link in ("nvlink", "network"))
    return Steps(
        model["base_us"]["tree"]["ll"],
        inside["tree"]["ll"],
        network["ring"]["ll"],
        network["tree"]["ll"],
        network["ring"]["simple"],
    )
