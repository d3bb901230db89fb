"""How a recorded step moves with the machine, to the rounding of its kernels' times to picoseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from jobs import torchrun
from test_device import DDP, HERE, run

import ahbm

BOUND = {"pe.roofline.peak_tflops": 1e-4, "pe.roofline.memory_gbs": 5e5}
"""Operations take all the time of kernels that have any; the others take a billionth of the whole."""
QUICK = {"pe.roofline.peak_tflops": 1e3, "pe.roofline.memory_gbs": 5e5}
"""Kernels take next to no time."""
PEAK, MEMORY, LINKS = "pe.roofline.peak_tflops", "pe.roofline.memory_gbs", "system.sips.link.bandwidth_gbs"


def picoseconds(job: Path, **overrides: object) -> tuple[int, int]:
    """What a job takes, and how many nodes of a rank may each round up by one."""
    found = ahbm.open(str(job), topology="npu_ring_8", overrides=overrides).run()
    return round(found.latency_ns * 1000), max(map(len, found.replayed.nodes))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products of matrices, a convolution and attention, on one rank."""
    target = tmp_path_factory.mktemp("alone")
    done = run("--device", "cuda", str(HERE / "device_step.py"), "256", AHBM_REPORT=str(target))
    assert done.returncode == 0, done.stderr
    return target / "step"


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DDP of two ranks."""
    target = tmp_path_factory.mktemp("together")
    script = target / "ddp.py"
    script.write_text(DDP)
    env = {"AHBM_REPORT": str(target), "AHBM_PAGE": "0"}
    done = torchrun(script, 2, launcher=("-m", "ahbm.torch", "--device", "cuda"), **env)
    assert done.returncode == 0, done.stderr
    return target / "step"


def test_twice_the_peak_halves_what_is_bound_by_it(alone: Path) -> None:
    base, nodes = picoseconds(alone, **BOUND)
    twice, _ = picoseconds(alone, **BOUND | {PEAK: 2 * BOUND[PEAK]})
    four, _ = picoseconds(alone, **BOUND | {PEAK: 4 * BOUND[PEAK]})
    assert twice == pytest.approx(base / 2, rel=1e-8) and four == pytest.approx(base / 4, rel=1e-8)
    # Without the kernels that have no operations, to the picosecond.
    assert abs((base - twice) - 2 * (twice - four)) <= 3 * nodes < (base - twice) / 1e6


def test_more_bandwidth_does_nothing_for_what_is_bound_by_the_peak(alone: Path) -> None:
    base, _ = picoseconds(alone, **BOUND)
    memory, _ = picoseconds(alone, **BOUND | {MEMORY: 2 * BOUND[MEMORY]})
    links, _ = picoseconds(alone, **BOUND | {LINKS: 1000})
    assert base * (1 - 1e-8) <= memory <= base and links == base


def test_more_bandwidth_between_devices_speeds_what_is_bound_by_it(together: Path) -> None:
    base, _ = picoseconds(together, **QUICK, **{LINKS: 10})
    links, _ = picoseconds(together, **QUICK, **{LINKS: 20})
    assert base / 2 <= links < 0.6 * base
    peak, _ = picoseconds(together, **QUICK | {PEAK: 2 * QUICK[PEAK]}, **{LINKS: 10})
    memory, _ = picoseconds(together, **QUICK | {MEMORY: 2 * QUICK[MEMORY]}, **{LINKS: 10})
    assert base * 0.99 <= peak <= base and base * 0.99 <= memory <= base
