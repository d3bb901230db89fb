"""PAT: the chunks of a step travel together, so that a step takes one latency however many chunks it has."""

from __future__ import annotations

import pytest

import ahbm

STEP_NS = 10_000


@pytest.mark.parametrize(("ranks", "steps"), [(2, 1), (8, 3), (16, 4), (23, 4), (32, 5)])
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_a_step_takes_one_latency(collective: str, ranks: int, steps: int) -> None:
    overrides = {"system.sips.count": ranks, "protocols.simple.step_ns": STEP_NS, "system.sips.link.latency_ns": 0}
    report = ahbm.run(
        collective, f"pat_{collective}", "npu_fully_connected_8", bytes_per_rank=16 * ranks, overrides=overrides
    )
    assert report.wrong == 0
    assert steps * STEP_NS <= report.latency_ns < steps * STEP_NS * 1.01
