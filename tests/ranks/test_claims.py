"""A collective comes after the calls whose tensors it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ahbm.distributed as dist
from ahbm import spawn
from ahbm.base.arrays import flat_host
from ahbm.errors import DistributedError
from ahbm.ranks.claims import Claims, Touches
from ahbm.ranks.ticket import Ticket

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
Row = np.ndarray[Any, np.dtype[np.float64]]


def go(worker: Callable[[int], Any], ranks: int = 2) -> list[Any]:
    def run(rank: int) -> Any:
        dist.init_process_group("ahbm")
        return worker(rank)

    return spawn(run, nprocs=ranks, overrides={**SMALL, "system.sips.count": ranks})


@pytest.mark.parametrize(
    ("second", "want"),
    [
        (lambda x, out, group: dist.all_reduce(x, group=group, async_op=True), 6),
        (lambda x, out, group: dist.all_gather_into_tensor(out, x, group=group, async_op=True), 3),
        (lambda x, out, group: dist.all_gather([out[:4], out[4:]], x, group=group, async_op=True), 3),
        (lambda x, out, group: dist.reduce_scatter_tensor(out[:2], x, group=group, async_op=True), 6),
        (lambda x, out, group: dist.all_to_all_single(out[:4], x, group=group, async_op=True), 3),
        (lambda x, out, group: dist.broadcast(x, 1, group=group, async_op=True), 3),
        (lambda x, out, group: dist.reduce(x, 0, group=group, async_op=True), (6, 3)),
    ],
)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("step", [1, 2])
def test_it_takes_what_they_leave(second: Any, want: Any, groups: int, step: int) -> None:
    def worker(rank: int) -> float:
        group = dist.new_group() if groups == 2 else None
        x, out = np.full(4 * step, rank + 1.0)[::step], np.zeros(8)
        first = dist.all_reduce(x, async_op=True)
        later = second(x, out, group)
        later.wait()
        first.wait()
        return float(out[0] or x[-1])

    assert go(worker) == (list(want) if isinstance(want, tuple) else [want, want])


def test_it_waits_in_wall_time_alone() -> None:
    def worker(rank: int, chained: bool) -> float:
        x, y = np.ones(4), np.ones(4)
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x if chained else y, async_op=True)]
        for work in works:
            assert work is not None
            work.wait()
        return dist.simulated_time()

    assert go(lambda rank: worker(rank, True)) == go(lambda rank: worker(rank, False))


def test_a_pair_exchanges_one_buffer() -> None:
    def worker(rank: int) -> list[float]:
        x = np.full(4, float(rank))
        works = [dist.isend(x, 1 - rank), dist.irecv(x, 1 - rank)]
        for work in works:
            work.wait()
        dist.isend(x, 1 - rank)
        dist.all_reduce(x)
        got = np.zeros(4)
        dist.recv(got, 1 - rank)
        return [float(x[0]), float(got[0])]

    assert go(worker) == [[1.0, 0.0], [1.0, 1.0]]


def test_a_receive_goes_on_beside_elements_that_lie_between_its_own() -> None:
    def worker(rank: int) -> list[float]:
        x = np.full((4, 2), float(rank))
        work = dist.irecv(x[:, 0], 1 - rank)
        other = np.ones(4)
        dist.all_reduce(x[:, 1], async_op=True).wait()  # type: ignore[union-attr]
        dist.isend(other, 1 - rank)
        work.wait()
        return [float(v) for v in x[0]]

    assert go(worker) == [[1.0, 1.0], [1.0, 1.0]]


def test_what_a_call_has_copied_may_be_written_before_it_ends() -> None:
    def worker(rank: int) -> list[float]:
        x, out, peer = np.full(4, rank + 1.0), np.zeros(8), np.zeros(1)
        if rank == 1:
            dist.recv(peer, 0)
        works = [dist.all_gather_into_tensor(out, x, async_op=True), dist.all_reduce(x, async_op=True)]
        if rank == 0:
            dist.send(peer, 1)
        for work in works:
            assert work is not None
            work.wait()
        return [float(out[0]), float(out[7]), float(x[0])]

    assert go(worker) == [[1.0, 2.0, 3.0]] * 2


def test_ranks_that_wait_for_their_own_tensors_are_told_so() -> None:
    def worker(rank: int) -> None:
        x, peer = np.ones(4), np.zeros(1)
        if rank == 1:
            dist.recv(peer, 0)
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x, async_op=True)]
        if rank == 0:
            dist.send(peer, 1)
        for work in works:
            assert work is not None
            work.wait()

    with pytest.raises(DistributedError, match=r"AHBM-X121.*, whose tensors its next call has, for rank 1") as caught:
        go(worker)
    assert "give the calls tensors of their own" in str(caught.value)


def test_what_has_ended_is_let_go() -> None:
    settled: list[Ticket] = []
    claims = Claims(settled.append, settled.append)
    x = flat_host(np.zeros(4), writable=True)
    both = Touches((x,), (x,))
    ticket = Ticket(0, touches=both)
    claims.add(ticket)
    claims.make_way(both)
    assert settled == [ticket]
    ticket.end(None)
    assert ticket.touches is None
    claims.make_way(both)
    assert settled == [ticket]


@pytest.mark.parametrize(
    "x",
    [
        np.lib.stride_tricks.as_strided(np.zeros(4), (3, 4), (0, 8)),
        np.lib.stride_tricks.as_strided(np.zeros(8), (3, 4), (8, 8)),
        np.lib.stride_tricks.as_strided(np.zeros(9), (2, 3), (32, 16)),
    ],
)
def test_elements_that_share_memory_hold_no_result(x: Row) -> None:
    def worker(rank: int) -> tuple[str, ...]:
        codes = []
        for call in (
            lambda: dist.all_reduce(x),
            lambda: dist.broadcast(x, 0),
            lambda: dist.reduce(x, 0),
            lambda: dist.irecv(x, 1 - rank),
            lambda: dist.scatter(x, [x, x] if rank == 0 else None, 0),
        ):
            with pytest.raises(DistributedError) as caught:
                call()
            codes.append(caught.value.code)
        gathered = np.zeros(2 * x.size)
        dist.all_gather_into_tensor(gathered, x)
        return tuple(codes)

    assert go(worker) == [("AHBM-X130",) * 5] * 2


def test_strides_that_interleave_hold_a_result() -> None:
    def worker(rank: int) -> float:
        x = np.lib.stride_tricks.as_strided(np.ones(8), (2, 3), (24, 16))  # 0 2 4 and 3 5 7
        dist.all_reduce(x)
        return float(x.sum())

    assert go(worker) == [12.0, 12.0]
