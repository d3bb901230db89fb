"""The least that a step can take: what its ranks compute, and the passes that a pipeline has to wait for.

A rank computes one kernel at a time. A stage begins when a micro-batch has gone through the stages before it, and what
it does last has to go back through them. So no step is quicker than this, whatever its communication takes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from ahbm._core import kernels_of
from ahbm.job.transformer import SPLIT_SCHEDULES, Transformer
from ahbm.planning.memory import is_last, own_chunks

if TYPE_CHECKING:
    from ahbm._core import Machine

BACKWARD = "head.logits.dgrad"
"""The first kernel of a backward pass that begins with the loss."""
WAITS = ".wgrad"
"""How kernels end for which no stage waits."""


class Bounds:
    """The least times of steps of one model on a machine, in ps."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._passes = cache(self._measured)

    def least_ps(self, of: Transformer) -> int:
        """The least that a step takes."""
        alone = replace(of, layers=1, pp=1, dp=of.ep, virtual_stages=1, end_layers=0, micro_batches=1, zero=0, shard=0)
        alone = replace(alone, recompute_layers=0, schedule="1f1b", prefetch=False)
        ends, layer = self._passes(alone)
        plain = layer
        if of.recompute_layers:
            plain = self._passes(replace(alone, recompute=False))[1]
        passed = sum(plain[:2] if of.schedule in SPLIT_SCHEDULES else plain)
        least = before = 0
        for stage in range(of.pp):
            own = own_chunks(of, stage)
            again = min(of.recompute_layers or sum(own), sum(own))
            each = sum(layer) * again + sum(plain) * (sum(own) - again)
            first = ends["embedding"] if stage == 0 else 0
            last = ends["head"] if is_last(of, stage) else 0
            least = max(least, before + (each + first + last) * of.micro_batches)
            before += passed * own[0] + first
        return least

    def _measured(self, of: Transformer) -> tuple[dict[str, int], tuple[int, int, int]]:
        """What the ends of a model take of a micro-batch, both ways together, and what a layer takes forward, backward,
        and for gradients of weights."""
        kernels = kernels_of(of.workload(), 0)
        taken = self._machine.kernels_ps([kernel for _, _, kernel in kernels])
        ends, layer = {"embedding": 0, "head": 0}, [0, 0, 0]
        behind = 0
        for (name, stated, _), ps in zip(kernels, taken, strict=True):
            behind = behind or int(name == BACKWARD)
            unit = name.partition(".")[0]
            if unit == "layer0":
                layer[2 if name.endswith(WAITS) else behind] += stated or ps
            elif unit in ends:
                ends[unit] += stated or ps
        return ends, (layer[0], layer[1], layer[2])
