"""The bound by the ports of PEs that exchange messages alone: its proof in small, and no run beats it."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

import ahbm
from ahbm import DPPolicy
from ahbm.runs.report import Report

CHANNEL = "one DMA write channel per PE"
CUBES = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2, "cube.pe_layout.corners": 1, "cube.pe_layout.pe_per_corner": 1}
ALGORITHMS = [
    "lrab_hierarchical_allreduce",
    "ring_allreduce",
    "bidirectional_ring_allreduce",
    "all_pairs_allreduce",
    "recursive_doubling_allreduce",
    "tree_allreduce",
]

READS_TILES = '''
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    return n_elem, cube_w * cube_h, dtype


def kernel(t_ptr, n_elem, cubes, dtype, sip_rank, kind, w, h, *, tl):
    """Two cubes: each reads the other's tile, tells that it has, and stores the sum."""
    cube = tl.program_id(axis=1)
    tile = n_elem * tl.itemsize(dtype)
    total = tl.load(t_ptr, (n_elem,), dtype) + tl.load(t_ptr + tile, (n_elem,), dtype)
    tl.send(dir=tl.peer(cube=1 - cube), src=tl.zeros((1,), dtype))
    tl.recv(dir=tl.peer(cube=1 - cube), shape=(1,), dtype=dtype)
    tl.store(t_ptr + cube * tile, total)
'''


def run(algorithm: str | None, nbytes: int, overrides: dict[str, object], topology: str | None = None) -> Report:
    return ahbm.run(
        "all_reduce",
        algorithm,
        topology,
        bytes_per_pe=nbytes,
        placement=DPPolicy(cube="row_wise"),
        overrides=overrides,
        data=False,
    )


@pytest.mark.parametrize("n", [2, 3, 4])
def test_as_many_messages_as_the_proof_counts_are_the_fewest(n: int) -> None:
    """Breadth first over everything that n PEs may know of each other's contributions, one message at a time."""
    front = {tuple(1 << pe for pe in range(n))}
    seen, messages = set(front), 0
    while not any(state == ((1 << n) - 1,) * n for state in front):
        after = set()
        for state in front:
            for source, target in permutations(range(n), 2):
                told = list(state)
                told[target] |= told[source]
                after.add(tuple(told))
        front, messages = after - seen, messages + 1
        seen |= front
    assert messages == 2 * (n - 1)


@pytest.mark.parametrize("model", ["cut_through", "flit", "analytic"])
@pytest.mark.parametrize("sips", [1, 2, 3])
def test_no_algorithm_beats_the_ports(model: str, sips: int) -> None:
    overrides: dict[str, object] = {**CUBES, "system.sips.count": sips, "system.network_model": model}
    for algorithm in ALGORITHMS:
        for nbytes in (64, 4096, 262_144):
            report = run(algorithm, nbytes, overrides)
            assert report.bound_ns is not None
            assert report.bound_ns <= report.latency_ns, (algorithm, nbytes, report.limited_by)
    n = 4 * sips
    assert CHANNEL in report.limited_by
    assert report.bound_ns == pytest.approx(2 * (n - 1) / n * nbytes / 128 + nbytes / 256, abs=0.01)


def test_ports_as_quick_as_can_be_limit_nothing() -> None:
    for key in ("pe.noc_port_gbs", "pe.noc_port_in_gbs"):
        assert (CHANNEL in run("ring_allreduce", 262_144, {**CUBES, key: ".inf"}).limited_by) == (key[-7:-4] == "_in")


def test_a_kernel_that_reads_tiles_of_others_is_not_held_to_it(tmp_path: Path) -> None:
    """Reads do not leave through the port of the PE that holds the tile, so such a kernel may be quicker."""
    module = tmp_path / "reads_tiles.py"
    module.write_text(READS_TILES, encoding="utf-8")
    overrides: dict[str, object] = {**CUBES, "system.sips.count": 1, "sip.cube_mesh.h": 1, "pe.noc_port_gbs": 8}
    read, sent = run(str(module), 262_144, overrides), run("ring_allreduce", 262_144, overrides)
    assert read.bound_ns is not None
    assert sent.bound_ns is not None
    assert CHANNEL in sent.limited_by
    assert CHANNEL not in read.limited_by
    assert read.bound_ns <= read.latency_ns < sent.bound_ns <= sent.latency_ns


@pytest.mark.parametrize("topology", [None, "reference_torus"])
def test_the_default_gets_near_the_ports(topology: str | None) -> None:
    report = run(None, 1 << 20, {}, topology)
    assert CHANNEL in report.limited_by
    assert (report.percent_of_bound or 0) >= 90
