"""Calls made of flat tensors, without anybody to perform them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ahbm.base.arrays import Flat, Hollow, flat_host
from ahbm.front.marshal import Member
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.seat import Call
from ahbm.ranks.ticket import Ticket

RANKS = (1, 4, 6)
ME = 1
CALLS: dict[str, Any] = {
    "all_reduce": lambda me, x, whole, list_: me.all_reduce(x, "max"),
    "reduce": lambda me, x, whole, list_: me.reduce(x, "sum", 2),
    "broadcast": lambda me, x, whole, list_: me.broadcast(x, 0),
    "all_gather": lambda me, x, whole, list_: me.all_gather(list_, x),
    "all_gather_single": lambda me, x, whole, list_: me.all_gather_single(whole, x),
    "gather": lambda me, x, whole, list_: me.gather(list_, x, ME),
    "gather_single": lambda me, x, whole, list_: me.gather_single(whole, x, ME),
    "scatter": lambda me, x, whole, list_: me.scatter(x, list_, ME),
    "reduce_scatter": lambda me, x, whole, list_: me.reduce_scatter(x, list_, "sum"),
    "reduce_scatter_single": lambda me, x, whole, list_: me.reduce_scatter_single(x, whole, "sum"),
    "all_to_all": lambda me, x, whole, list_: me.all_to_all(list_, list_),
    "all_to_all_single": lambda me, x, whole, list_: me.all_to_all_single(whole, whole, (4, 4, 4), (4, 4, 4)),
    "send": lambda me, x, whole, list_: me.send(x, 6, 7),
    "recv": lambda me, x, whole, list_: me.recv(x, 6, 7),
    "barrier": lambda me, x, whole, list_: me.barrier(),
}


def host(size: int) -> Flat:
    return flat_host(np.arange(size, dtype=np.float32), writable=True)


def bare(size: int) -> Flat:
    return Flat(object(), Hollow(size, np.dtype(np.float32)), "f32")


def call(name: str, make: Any) -> Call:
    member = Member(ProcessGroup("some", RANKS), ME)
    made: Call = CALLS[name](member, make(4), make(12), [make(4) for _ in RANKS])
    return made


@pytest.mark.parametrize("name", CALLS)
def test_a_request_has_the_size_of_its_buffer(name: str) -> None:
    made = call(name, host)
    request = made.terms.request
    sent = made.source.size if made.kind != "exchange" else 0
    assert (request.size, tuple(request.ranks)) == (sent, RANKS)


@pytest.mark.parametrize("name", CALLS)
def test_tensors_without_data_make_the_same_calls(name: str) -> None:
    full, hollow = call(name, host), call(name, bare)
    assert full.terms.request == hollow.terms.request
    assert (full.give, full.take, full.peer) == (hollow.give, hollow.take, hollow.peer)
    for one, other in ((full.source, hollow.source), (full.target, hollow.target)):
        assert (one.size, one.dtype, one.nbytes) == (other.size, other.dtype, other.nbytes)
    hollow.finish(Ticket(4, members=(6, 4)))


def test_equal_calls_of_a_group_share_their_terms() -> None:
    group = ProcessGroup("some", RANKS)
    first, second = (Member(group, me).all_reduce(host(4), "max") for me in (0, 2))
    assert first.terms is second.terms
    assert Member(group, 0).all_reduce(host(4), "sum").terms != first.terms


def test_a_disagreement_is_told_in_global_ranks_and_in_order() -> None:
    x = host(4)
    group = ProcessGroup("some", RANKS)
    told = Member(group, ME).reduce(x, "max", 2).terms.texts()
    assert list(told.items()) == [
        ("collective", "reduce"),
        ("op", "max"),
        ("root", 6),
        ("dtype", "f32"),
        ("shape", (4,)),
        ("algorithm", "the one of ccl.yaml"),
    ]
    assert list(Member(group, ME).send(x, 6, 3).terms.texts()) == ["collective", "tag", "dtype", "elements"]


def test_a_flat_tensor_is_a_view_where_that_can_be_and_else_goes_back() -> None:
    whole = np.zeros((3, 2), np.int32)
    for tensor in (whole, whole[:, 1], whole.T):
        x = flat_host(tensor, writable=True)
        x.assign(np.arange(x.size, dtype=np.int32))
        assert np.array_equal(tensor.reshape(-1), np.arange(x.size))
        assert (x.restore is None) == np.shares_memory(x.array, tensor)


def test_a_read_only_array_is_not_hollow() -> None:
    tensor = np.broadcast_to(np.float32(3), (5,))
    x = flat_host(tensor, writable=False)
    assert isinstance(x.array, np.ndarray) and x.copy().tolist() == [3.0] * 5
