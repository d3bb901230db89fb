"""Layouts: where the elements of a collective's tensors live, and which kernels work on them.

A `Layout` is pure arithmetic over group ranks. Three of them:

* lanes (host arrays): each chunk of a rank's tensor is cut over the SIP's cubes; cube l of every SIP forms lane l, a
  machine of one cube per SIP of its own;
* tiles (device tensors): every cube of a SIP holds one tile, the kernels of all of them form one launch;
* flat (the legacy mode): a rank is a PE, numbered ((sip * cubes) + cube) * pes + pe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Machine
from ahbm.errors import ConfigError, UnsupportedError

Place = tuple[int, int, int]
"""Physical (sip, cube, pe)."""


class Network(NamedTuple):
    """The network between SIPs, as a group of kernels sees it."""

    topology: str
    sips: int
    w: int = 0
    h: int = 0
    d: int = 0


class Lane(NamedTuple):
    """One group of kernels: what is the same on all its ranks."""

    n_elem: int
    """Elements of a chunk (or tile) per kernel."""
    offset: int
    """First element of the lane's part inside each chunk."""
    cube_w: int
    cube_h: int
    cubes: tuple[int, ...]
    """Cubes that run a kernel, each with a buffer of its own; virtual cube i is cubes[i]."""


@dataclass(frozen=True)
class Layout:
    """Everything that decides a program besides its kernel."""

    network: Network
    places: tuple[Place, ...]
    """Per group rank: its SIP, first cube and PE; a lane's cubes count from there."""
    chunks: int
    """Chunks in each buffer."""
    count: int
    """Elements of a chunk over all lanes."""
    lanes: tuple[Lane, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: a layout is part of the key under which every call looks its program up."""
        return hash((self.network, self.places, self.chunks, self.count, self.lanes))

    def pieces(self, lane: Lane, itemsize: int) -> NDArray[np.int64]:
        """The cut of a rank's array over the cubes of one lane, shape (pieces, 4): cube, first byte in the array, first
        byte in the cube's buffer, bytes. A piece is a chunk on a cube, or all of them where nothing lies between."""
        chunks, size = self.chunks, lane.n_elem * itemsize
        if lane.n_elem == self.count:
            chunks, size = 1, chunks * size
        cubes = np.arange(len(lane.cubes), dtype=np.int64)
        rows = np.empty((len(cubes), chunks, 4), np.int64)
        stride = self.chunks * self.count // chunks * itemsize
        rows[..., 0] = cubes[:, None]
        rows[..., 1] = (cubes[:, None] * chunks + np.arange(chunks)) * stride + lane.offset * itemsize
        rows[..., 2] = np.arange(chunks) * size
        rows[..., 3] = size
        return rows.reshape(-1, 4)


def share(length: int, lanes: int, lane: int) -> tuple[int, int]:
    """The part of `length` elements that one of `lanes` lanes has: its first element, and how many."""
    size, rest = divmod(length, lanes)
    return lane * size + min(lane, rest), size + (lane < rest)


def lanes(machine: Machine, ranks: Sequence[int], chunks: int, count: int) -> Layout:
    """Host arrays: `count` elements per chunk over the cubes of each SIP; group rank i is SIP `ranks[i]`."""
    used = max(1, min(machine.cubes, count))
    out = []
    for lane in range(used):
        offset, size = share(count, used, lane)
        out.append(Lane(size, offset, 1, 1, (lane,)))
    return Layout(_network(machine, ranks), tuple((sip, 0, 0) for sip in ranks), chunks, count, tuple(out))


def whole(machine: Machine, ranks: Sequence[int], chunks: int, count: int) -> Layout:
    """As `lanes`, with one lane on the first cube of every SIP: a plan knows ranks and no cubes."""
    lane = Lane(count, 0, 1, 1, (0,))
    return Layout(_network(machine, ranks), tuple((sip, 0, 0) for sip in ranks), chunks, count, (lane,))


def tiles(machine: Machine, ranks: Sequence[int], cubes: int, count: int) -> Layout:
    """Device tensors: a tile of `count` elements on each of the first `cubes` cubes of every SIP in `ranks`.

    Raises UnsupportedError (AHBM-U121) for cubes that make no mesh: neither a part of a row nor whole rows.
    """
    w = min(cubes, machine.cube_w)
    h = cubes // w
    if w * h != cubes:
        raise UnsupportedError(
            "AHBM-U121",
            f"a tensor on {cubes} of {machine.cube_w} x {machine.cube_h} cubes: they make no mesh",
            hint=f"num_cubes of at most {w}, or a multiple of {w}",
        )
    lane = Lane(count, 0, w, h, tuple(range(cubes)))
    return Layout(_network(machine, ranks), tuple((sip, 0, 0) for sip in ranks), 1, count, (lane,))


def flat(machine: Machine, ranks: Sequence[int], chunks: int, count: int) -> Layout:
    """The legacy mode: group rank i is PE `ranks[i]`; the network is the machine's kind where it is a square grid, else
    a ring."""
    places = []
    for rank in ranks:
        rest, pe = divmod(rank, machine.pes)
        sip, cube = divmod(rest, machine.cubes)
        places.append((sip, cube, pe))
    side = math.isqrt(len(ranks))
    square = machine.topology in ("torus_2d", "mesh_2d_no_wrap") and side * side == len(ranks)
    network = Network(machine.topology, len(ranks), side, side) if square else Network("ring_1d", len(ranks))
    return Layout(network, tuple(places), chunks, count, (Lane(count, 0, 1, 1, (0,)),))


def uneven_pieces(layout: Layout, lane: int, lengths: Sequence[int], itemsize: int) -> NDArray[np.int64]:
    """As `Layout.pieces` for a lane by its number, where only the first `lengths[c]` elements of chunk c count: each
    chunk is cut over all lanes."""
    n_elem, rows = layout.lanes[lane].n_elem, []
    for chunk, length in enumerate(lengths):
        first, size = share(length, len(layout.lanes), lane)
        if size:
            rows.append((0, chunk * layout.count + first, chunk * n_elem, size))
    return np.array(rows, np.int64).reshape(-1, 4) * (1, itemsize, itemsize, itemsize)


def check_ranks(machine: Machine, ranks: Sequence[int], world_size: int) -> None:
    """Raises ConfigError (AHBM-C120) for ranks outside the world or twice in it, C121 when the world is larger than the
    machine."""
    legacy = world_size > machine.sips
    available = machine.sips * machine.cubes * machine.pes if legacy else machine.sips
    if world_size > available:
        raise ConfigError(
            "AHBM-C121",
            f"world_size {world_size} is more than the machine's {machine.sips} SIPs and its {available} PEs",
            hint="lower world_size in ccl.yaml or raise system.sips.count",
        )
    wrong = sorted({rank for rank in ranks if not 0 <= rank < world_size})
    if wrong or len(set(ranks)) != len(ranks) or not ranks:
        what = f"rank {wrong[0]} is not in a world of {world_size}" if wrong else f"ranks {list(ranks)} are no group"
        raise ConfigError("AHBM-C120", what, hint="give each rank of the group once")


def _network(machine: Machine, ranks: Sequence[int]) -> Network:
    """The machine's own network for all SIPs in order, a ring for any other group."""
    if list(ranks) == list(range(machine.sips)):
        return Network(machine.topology, machine.sips, machine.sip_w, machine.sip_h, machine.sip_d)
    return Network("ring_1d", len(ranks))
