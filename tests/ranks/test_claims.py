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
from ahbm.ranks.seat import Call
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


@pytest.mark.parametrize("kind", ["in place", "copied", "strided", "sent"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_rank_goes_on_beside_a_call_that_comes_after_another(kind: str, groups: int) -> None:
    def worker(rank: int) -> list[float]:
        group = dist.new_group() if groups == 2 else None
        x, out, token = np.full(8, rank + 1.0)[:: 2 if kind == "strided" else 1], np.zeros(16), np.zeros(1)
        if rank == 1:
            dist.recv(token, 0)
        works = [dist.all_reduce(x, async_op=True)]
        if kind == "copied":
            works.append(dist.all_gather_into_tensor(out, x, group=group, async_op=True))
        elif kind == "sent":
            works += [dist.isend(x, 1 - rank, tag=1), dist.irecv(out[:8], 1 - rank, tag=1)]
        else:
            works.append(dist.all_reduce(x, group=group, async_op=True))
        works.append(dist.all_reduce(x, async_op=True))  # comes after them all
        if rank == 0:
            dist.send(token + 5, 1)  # the other rank has not issued one
        for work in works:
            assert work is not None
            work.wait()
        return [float(token[0]), float(x[0]), float(out[0])]

    seen = {"in place": (12.0, 0.0), "strided": (12.0, 0.0), "copied": (6.0, 3.0), "sent": (6.0, 3.0)}[kind]
    assert go(worker) == [[0.0, *seen], [5.0, *seen]]


def test_operations_of_a_group_keep_their_order() -> None:
    def worker(rank: int) -> tuple[float, list[float]]:
        group = dist.new_group()
        x, other, token = np.ones(1 << 12), np.ones(1 << 12), np.zeros(1)
        if rank == 1:
            dist.recv(token, 0)
        works = [
            dist.all_reduce(x, async_op=True),
            dist.all_reduce(x, group=group, async_op=True),
            dist.all_reduce(other, group=group, async_op=True),
        ]
        if rank == 0:
            dist.send(token, 1)
        for work in works:
            assert work is not None
            work.wait()
        ends = [call.start_ns + call.latency_ns for call in dist.stats() if call.collective == "all_reduce"]
        return dist.simulated_time(), ends

    (time, ends), (_, other_ends) = go(worker)
    assert ends == other_ends and ends[1] < ends[2] <= time


def test_a_failed_call_lets_those_go_on_that_come_after_it() -> None:
    def worker(rank: int) -> list[float | str]:
        x = np.full(4, rank + 1.0)
        works = [
            dist.all_reduce(x, op=dist.ReduceOp.SUM if rank else dist.ReduceOp.MAX, async_op=True),
            dist.all_reduce(x, async_op=True),
        ]
        told: list[float | str] = []
        for work in works:
            assert work is not None
            try:
                work.wait()
                told.append(float(x[0]))
            except DistributedError as error:
                told.append(error.code)
        return told

    assert go(worker) == [["AHBM-X110", 3.0]] * 2


def test_an_operand_that_cannot_be_read_is_the_error_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Call.read

    def unreadable(call: Call, again: bool = True) -> None:
        if call.after and call.collective == "all_gather":
            raise DistributedError("AHBM-X130", "the memory is gone")
        read(call, again)

    monkeypatch.setattr(Call, "read", unreadable)

    def worker(rank: int) -> float:
        x, out = np.full(4, rank + 1.0), np.zeros(8)
        first = dist.all_reduce(x, async_op=True)
        second = dist.all_gather_into_tensor(out, x, async_op=True)
        third = dist.all_reduce(x, async_op=True)
        assert first is not None and second is not None and third is not None
        if rank == 0:  # so that the calls of one rank at least come after one another
            dist.send(np.zeros(1), 1)
        with pytest.raises(DistributedError, match="AHBM-X130 the memory is gone"):
            second.wait()
        third.wait()
        return float(x[0])

    def late(rank: int) -> float:
        if rank == 1:
            dist.recv(np.zeros(1), 0)
        return worker(rank)

    assert go(late) == [6.0, 6.0]


def test_ranks_that_order_the_calls_of_a_tensor_differently_are_told_so() -> None:
    def worker(rank: int) -> None:
        group, x = dist.new_group(), np.ones(4)
        works = [dist.all_reduce(x, group=each, async_op=True) for each in ([None, group] if rank else [group, None])]
        for work in works:
            assert work is not None
            work.wait()

    with pytest.raises(DistributedError, match=r"AHBM-X121.*, where rank 1's part comes after .* the same") as caught:
        go(worker)
    assert "in the same order on all ranks" in str(caught.value)


def test_a_call_that_comes_after_one_that_a_rank_never_makes_says_so() -> None:
    def worker(rank: int) -> None:
        group, x = dist.new_group(), np.ones(4)
        if rank == 0:
            dist.all_reduce(x, async_op=True)
        dist.all_reduce(x, group=group)

    with pytest.raises(DistributedError) as caught:
        go(worker)
    assert "where its own part comes after all_reduce (call 2 of WORLD), which has the same tensors and waits for " in (
        str(caught.value)
    )


def test_what_nobody_waits_for_is_left_over() -> None:
    def worker(rank: int) -> None:
        group, x = dist.new_group(), np.ones(4)
        for each in [None, group] if rank else [group, None]:
            dist.all_reduce(x, group=each, async_op=True)

    with pytest.raises(DistributedError, match="AHBM-X123"):
        go(worker)


def test_what_has_ended_is_let_go() -> None:
    detached: list[Ticket] = []
    claims = Claims(detached.append)
    x = flat_host(np.zeros(4), writable=True)
    first, second, third = (
        Call("collective", None, None, x.array, lambda _: None, touches=Touches((x,), (x,)))  # type: ignore[arg-type]
        for _ in range(3)
    )
    claims.order(first)
    ticket = Ticket(0, touches=first.touches)
    claims.add(ticket)
    claims.order(second)
    assert second.after == (ticket,) and not first.after
    ticket.end(None)
    assert ticket.touches is None
    claims.order(third)
    assert not third.after and not claims.open and not detached


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
