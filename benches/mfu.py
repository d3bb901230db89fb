"""MFU of published steps: what was published, and what is simulated for every number of virtual stages.

python benches/mfu.py [NAME...]     # rows whose names contain one of these
"""

from __future__ import annotations

import sys
import time
from typing import Any

import ahbm
from ahbm.job.models import like
from ahbm.job.transformer import Transformer
from ahbm.planning.search import model_flops

MACHINE = "h100_2_nodes"


SHAPE: dict[str, Any] = {"tp": 8, "pp": 16, "zero": 1, "sequence_parallel": True, "end_layers": 1}
LONG = {"cp": 16, "sequence": 131_072}
Step = tuple[str, str, float, dict[str, Any], tuple[int, ...]]
"""Name, model, published MFU in %, its other numbers, and the virtual stages that are tried."""
STEPS: list[Step] = [
    ("8,192 ranks", "llama3-405b", 43, {**SHAPE, "dp": 64, "micro_batches": 32}, (2, 4, 8)),
    ("16,384 ranks", "llama3-405b", 41, {**SHAPE, "dp": 128, "micro_batches": 16}, (2, 4, 8)),
    ("16,384 ranks, 131,072 tokens", "llama3-405b", 38, {**SHAPE, **LONG, "dp": 8, "micro_batches": 16}, (8,)),
]
"""The Llama 3 Herd of Models, 2024, table 4, which does not say how many virtual stages a rank has."""


def simulated(model: str, fields: dict[str, Any], stages: int) -> float:
    """MFU in %."""
    of = Transformer(**{**like(model), **fields, "virtual_stages": stages})
    job = of.workload()
    report = ahbm.open(job, topology=MACHINE, overrides={"system.sips.count": job.ranks}).run()
    tokens = of.dp * of.micro_batches * of.micro_batch * of.sequence
    peak = report.emulator.machine.roofline.operations_per_ns
    return 100 * model_flops(of) * tokens / job.ranks / report.latency_ns / peak


def main(*wanted: str) -> None:
    print(f"{'step':<32} {'published':>9} {'simulated, by virtual stages':<32} {'s':>6}")
    for name, model, published, fields, tried in STEPS:
        if wanted and not any(word in name for word in wanted):
            continue
        begun = time.perf_counter()
        found = ", ".join(f"{stages}: {simulated(model, fields, stages):.1f}" for stages in tried)
        print(f"{name:<32} {published:>9.0f} {found:<32} {time.perf_counter() - begun:>6.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
