"""The words for ranks that wait, from planted states."""

from __future__ import annotations

import numpy as np
import pytest

import ahbm.distributed as dist
from ahbm import spawn
from ahbm.errors import DistributedError
from ahbm.ranks import stall
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.operation import Operation, Part, Ready
from ahbm.ranks.stall import RankState
from ahbm.ranks.terms import terms
from ahbm.ranks.ticket import Ticket

WORLD = ProcessGroup("WORLD", tuple(range(11)))


def never(operation: Operation) -> Ready:
    raise AssertionError("nobody performs it")


def waiting(ranks: list[RankState], label: str, members: tuple[int, ...], *arrived: int) -> None:
    operation = Operation(label, members, never)
    for rank in arrived:
        part = Part(Ticket(rank), WORLD, terms(WORLD, "barrier", 1, "f16"), None, lambda _: None, 0, f"job.py:{rank}")
        operation.add(part)
        ranks[rank].waiting = part


def test_every_kind_of_absence_has_its_words() -> None:
    ranks = [RankState(rank) for rank in range(7)]
    waiting(ranks, "all_reduce", tuple(range(7)), 0)
    waiting(ranks, "barrier", (1, 2), 1)
    ranks[2].finished = True
    error = stall.stalled(ranks)
    assert error.code == "AHBM-X121"
    assert [site.label for site in error.findings[0].sites] == [
        "rank 0 waits in all_reduce for rank 1, which waits in barrier and rank 2, which has returned "
        "and rank 3, which has not called it and rank 4, which has not called it and 2 more",
        "rank 1 waits in barrier for rank 2, which has returned",
    ]


def test_a_message_names_eight_ranks_and_its_sites_all() -> None:
    ranks = [RankState(rank) for rank in range(10)]
    waiting(ranks, "all_reduce", tuple(range(11)), *range(10))
    ranks.append(RankState(10, finished=True))
    error = stall.stalled(ranks)
    assert error.message.count("waits in all_reduce") == 8 and error.message.endswith("; and 2 more")
    assert [site.origin for site in error.findings[0].sites] == [f"job.py:{rank}" for rank in range(10)]


def test_silence_tells_who_computes_and_who_waits() -> None:
    ranks = [RankState(rank) for rank in range(4)]
    waiting(ranks, "all_reduce", (0, 1, 2, 3), 0, 3)
    ranks[2].finished = True
    parts = [state.waiting for state in ranks if state.waiting is not None]
    error = stall.silent(ranks, parts, 2.5)
    assert error.message == (
        "nothing happened for 2.5 s while rank 1 computed outside of any call and ranks 0, 3 waited"
    )
    assert stall.left_over(reversed(parts), ranks).message.startswith("all ranks have returned, but rank 0 waits in")


def test_tags_that_differ_are_named() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        if rank == 0:
            dist.send(np.ones(4), 1, tag=1)
        else:
            dist.recv(np.ones(4), 0)

    with pytest.raises(DistributedError, match="AHBM-X121") as caught:
        spawn(worker, nprocs=2)
    send, receive = "send to rank 1 (WORLD) with tag 1", "recv from rank 0 (WORLD) with tag 0"
    assert [site.label for site in caught.value.findings[0].sites] == [
        f"rank 0 waits in {send} for rank 1, which waits in {receive}",
        f"rank 1 waits in {receive} for rank 0, which waits in {send}",
    ]
    assert "same tag" in str(caught.value.hint)
