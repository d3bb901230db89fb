"""Simulated times of everything that comes with the package, to the picosecond.

A change of the model is meant or it is a bug. When it is meant, run this file with AHBM_UPDATE_GOLDEN=1 and commit
tests/golden.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import ahbm
from ahbm.config.ccl import CclConfig
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.runs.compare import compare, gate
from ahbm.runs.report import Report
from ahbm.source.algorithm import AlgorithmLoader
from ahbm.source.located import available

GOLDEN = Path(__file__).parent / "golden"
NETWORKS = ["default", "npu_ring_8", "npu_mesh_4x4", "npu_torus_4x4", "npu_hypercube_16", "npu_switch_8"]
KEPT = ["collective", "algorithm", "topology", "ranks", "bytes", "dtype", "op", "root"]
"""With the time and the hash, what is kept of a report: neither the version nor the machine's other parameters."""


def measured(network: str) -> Iterator[Report]:
    """Every algorithm on one network, a small and a middling size."""
    config, loader = CclConfig.load(None), AlgorithmLoader()
    for name in sorted({*config.algorithms, *available()}):
        for collective in loader.load(config.settings(name)).collectives:
            for size in (1 << 10, 1 << 16):
                try:
                    yield ahbm.run(
                        collective,
                        name,
                        None if network == "default" else network,
                        bytes_per_rank=None if collective == "barrier" else size,
                        data=False,
                    )
                except (ConfigError, UnsupportedError):
                    break


def row(report: Report) -> dict[str, object]:
    data = report.to_json()
    return {key: data[key] for key in [*KEPT, "latency_ns", "timeline_hash"]}


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_times_are_as_they_were(network: str) -> None:
    path = GOLDEN / f"{network}.json"
    reports = list(measured(network))
    now = [row(report) for report in reports]
    if os.environ.get("AHBM_UPDATE_GOLDEN"):
        lines = ",\n".join(json.dumps(entry) for entry in now)
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    then = json.loads(path.read_text(encoding="utf-8"))
    assert len(now) >= 10
    template = reports[0].to_json()
    before = [Report.from_json(template | entry) for entry in then]
    after = [Report.from_json(template | entry) for entry in now]
    gate(compare(before, after))
    assert now == then


def test_a_changed_time_is_seen() -> None:
    (entry, *_) = json.loads((GOLDEN / "npu_ring_8.json").read_text(encoding="utf-8"))
    report = next(iter(measured("npu_ring_8")))
    assert row(report) == entry
    slower = ahbm.run(
        report.collective,
        report.algorithm,
        "npu_ring_8",
        bytes_per_rank=None if report.collective == "barrier" else 1 << 10,
        overrides={"system.sips.link.latency_ns": 500.001},
        data=False,
    )
    assert row(slower) != entry
