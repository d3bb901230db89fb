"""Collectives whose ranks have unequal shares: what is sent, where it ends, how long it takes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ahbm.base.request import Request, Shares
from ahbm.check.case import Case
from ahbm.check.checks import examine, parse
from ahbm.check.reference import Reference
from ahbm.core.emulator import Emulator
from ahbm.ranks.setup import Setup
from ahbm.source.algorithm import PADDED
from support.choosing import compiled

COLLECTIVES = ("all_to_all", "all_gather", "reduce_scatter")
MACHINES = ("npu_ring_8", "npu_switch_8", "npu_fully_connected_8", "ring_1d", "switch")


def emulator(machine: str, ranks: int, **overrides: Any) -> Emulator:
    return Setup(topology=machine, overrides={"system.sips.count": ranks, **overrides}).emulator()


def shares(rng: random.Random, collective: str, ranks: int) -> Shares:
    lengths = (0, 1, 7, rng.randint(0, 300))
    return tuple(
        tuple(rng.choice(lengths) for _ in range(ranks)) for _ in range(ranks if collective == "all_to_all" else 1)
    )


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_element_that_counts_arrives_and_no_contribution_is_lost(machine: str, collective: str) -> None:
    rng = random.Random(f"{machine} {collective}")
    for ranks in (2, 3, 5, 8):
        found = shares(rng, collective, ranks)
        op = rng.choice(("sum", "max"))
        request = Request(collective, range(ranks), max(map(max, found)) or 1, "i32", op, shares=found)
        here = emulator(machine, ranks)
        case = Case(here, request)
        assert examine(case, case.compiled(), parse("all") - {"divergence"}) == ()
        assert (here.bound(request, case.compiled()).ps or 0) <= case.compiled().latency_ps
        arrays = [np.array([rng.randint(-99, 99) for _ in range(request.size)], np.int32) for _ in range(ranks)]
        buffers = [array.copy() for array in arrays]
        assert here.perform(request, buffers, case.by).notes == case.compiled().notes
        reference = Reference(request, arrays, exact=True)
        assert [party for party in range(ranks) if len(reference.wrong(party, buffers[party]))] == []


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_equal_shares_are_the_plain_collective(collective: str) -> None:
    plain = Request(collective, range(8), 40, "f32")
    rows = 8 if collective == "all_to_all" else 1
    assert replace(plain, shares=((40,) * 8,) * rows) == plain
    here = emulator("npu_ring_8", 8)
    almost = (*(((40,) * 8,) * (rows - 1)), (*(40,) * 7, 39))
    uneven = compiled(here, replace(plain, shares=almost))
    assert uneven.request.nbytes == plain.nbytes - (4 if rows == 1 else 0)
    assert uneven.latency_ps < 1.5 * compiled(here, plain).latency_ps


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("machine", ["npu_ring_8", "npu_switch_8"])
def test_a_ring_takes_the_bytes_and_not_eight_times_the_longest(machine: str, collective: str) -> None:
    """The same bytes in all, whoever has them: the slowest link carries all but the shares that it need not carry."""
    total, here = 8 << 18, emulator(machine, 8)
    equal = compiled(here, Request(collective, range(8), total // 8, "f32")).latency_ps
    lengths = (total - 7 * 1000, *(1000,) * 7)
    heavy = compiled(here, Request(collective, range(8), max(lengths), "f32", shares=(lengths,)))
    assert equal < heavy.latency_ps < 2.2 * equal
    assert heavy.latency_ps < compiled(here, heavy.request.padded()).latency_ps / 3


def test_an_exchange_takes_as_long_as_its_sends() -> None:
    """One heavy pair on a switch: its sender is busy with what it sends, one after the other, and then all is there."""
    unit, here = 1 << 16, emulator("npu_switch_8", 8)
    rows = [[unit] * 8 for _ in range(8)]
    rows[0][1] = 13 * unit
    found = compiled(here, Request("all_to_all", range(8), 13 * unit, "f32", shares=tuple(map(tuple, rows))))
    sent_ps = 4 * (13 + 6) * unit * 1000 // 50
    assert sent_ps < found.latency_ps < sent_ps + 2_000_000
    assert found.bytes == 4 * sum(map(sum, rows)) - 4 * 8 * unit
    bound = here.bound(found.request, found)
    assert sent_ps <= (bound.ps or 0) <= found.latency_ps and "sip0" in bound.reason


def test_an_algorithm_that_knows_no_shares_pads_them_and_says_so() -> None:
    here = Setup(topology="npu_ring_8", overrides={"algorithms.direct.synth": {"method": "direct"}}).emulator()
    rows = tuple(tuple(1 + rank + peer for peer in range(8)) for rank in range(8))
    request = Request("all_to_all", range(8), 15, "f32", shares=rows)
    padded = here.compile(request, "direct")
    assert PADDED in padded.notes
    assert padded.latency_ps == here.compile(request.padded(), "direct").latency_ps
    assert PADDED not in compiled(here, request).notes
