"""Features equal counts by hand on a ring, a tree, halving-doubling and a mesh."""

from __future__ import annotations

from math import log2

import pytest

import ahbm
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.features import INPUTS, OF_DEMANDS, OF_MACHINES, VECTOR, Demand, Describer, Features
from ahbm.config.topology import load_machine
from ahbm.core.compiled import Refusal
from ahbm.errors import AhbmError

ALPHA, NS_PER_BYTE = 500.0, 1 / 50
"""Of the links of the packaged NPUs: 500 ns, 50 GB/s."""
SIZE = 1 << 20


def described(topology: str, algorithm: str, nbytes: int = SIZE, collective: str = "all_reduce") -> Features:
    catalogue = Catalogue.of(collective, [algorithm])
    found = Describer(catalogue, collective).describe(load_machine(topology), nbytes, catalogue[0].name)
    assert isinstance(found, Features) and found.program is not None
    return found


def test_a_ring() -> None:
    # 2(n - 1) steps of n messages, each of a chunk to the neighbour.
    found = described("npu_ring_8", "ring_allreduce")
    program, chunk = found.program, SIZE / 8 * NS_PER_BYTE
    assert program is not None
    assert (program.chunk_count, program.dependency_depth, program.branch_factor) == (112, 14, 1)
    assert (program.sent_bytes, program.busiest_bytes) == (14 * SIZE, 14 * SIZE // 8)
    assert program.path_ns == pytest.approx(14 * (ALPHA + chunk)) and program.link_ns == pytest.approx(14 * chunk)
    assert program.rounds_ns == pytest.approx(program.path_ns) == pytest.approx(found.floor_ns)
    assert program.queue_depth == 1
    # Every SIP is a part of the tight cut of a ring: all chunks cross it.
    assert program.cut_bytes == 14 * SIZE
    emulated = ahbm.run("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=SIZE, data=False).latency_ns
    assert emulated == pytest.approx(program.path_ns)


def test_a_tree() -> None:
    # Up and down a binomial tree of 8, the whole array in each message; edges are 1, 2 and 4 links of the ring.
    program = described("npu_ring_8", "tree_allreduce").program
    assert program is not None
    assert (program.chunk_count, program.dependency_depth, program.branch_factor) == (14, 6, 3)
    assert (program.sent_bytes, program.busiest_bytes) == (14 * SIZE, 3 * SIZE)
    hops = 2 * (1 + 2 + 4)
    # A message is passed on when its first flit has arrived.
    flits = (hops - 6) * 256 * NS_PER_BYTE
    assert program.path_ns == pytest.approx(hops * ALPHA + 6 * SIZE * NS_PER_BYTE, abs=flits)


def test_halving_and_doubling() -> None:
    found = described("npu_hypercube_16", "synth:halving_doubling")
    program, whole = found.program, SIZE * NS_PER_BYTE
    assert program is not None
    assert (program.dependency_depth, program.sent_bytes) == (8, 30 * SIZE)
    assert program.busiest_bytes == 30 * SIZE // 16
    # The link of the first dimension carries halves, out and back; the others less.
    assert program.link_ns == pytest.approx(whole)
    # Halving takes 15 chunks on the busiest link of each depth. A chunk that is doubled has the depth of its way:
    # of the 8 that cross the last dimension, 1, 3, 3 and 1 are equally deep.
    assert program.rounds_ns == pytest.approx(8 * ALPHA + (15 + 8) / 16 * whole)


def test_a_mesh() -> None:
    machine = load_machine("npu_mesh_4x4").features()
    assert (machine.ranks, machine.links, machine.least_degree, machine.most_degree) == (16, 48, 2, 4)
    assert (machine.diameter, machine.bisection_links, machine.bisection_gbs) == (6, 4, 200)
    assert machine.dimensions == [4, 4] and machine.latency_ns == [500.0] * 3 and machine.bandwidth_gbs == [50.0] * 3
    found = described("npu_mesh_4x4", "ring_allreduce")
    assert found.demand.bound_latency_ns == 6 * ALPHA
    # Every rank is a part of the tight cut: 2 (16 - 1) arrays cross its 48 links.
    assert found.demand.bound_bandwidth_ns == pytest.approx(ALPHA + 30 / 48 * SIZE * NS_PER_BYTE)
    assert found.program is not None and found.program.cut_bytes == 30 * SIZE == found.program.sent_bytes
    assert found.demand.bound_ns == max(found.demand.bound_latency_ns, found.demand.bound_bandwidth_ns)


@pytest.mark.parametrize("topology", ["npu_ring_8", "npu_switch_8", "npu_mesh_4x4", None])
@pytest.mark.parametrize("nbytes", [4096, 1 << 22])
def test_no_run_is_quicker_than_its_floor(topology: str | None, nbytes: int) -> None:
    machine = load_machine(topology)
    algorithms = ["ring_allreduce", "all_pairs_allreduce", "recursive_doubling_allreduce", "synth:direct"]
    catalogue = Catalogue.of("all_reduce", algorithms)
    describer = Describer(catalogue)
    for entry in catalogue:
        found = describer.describe(machine, nbytes, entry.name)
        report = ahbm.run(
            "all_reduce", entry.name, machine, bytes_per_rank=nbytes, overrides=catalogue.overrides, data=False
        )
        assert isinstance(found, Features) and found.program is not None
        assert found.demand.bound_ns == report.bound_ns
        assert found.floor_ns <= report.latency_ns * 1.001, entry.name


def test_numbers_have_no_unit() -> None:
    # Twice the latency at half the bandwidth: all times double, and nothing that a model sees changes.
    link = "system.sips.link"
    catalogue = Catalogue.of("all_reduce", ["ring_allreduce", "synth:trees"])
    describer = Describer(catalogue)
    quick = load_machine("npu_torus_4x4", {f"{link}.bandwidth_gbs": 100, f"{link}.latency_ns": 200})
    slow = load_machine("npu_torus_4x4", {f"{link}.bandwidth_gbs": 50, f"{link}.latency_ns": 400})
    for nbytes in (1 << 12, 1 << 20):
        one, other = describer.demand(quick, nbytes), describer.demand(slow, nbytes)
        assert one.inputs() == pytest.approx(other.inputs()) and len(one.inputs()) == len(INPUTS)
        for entry in catalogue:
            vectors = [describer.describe(machine, nbytes, entry.name).vector() for machine in (quick, slow)]
            assert vectors[0] == pytest.approx(vectors[1], abs=1e-6) and len(vectors[0]) == len(VECTOR)


def test_what_does_not_run_is_a_refusal() -> None:
    catalogue = Catalogue.of("all_reduce", ["synth:swing"])
    found = Describer(catalogue).describe(load_machine("npu_switch_8"), SIZE, "synth_swing")
    assert isinstance(found, Refusal) and found.code == "AHBM-U406"
    with pytest.raises(AhbmError, match="no algorithm"):
        Describer(catalogue).describe(load_machine("npu_switch_8"), SIZE, "ring")


def test_shares_are_bounded_as_runs_are() -> None:
    for collective, name in (("all_gather", "ring_all_gather"), ("all_to_all", "pairwise_all_to_all")):
        found = described("npu_ring_8", name, SIZE, collective)
        report = ahbm.run(collective, name, "npu_ring_8", bytes_per_rank=SIZE, data=False)
        assert found.demand.bound_ns == report.bound_ns


def test_every_field_has_a_unit() -> None:
    machine = load_machine("npu_ring_8").features()
    assert set(OF_MACHINES) == {name for name in dir(machine) if not name.startswith("_")}
    assert set(OF_DEMANDS) == set(Demand.__dataclass_fields__)
    assert described("npu_ring_8", "ring_allreduce").inputs()[0] == log2(SIZE)
