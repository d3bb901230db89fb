"""Layouts: every element in exactly one place, kernels of a lane alike, ranks where they belong."""

from __future__ import annotations

from functools import cache

import pytest

from ahbm._core import Machine
from ahbm.base import layout
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError


@cache
def machine(sips: int = 6, topology: str = "torus_2d", w: int = 3, h: int = 2) -> Machine:
    return load_machine(
        topology,
        {
            "system.sips.count": sips,
            "system.sips.w": w,
            "system.sips.h": h,
            "sip.cube_mesh.w": 2,
            "sip.cube_mesh.h": 2,
            "cube.pe_layout.corners": 2,
            "cube.pe_layout.pe_per_corner": 1,
        },
    )


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (1, [1]), (3, [1, 1, 1]), (4, [1, 1, 1, 1]), (11, [3, 3, 3, 2])]
)
def test_lanes_cut_a_chunk_into_almost_equal_parts(count: int, sizes: list[int]) -> None:
    shape = layout.lanes(machine(), range(6), 6, count)
    assert [lane.n_elem for lane in shape.lanes] == sizes
    assert [lane.offset for lane in shape.lanes] == [sum(sizes[:i]) for i in range(len(sizes))]
    assert [lane.cubes for lane in shape.lanes] == [(i,) for i in range(len(sizes))]
    assert {(lane.cube_w, lane.cube_h) for lane in shape.lanes} == {(1, 1)}
    assert shape.places[5] == (5, 0, 0)


@pytest.mark.parametrize("chunks", [1, 6])
@pytest.mark.parametrize("count", [1, 3, 4, 11])
def test_every_byte_is_in_one_place(count: int, chunks: int) -> None:
    tiles, lanes = layout.tiles(machine(), range(6), 4, count), layout.lanes(machine(), range(6), chunks, count)
    for shape, parties in ((tiles, 4), (lanes, 1), (layout.whole(machine(), range(6), chunks, count), 1)):
        array: list[int] = []
        for lane in shape.lanes:
            held: list[tuple[int, int]] = []
            for cube, first, at, size in shape.pieces(lane, 2).tolist():
                array += range(first, first + size)
                held += [(cube, byte) for byte in range(at, at + size)]
            buffers = [
                (cube, byte) for cube in range(len(lane.cubes)) for byte in range(shape.chunks * lane.n_elem * 2)
            ]
            assert sorted(held) == buffers
        assert sorted(array) == list(range(parties * shape.chunks * count * 2))


def test_the_full_world_keeps_the_network_and_a_subset_is_a_ring() -> None:
    assert layout.lanes(machine(), range(6), 1, 8).network == layout.Network("torus_2d", 6, 3, 2, machine().sip_d)
    subset = layout.lanes(machine(), (4, 1), 1, 8)
    assert subset.network == layout.Network("ring_1d", 2)
    assert subset.places == ((4, 0, 0), (1, 0, 0))
    assert layout.lanes(machine(), (1, 0, 2, 3, 4, 5), 1, 8).network.topology == "ring_1d"


def test_tiles_run_on_all_cubes_or_one() -> None:
    everywhere = layout.tiles(machine(), range(6), 4, 8)
    assert (everywhere.lanes[0].cube_w, everywhere.lanes[0].cube_h, everywhere.lanes[0].cubes) == (2, 2, (0, 1, 2, 3))
    one = layout.tiles(machine(), range(6), 1, 8)
    assert (one.lanes[0].cube_w, one.lanes[0].cube_h, one.lanes[0].cubes) == (1, 1, (0,))


def test_flat_ranks_are_pes() -> None:
    shape = layout.flat(machine(), range(9), 1, 5)
    assert shape.network == layout.Network("torus_2d", 9, 3, 3)
    assert shape.places[:3] == ((0, 0, 0), (0, 0, 1), (0, 1, 0))
    assert shape.places[8] == (1, 0, 0)
    assert [lane.n_elem for lane in shape.lanes] == [5]
    assert layout.flat(machine(), range(8), 1, 5).network == layout.Network("ring_1d", 8)


@pytest.mark.parametrize(
    ("ranks", "world", "code"),
    [((0, 6), 6, "AHBM-C120"), ((-1,), 6, "AHBM-C120"), ((1, 1), 6, "AHBM-C120"), ((), 6, "AHBM-C120"),
     ((0,), 49, "AHBM-C121")],
)  # fmt: skip
def test_impossible_groups(ranks: tuple[int, ...], world: int, code: str) -> None:
    with pytest.raises(ConfigError, match=code):
        layout.check_ranks(machine(), ranks, world)
    layout.check_ranks(machine(), range(48), 48)
