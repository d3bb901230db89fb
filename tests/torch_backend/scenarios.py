"""What every mode must do: each scenario runs on all ranks, after `init_process_group`, and asserts its results."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ahbm.errors import DistributedError

Scenario = Callable[[], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def data(rank: int, n: int = 37, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small numbers, all sums of which are exact in every dtype."""
    values = (torch.arange(n) * 7 + 3 * rank) % 5 + 1
    return values.to(dtype) if dtype is not torch.bool else values % 2 == 0


def everyone() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


@scenario
def all_reduce_of_every_dtype() -> None:
    rank, n = everyone()
    for dtype in DTYPES:
        x = data(rank, dtype=dtype)
        dist.all_reduce(x)
        want = torch.stack([data(r, dtype=dtype) for r in range(n)])
        assert torch.equal(x, want.any(0) if dtype is torch.bool else want.sum(0).to(dtype)), dtype


@scenario
def every_operator() -> None:
    rank, n = everyone()
    for dtype in (torch.float32, torch.int32):
        all_of_them = torch.stack([data(r, dtype=dtype) for r in range(n)])
        want = {
            dist.ReduceOp.SUM: all_of_them.sum(0),
            dist.ReduceOp.PRODUCT: all_of_them.prod(0),
            dist.ReduceOp.MIN: all_of_them.min(0).values,
            dist.ReduceOp.MAX: all_of_them.max(0).values,
        }
        if dtype is torch.int32:
            band, bor, bxor = all_of_them[0].clone(), all_of_them[0].clone(), all_of_them[0].clone()
            for other in all_of_them[1:]:
                band, bor, bxor = band & other, bor | other, bxor ^ other
            want |= {dist.ReduceOp.BAND: band, dist.ReduceOp.BOR: bor, dist.ReduceOp.BXOR: bxor}
        for op, expected in want.items():
            x = data(rank, dtype=dtype)
            dist.all_reduce(x, op)
            assert torch.equal(x, expected.to(dtype)), (op, dtype)
    x = data(rank)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    torch.testing.assert_close(x, torch.stack([data(r) for r in range(n)]).mean(0))
    x = data(rank)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    assert torch.equal(x, torch.stack([data(r) for r in range(n)]).sum(0) * 0.5)


@scenario
def operators_that_a_dtype_does_not_have() -> None:
    for x, op in ((data(0), dist.ReduceOp.BAND), (data(0, dtype=torch.bool), dist.ReduceOp.AVG)):
        try:
            dist.all_reduce(x, op)
        except NotImplementedError as error:
            assert "AHBM-U151" in str(error)
        else:
            raise AssertionError("no error")


@scenario
def tensors_of_any_strides() -> None:
    rank, n = everyone()
    x = data(rank, 12).reshape(3, 4).t()
    dist.all_reduce(x)
    assert torch.equal(x, sum(data(r, 12).reshape(3, 4).t() for r in range(n)))
    whole = torch.zeros(4, 6)
    whole[:, ::2] = rank + 1
    dist.all_reduce(whole[:, ::2])
    assert torch.equal(whole[:, ::2], torch.full((4, 3), n * (n + 1) / 2)) and not whole[:, 1::2].any()
    for empty in (torch.zeros(0), torch.zeros(3, 0)):
        dist.all_reduce(empty)
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar, dist.ReduceOp.MAX)
    assert scalar.item() == n - 1


@scenario
def tensors_are_resized_afterwards() -> None:
    rank, n = everyone()
    for dtype in DTYPES:
        x = data(rank, 4, dtype)
        dist.all_reduce(x)
        x.resize_(8)
    x, out = data(rank, 4), torch.zeros(n * 4)
    dist.all_gather_into_tensor(out, x)
    out.untyped_storage().resize_(0)
    torch.cat([data(1, 4), data(2, 4)], out=x.resize_(0))
    assert torch.equal(x, torch.cat([data(1, 4), data(2, 4)]))
    try:
        dist.all_reduce(out)
    except RuntimeError as error:
        assert "AHBM-X130 a tensor of" in str(error), error
    else:
        raise AssertionError("no error")


@scenario
def memory_that_only_the_operation_keeps() -> None:
    """A tensor gets other memory, or is forgotten, while an operation works on what it had."""
    rank, n = everyone()
    right, left = (rank + 1) % n, (rank - 1) % n
    for forget in (True, False):
        x, got = data(rank, 1 << 16), torch.zeros(1 << 16)
        sending = dist.isend(x, right)
        if forget:
            del x
        else:
            x.data = torch.zeros(1)
        litter = [torch.full((1 << 16,), -1.0) for _ in range(4)]
        dist.recv(got, left)
        sending.wait()
        assert torch.equal(got, data(left, 1 << 16)) and len(litter) == 4


@scenario
def roots_and_peers_outside_of_the_group() -> None:
    rank, n = everyone()
    for ranks in (range(n), [n - 1, 0]):
        group = dist.new_group(list(ranks))
        if rank not in ranks:
            continue
        size, x = len(ranks), data(rank)
        for bad in (-1, size, size + 5):
            gather, scatter = dist.GatherOptions(), dist.ScatterOptions()
            gather.rootRank = scatter.rootRank = bad
            calls: list[Callable[[], object]] = [
                lambda bad=bad, x=x, group=group: dist.broadcast(x, group=group, group_src=bad),
                lambda bad=bad, x=x, group=group: dist.reduce(x, group=group, group_dst=bad),
                lambda bad=bad, x=x, group=group: dist.gather(x, None, group=group, group_dst=bad),
                lambda bad=bad, x=x, group=group: dist.scatter(x, None, group=group, group_src=bad),
                lambda x=x, group=group, gather=gather: group.gather([[]], [x], gather),
                lambda x=x, group=group, scatter=scatter: group.scatter([x], [[]], scatter),
                lambda bad=bad, x=x, group=group: dist.isend(x, group=group, group_dst=bad),
                lambda bad=bad, x=x, group=group: dist.irecv(x, group=group, group_src=bad),
                lambda bad=bad, x=x, group=group: group.send([x], bad, 0),
                lambda bad=bad, x=x, group=group: group.recv([x], bad, 0),
            ]
            for call in calls:
                try:
                    call()
                except RuntimeError as error:
                    assert "AHBM-X131" in str(error) and f"={bad} is no rank of group" in str(error), error
                    assert f"are 0 to {size - 1}" in str(error), error
                else:
                    raise AssertionError("no error")
        if rank == 0:
            try:
                dist.broadcast(x, n, group=dist.group.WORLD)
            except RuntimeError as error:
                assert "AHBM-X131" in str(error), error
            else:
                raise AssertionError("no error")
    # The errors have left nothing behind.
    x = data(rank)
    dist.all_reduce(x)
    assert torch.equal(x, sum(data(r) for r in range(n)))


@scenario
def broadcast_and_reduce_from_every_root() -> None:
    rank, n = everyone()
    for root in range(n):
        x = data(rank)
        dist.broadcast(x, root)
        assert torch.equal(x, data(root))
        x = data(rank)
        dist.reduce(x, root)
        assert torch.equal(x, sum(data(r) for r in range(n)) if rank == root else data(rank))


@scenario
def gathers() -> None:
    rank, n = everyone()
    outs = [torch.zeros(37) for _ in range(n)]
    dist.all_gather(outs, data(rank))
    assert all(torch.equal(out, data(r)) for r, out in enumerate(outs))
    uneven = [torch.zeros(3 + r) for r in range(n)]
    dist.all_gather(uneven, data(rank, 3 + rank))
    assert all(torch.equal(out, data(r, 3 + r)) for r, out in enumerate(uneven))
    whole = torch.zeros(n, 37)
    dist.all_gather_into_tensor(whole, data(rank))
    assert all(torch.equal(row, data(r)) for r, row in enumerate(whole))
    # In place: the input is a part of the output.
    whole = torch.zeros(n * 5)
    mine = whole[rank * 5 : (rank + 1) * 5]
    mine.copy_(data(rank, 5))
    dist.all_gather_into_tensor(whole, mine)
    assert torch.equal(whole, torch.cat([data(r, 5) for r in range(n)]))
    for root in range(n):
        got = [torch.zeros(4) for _ in range(n)] if rank == root else None
        dist.gather(data(rank, 4), got, dst=root)
        assert got is None or all(torch.equal(out, data(r, 4)) for r, out in enumerate(got))


@scenario
def bytes_of_types_that_no_kernel_knows() -> None:
    rank, n = everyone()
    x = data(rank).to(torch.float8_e5m2fnuz)
    out = torch.zeros(n * 37, dtype=torch.float8_e5m2fnuz)
    dist.all_gather_into_tensor(out, x)
    assert torch.equal(out.float(), torch.cat([data(r).to(torch.float8_e5m2fnuz).float() for r in range(n)]))


@scenario
def float8_reductions() -> None:
    rank, n = everyone()
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        given = [torch.tensor([1.0, -2.0, 0.5, r, 0.25 * r, 2.0 ** (r % 3)]).to(dtype) for r in range(n)]
        wide = torch.stack([x.float() for x in given])
        want = {
            dist.ReduceOp.SUM: wide.sum(0),
            dist.ReduceOp.AVG: wide.mean(0),
            dist.ReduceOp.PRODUCT: wide.prod(0),
            dist.ReduceOp.MIN: wide.min(0).values,
            dist.ReduceOp.MAX: wide.max(0).values,
        }
        for op, expected in want.items():
            x = given[rank].clone()
            dist.all_reduce(x, op)
            assert torch.equal(x.float(), expected.to(dtype).float()), (op, dtype, x, expected)
            x = given[rank].repeat(1, 2).t()
            dist.reduce(x, 1, op)
            assert rank != 1 or torch.equal(x.float(), expected.to(dtype).float().repeat(1, 2).t()), (op, dtype)
            out = torch.zeros(6, dtype=dtype)
            dist.reduce_scatter_tensor(out, given[rank].repeat(n), op)
            assert torch.equal(out.float(), expected.to(dtype).float()), (op, dtype)
        x = given[rank].clone()
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
        assert torch.equal(x.float(), (wide * 0.5).to(dtype).float().sum(0).to(dtype).float())


def sparse_part(rank: int) -> torch.Tensor:
    """Rank 1 has nothing; the others have entries of their own, entries in common, and one twice."""
    entries = [] if rank == 1 else [(0, 1), (rank, 2), (rank, 2), (3, rank % 4)]
    values = torch.arange(3.0 * len(entries)).reshape(-1, 3) + rank
    return torch.sparse_coo_tensor(
        torch.tensor(entries, dtype=torch.int64).reshape(-1, 2).t(), values, (8, 4, 3), check_invariants=False
    )


@scenario
def sparse_all_reduce() -> None:
    rank, n = everyone()
    want = sum(sparse_part(r).to_dense() for r in range(n))
    for asynchronous in (False, True):
        x = sparse_part(rank)
        work = dist.all_reduce(x, async_op=asynchronous)
        if asynchronous:
            work.wait()
            assert work.is_completed() and work.get_future().wait()[0] is x
        assert x.is_coalesced() and torch.equal(x.to_dense(), want)
    for _ in range(2):
        x = torch.zeros(0, 4).to_sparse()
        dist.all_reduce(x)
        assert x.shape == (0, 4)
    try:
        dist.all_reduce(sparse_part(rank), dist.ReduceOp.MAX)
    except NotImplementedError as error:
        assert "AHBM-U151" in str(error) and "only works with ReduceOp.SUM" in str(error)
    else:
        raise AssertionError("no error")
    try:
        dist.all_reduce(torch.eye(4 + rank).to_sparse())
    except RuntimeError as error:
        assert "AHBM-X110" in str(error) and "Sparse dimensions do not match" in str(error)
    else:
        assert n == 1


@scenario
def scatters() -> None:
    rank, n = everyone()
    for root in range(n):
        out = torch.zeros(4)
        dist.scatter(out, [data(root + r, 4) for r in range(n)] if rank == root else None, src=root)
        assert torch.equal(out, data(root + rank, 4))
    out = torch.zeros(6)
    dist.reduce_scatter(out, [data(rank + r, 6) for r in range(n)])
    assert torch.equal(out, sum(data(r + rank, 6) for r in range(n)))
    dist.reduce_scatter_tensor(out, torch.cat([data(rank + r, 6) for r in range(n)]), dist.ReduceOp.MAX)
    assert torch.equal(out, torch.stack([data(r + rank, 6) for r in range(n)]).max(0).values)
    uneven = torch.zeros(2 + rank)
    dist.reduce_scatter(uneven, [data(rank, 2 + r) for r in range(n)])
    assert torch.equal(uneven, sum(data(r, 2 + rank) for r in range(n)))


@scenario
def exchanges() -> None:
    rank, n = everyone()
    outs = [torch.zeros(3 + r + rank) for r in range(n)]
    dist.all_to_all(outs, [data(10 * rank + r, 3 + r + rank) for r in range(n)])
    assert all(torch.equal(out, data(10 * r + rank, 3 + r + rank)) for r, out in enumerate(outs))
    out = torch.zeros(n, 2)
    dist.all_to_all_single(out, torch.stack([data(10 * rank + r, 2) for r in range(n)]))
    assert torch.equal(out, torch.stack([data(10 * r + rank, 2) for r in range(n)]))
    sends = [rank + r for r in range(n)]
    rows = torch.cat([data(10 * rank + r, 2 * sends[r]).reshape(-1, 2) for r in range(n)])
    got = torch.zeros(sum(sends), 2)
    dist.all_to_all_single(got, rows, sends, sends)
    assert torch.equal(got, torch.cat([data(10 * r + rank, 2 * sends[r]).reshape(-1, 2) for r in range(n)]))


@scenario
def sends_and_receives() -> None:
    rank, n = everyone()
    right, left = (rank + 1) % n, (rank - 1) % n
    x = torch.zeros(5)
    works = [dist.isend(data(rank, 5), right), dist.irecv(x, left)]
    for work in works:
        assert work is not None
        work.wait()
        assert work.is_completed()
    assert torch.equal(x, data(left, 5))
    ops = [dist.P2POp(dist.isend, data(rank, 6), left), dist.P2POp(dist.irecv, y := torch.zeros(6), right)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(y, data(right, 6))
    # Tags choose, whatever the order.
    if rank == 0:
        dist.send(data(1, 3), 1, tag=1)
        dist.send(data(2, 3), 1, tag=2)
    elif rank == 1:
        a, b = torch.zeros(3), torch.zeros(3)
        later = dist.irecv(b, 0, tag=2)
        dist.recv(a, 0, tag=1)
        assert later is not None
        later.wait()
        assert torch.equal(a, data(1, 3)) and torch.equal(b, data(2, 3))


@scenario
def receives_from_anyone() -> None:
    rank, n = everyone()
    if rank == 0:
        seen = set()
        for _ in range(n - 1):
            x = torch.zeros(4)
            sender = dist.recv(x)
            assert torch.equal(x, data(sender, 4))
            seen.add(sender)
        assert seen == set(range(1, n))
    else:
        dist.send(data(rank, 4), 0)
    dist.barrier()


@scenario
def handles() -> None:
    rank, n = everyone()
    x = data(rank)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None and work.wait(timedelta(0)) and work.is_completed() and work.is_success()
    y = data(rank)
    future = dist.all_reduce(y, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    assert torch.equal(doubled.wait(), 2 * x) and torch.equal(future.value()[0], x)
    assert isinstance(future.value(), list)
    # A callback may hold a collective of its own.
    z = data(rank)

    def again(done: Any) -> Any:
        w = torch.ones(3)
        dist.all_reduce(w, group=dist.group.WORLD)
        return w

    assert torch.equal(dist.all_reduce(z, async_op=True).get_future().then(again).wait(), torch.full((3,), float(n)))


@scenario
def groups() -> None:
    rank, n = everyone()
    for ranks in ([0, n - 1], list(range(n)), [1], list(reversed(range(n)))):
        group = dist.new_group(ranks)
        if rank in ranks:
            x = data(rank)
            dist.all_reduce(x, group=group)
            assert torch.equal(x, sum(data(r) for r in ranks))
            dist.broadcast(x, ranks[-1], group=group)
            me = dist.get_group_rank(group, rank)
            out = torch.zeros(len(ranks) * 2)
            dist.all_gather_into_tensor(out, torch.full((2,), float(me)), group=group)
            assert torch.equal(out, torch.arange(len(ranks)).repeat_interleave(2).float())
    assert dist.get_backend() == "ahbm"


@scenario
def splits() -> None:
    rank, n = everyone()
    split = dist.split_group(split_ranks=[[1, 0], list(range(2, n))])
    ranks = [1, 0] if rank < 2 else list(range(2, n))
    assert dist.get_process_group_ranks(split) == ranks and split.rank() == ranks.index(rank)
    x = data(rank)
    dist.broadcast(x, group=split, group_src=0)
    assert torch.equal(x, data(ranks[0]))


@scenario
def splits_that_leave_a_rank_out() -> None:
    rank, _ = everyone()
    split = dist.split_group(split_ranks=[[0, 1]])
    if rank > 1:
        assert split is dist.GroupMember.NON_GROUP_MEMBER
    else:
        work = dist.all_reduce(data(rank), group=split, async_op=True)
        work.wait()
        assert work.is_completed()


@scenario
def objects() -> None:
    rank, n = everyone()
    got: list[Any] = [None] * n
    dist.all_gather_object(got, {"rank": rank, "text": "x" * rank})
    assert got == [{"rank": r, "text": "x" * r} for r in range(n)]
    one = [rank if rank == 1 else None]
    dist.broadcast_object_list(one, src=1)
    assert one == [1]


@scenario
def coalesced() -> None:
    rank, n = everyone()
    xs = [data(rank, 5), data(rank + 1, 6)]
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    assert torch.equal(xs[0], sum(data(r, 5) for r in range(n)))
    assert torch.equal(xs[1], sum(data(r + 1, 6) for r in range(n)))


@scenario
def functional() -> None:
    import torch.distributed._functional_collectives as funcol

    rank, n = everyone()
    group = dist.group.WORLD
    assert torch.equal(funcol.all_reduce(data(rank), "sum", group).wait(), sum(data(r) for r in range(n)))
    gathered = funcol.all_gather_tensor(data(rank), 0, group).wait()
    assert torch.equal(gathered, torch.cat([data(r) for r in range(n)]))
    shared = torch.cat([data(rank + r, 4) for r in range(n)])
    got = funcol.reduce_scatter_tensor(shared, "sum", 0, group).wait()
    assert torch.equal(got, sum(data(r + rank, 4) for r in range(n)))


@scenario
def a_collective_comes_after_those_whose_tensors_it_takes() -> None:
    rank, n = everyone()
    other = dist.new_group(list(range(n)))
    for size in (8, 1 << 18):  # the larger ones travel otherwise

        def mine(size: int = size) -> torch.Tensor:
            return torch.full((size,), rank + 1.0)

        total = sum(range(1, n + 1))
        x = mine()
        works = [dist.all_reduce(x, async_op=True) for _ in range(3)]
        assert works[-1].wait() and all(work.is_completed() for work in works)
        assert torch.equal(x, torch.full_like(x, total * n * n))

        x, gathered = mine(), torch.empty(n * size)
        works = [dist.all_reduce(x, async_op=True), dist.all_gather_into_tensor(gathered, x, async_op=True)]
        works[1].wait()
        assert torch.equal(gathered, torch.full_like(gathered, total))

        x, out = mine(n * size), torch.empty(size)
        works = [dist.reduce_scatter_tensor(out, x, async_op=True), dist.all_gather_into_tensor(x, out, async_op=True)]
        works[1].wait()
        assert torch.equal(x, torch.full_like(x, total))

        wide = torch.full((size, 2), rank + 1.0)
        half = wide[:, 0]  # its elements do not lie together
        works = [dist.all_reduce(half, async_op=True), dist.all_reduce(half, async_op=True, group=other)]
        works += [dist.all_reduce(half, dist._make_nccl_premul_sum(2.0), async_op=True)]
        for work in works:
            work.wait()
        assert torch.equal(wide, torch.tensor([2.0 * total * n * n, rank + 1.0]).expand(size, 2))

    # A pair exchanges one buffer.
    if rank < 2:
        x = torch.full((1 << 18,), float(rank))
        works = [dist.isend(x, 1 - rank), dist.irecv(x, 1 - rank)]
        for work in works:
            assert work is not None
            work.wait()
        assert torch.equal(x, torch.full_like(x, 1.0 - rank))


@scenario
def a_rank_goes_on_beside_a_call_that_comes_after_another() -> None:
    rank, n = everyone()
    other, total = dist.new_group(list(range(n))), sum(range(1, n + 1))
    for size in (8, 1 << 18):
        wide, token = torch.full((size, 2), rank + 1.0), torch.zeros(size)
        x, half, gathered = torch.full((size,), rank + 1.0), wide[:, 0], torch.empty(n * size)
        if rank:
            dist.recv(token, 0)
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(half, async_op=True)]
        works += [dist.all_gather_into_tensor(gathered, x, group=other, async_op=True)]
        works += [dist.all_reduce(half, dist._make_nccl_premul_sum(2.0), group=other, async_op=True)]
        works += [dist.all_reduce(x, async_op=True)]
        if rank == 0:
            for peer in range(1, n):
                dist.send(token + 5, peer)
        for work in works:
            work.wait()
        assert torch.equal(token, torch.full_like(token, 5.0 if rank else 0.0))
        assert torch.equal(x, torch.full_like(x, total * n))
        assert torch.equal(gathered, torch.full_like(gathered, total))
        assert torch.equal(wide, torch.tensor([2.0 * total * n, rank + 1.0]).expand(size, 2))
        y, got = torch.full((size,), rank + 1.0), torch.zeros(size)
        works = [dist.all_reduce(y, async_op=True)]
        if rank < 2:
            works += [dist.isend(y, 1 - rank), dist.irecv(got, 1 - rank)]
        works += [dist.all_reduce(y, async_op=True)]
        for work in works:
            work.wait()
        assert torch.equal(got, torch.full_like(got, total if rank < 2 else 0.0))
        assert torch.equal(y, torch.full_like(y, total * n))


@scenario
def an_earlier_collective_has_ended_where_a_later_one_of_its_group_has() -> None:
    rank, n = everyone()
    for size in (8, 1 << 20):
        x, y = torch.full((size,), rank + 1.0), torch.ones(2)
        work = dist.all_reduce(x, async_op=True)
        dist.all_reduce(y)
        assert x[0] == x[-1] == sum(range(1, n + 1)) and work.is_completed()
        work.wait()


@scenario
def what_repeats_its_elements_is_read_and_not_written() -> None:
    _, n = everyone()
    x = torch.ones(1, 4).expand(3, 4)
    for call in (dist.all_reduce, lambda x: dist.broadcast(x, 0), lambda x: dist.reduce(x, 0)):
        try:
            call(x)
        except DistributedError as error:
            assert error.code == "AHBM-X130" and "share memory" in str(error)
        else:
            raise AssertionError("written")
    gathered = torch.empty(3 * n, 4)
    dist.all_gather_into_tensor(gathered, x)
    assert torch.equal(gathered, torch.ones(3 * n, 4))
