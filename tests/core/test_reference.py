"""Published latencies of the reference simulator, reproduced from `topologies/reference_torus.yaml`.

The all-reduce rows follow one closed form (it fits every published row of the sweep):
`fixed + 11 hops * bytes/128 + 2 * bytes/256 + 9 adds * ceil(bytes/512) + 24 slot accesses`, in ns with
bytes per PE. Only `fixed` depends on latencies; the differences between rows are exact.
"""

from __future__ import annotations

import math

import pytest

import ahbm
from ahbm import DPPolicy, _core
from ahbm._core import Tl
from ahbm.config.topology import load_machine

FIXED_NS = 1633.04
TIERS = {
    # name: (bandwidth GB/s, setup ns, bank GB/s or None, buffer_kind, extra overrides)
    "tcm": (512, 0, None, "tcm", {}),
    "sram_v1": (
        128,
        2,
        None,
        "sram",
        {"ipcq.tiers.sram.bandwidth_gbs": 128, "ipcq.tiers.sram.bank_bandwidth_gbs": ".inf"},
    ),
    "sram": (512, 2, 128, "sram", {}),
    "hbm": (256, 6, 256, "hbm", {}),
    "hbm_v1": (32, 6, None, "hbm", {"ipcq.tiers.hbm.bandwidth_gbs": 32, "ipcq.tiers.hbm.bank_bandwidth_gbs": ".inf"}),
}
SIZES = (256, 2048, 16384, 65536, 98304)


def published_ns(tier: str, nbytes: int) -> float:
    bandwidth, setup, bank, _, _ = TIERS[tier]
    access = setup + nbytes / bandwidth + (nbytes / bank if bank else 0)
    return FIXED_NS + 11 * nbytes / 128 + 2 * nbytes / 256 + 9 * math.ceil(nbytes / 512) + 24 * access


def simulated_ns(tier: str, nbytes: int) -> float:
    _, _, _, kind, overrides = TIERS[tier]
    report = ahbm.run(
        collective="all_reduce",
        algorithm="lrab_hierarchical_allreduce",
        topology="reference_torus",
        bytes_per_pe=nbytes,
        placement=DPPolicy(cube="row_wise"),
        data=False,
        overrides={"defaults.buffer_kind": kind, **overrides},
    )
    return report.latency_ns


@pytest.mark.parametrize("tier", TIERS)
def test_all_reduce_latencies_match_the_published_sweep(tier: str) -> None:
    simulated = [simulated_ns(tier, size) for size in SIZES]
    expected = [published_ns(tier, size) for size in SIZES]
    assert simulated == pytest.approx(expected, rel=0.005)
    for i in range(1, len(SIZES)):
        assert simulated[i] - simulated[0] == pytest.approx(expected[i] - expected[0], abs=0.1)


def test_the_closed_form_gives_the_published_rows() -> None:
    rows = {("tcm", 256): 1678.04, ("tcm", 65536): 12001.04, ("sram_v1", 2048): 2293.04, ("sram_v1", 65536): 21265.04}
    for (tier, size), latency in rows.items():
        assert published_ns(tier, size) == pytest.approx(latency, abs=0.005)


def _latency_ns(
    kernels: dict[int, object], nbytes: int, place: tuple[int, int, int], machine: _core.Machine, space: str = "hbm"
) -> float:
    """Runs one kernel per PE of cube 0; every kernel sees its own HBM at 0 and `place`'s memory at 1 << 40."""
    builder = _core.ProgramBuilder(
        machine, "pattern", n_slots=4, slot_bytes=None, tier="tcm", credit_bytes=16, op_budget=1000
    )
    group = builder.group()
    far = builder.buffer(place, nbytes, space)
    for pe, kernel in kernels.items():
        own = builder.buffer((0, 0, pe), nbytes)
        views = [(0, nbytes), (1 << 40, nbytes)]
        body = builder.capture(kernel, (), (0, 0, pe), (machine.pes, machine.cubes), views, "f16")
        builder.agent(group, (0, 0, pe), (0, 0, pe), body, [own, far])
    return builder.finish().simulate(record=False).latency_ps / 1000


@pytest.mark.parametrize(("nbytes", "published"), [(128, 31.14), (256, 32.64), (384, 34.14)])
def test_pe_to_pe_message(nbytes: int, published: float) -> None:
    """`load` then `send` on PE 0, `recv` on PE 1; published before slot accesses were charged."""
    machine = load_machine("reference_torus", {"ipcq.tiers.tcm.bandwidth_gbs": ".inf"})
    shape = (nbytes // 2,)

    def sender(tl: Tl) -> None:
        tl.send(dir="pe1", src=tl.load(0, shape, "f16"))

    def receiver(tl: Tl) -> None:
        tl.recv(dir="pe0", shape=shape, dtype="f16")

    assert _latency_ns({0: sender, 1: receiver}, nbytes, (0, 0, 0), machine) == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    ("place", "published"),
    [((0, 0, 0), 77), ((0, 15, 7), 573), ((1, 0, 0), 409)],
    ids=["local", "far_cube", "remote_sip"],
)
def test_dma_read_of_16_kib(place: tuple[int, int, int], published: float) -> None:
    machine = load_machine("reference_torus", {"pe.dispatch_ns": 0})

    def reader(tl: Tl) -> None:
        tl.load(1 << 40, (8192,), "f16")

    assert _latency_ns({0: reader}, 16384, place, machine) == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(("nbytes", "published"), [(128, 12.02), (256, 13.02), (384, 14.02)])
def test_raw_dma_from_pe_to_pe(nbytes: int, published: float) -> None:
    """A one-sided copy into the fast memory of the PE next door; the value stored is free to make."""
    machine = load_machine("reference_torus", {"pe.dispatch_ns": 0, "pe.math.f16_per_ns": ".inf"})

    def writer(tl: Tl) -> None:
        tl.store(1 << 40, tl.zeros((nbytes // 2,), "f16"))

    assert _latency_ns({0: writer}, nbytes, (0, 0, 1), machine, "tcm") == pytest.approx(published, rel=0.02)
