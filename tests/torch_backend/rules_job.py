"""What nccl and gloo refuse, on devices that are not there: each call as a script makes it, and what it is told."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
other = 1 - rank
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
op = dist.ReduceOp
told: dict[str, list[Any]] = {}


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device=f"cuda:{rank}")


def tell(name: str, call: Callable[[], object]) -> None:
    try:
        call()
        told[name] = []
    except Exception as error:
        told[name] = [[kind.__name__ for kind in type(error).__mro__], str(error)]


def message(x: torch.Tensor, **kw: Any) -> None:
    if rank:
        dist.recv(x, 0, **kw)
    else:
        dist.send(x, 1, **kw)


def to_itself() -> None:
    x, y, z = ones(3) * (rank + 1), ones(3), ones(3)
    pairs = [(dist.isend, x, rank), (dist.irecv, y, rank), (dist.isend, x, other), (dist.irecv, z, other)]
    for work in dist.batch_isend_irecv([dist.P2POp(*pair) for pair in pairs]):
        work.wait()
    assert (y == rank + 1).all() and (z == other + 1).all(), (y, z)


def crossed_tags() -> None:
    if rank == 0:
        works = [dist.isend(ones(2) * tag, 1, tag=tag) for tag in (1, 2)]
    else:
        one, two = ones(2), ones(2)
        works = [dist.irecv(two, 0, tag=2), dist.irecv(one, 0, tag=1)]
    for work in works:
        work.wait()
    assert rank == 0 or (one[0] == 2 and two[0] == 1)


def crossed_groups() -> None:
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    works = [dist.all_reduce(ones(2), group=group, async_op=True) for group in groups[:: 1 - 2 * rank]]
    for work in works:
        work.wait()


def half_batched() -> None:
    if rank == 0:
        dist.send(ones(2), 1)
    else:
        dist.batch_isend_irecv([dist.P2POp(dist.irecv, ones(2), 0)])[0].wait()


def early_write() -> None:
    x = ones(4)
    work = dist.all_reduce(x, async_op=True)
    x.mul_(2)
    work.wait()


def fine_writes() -> None:
    x, y = ones(4), ones(4)
    first, second = (dist.all_reduce(t, async_op=True) for t in (x, y))
    second.wait()
    x.mul_(2)  # the group's operations end in order
    first.wait()
    work = dist.all_reduce(x, async_op=True)
    torch.cuda.synchronize()
    x.mul_(2)
    work.wait()
    strided = ones(4, 2).t()
    dist.broadcast(strided.contiguous(), 0)


tell("host", lambda: dist.all_reduce(torch.ones(2)))
tell("int16", lambda: dist.all_reduce(ones(2, dtype=torch.int16)))
tell("int16 message", lambda: message(ones(2, dtype=torch.int16)))
tell("uint16 exchange", lambda: dist.all_to_all_single(ones(2, dtype=torch.uint16), ones(2, dtype=torch.uint16)))
tell("band", lambda: dist.all_reduce(ones(2, dtype=torch.int32), op.BAND))
tell("average of bool", lambda: dist.all_reduce(ones(2, dtype=torch.bool), op.AVG))
tell("average of integers", lambda: dist.all_reduce(ones(2, dtype=torch.int32), op.AVG))
tell("premul of integers", lambda: dist.all_reduce(ones(2, dtype=torch.int32), dist._make_nccl_premul_sum(2.0)))
tell("complex", lambda: dist.all_reduce(ones(2, dtype=torch.complex64)))
tell("strided", lambda: dist.all_reduce(ones(4)[::2]))
tell("channels last", lambda: dist.all_reduce(ones(2, 3, 4, 4).to(memory_format=torch.channels_last)))
tell("strided message", lambda: message(ones(4)[::2]))
tell("anybody", lambda: dist.recv(ones(2)))
tell("monitored", dist.monitored_barrier)
tell("size", lambda: dist.all_gather_into_tensor(ones(5), ones(2)))
tell("splits", lambda: dist.all_to_all_single(ones(3), ones(3)))
tell("uneven", lambda: dist.all_gather([ones(1), ones(2)], ones(rank + 1)))
tell("objects", lambda: dist.all_gather_object([None, None], rank))
tell("barrier", lambda: dist.barrier(device_ids=[rank]))
for case in (to_itself, crossed_tags, crossed_groups, half_batched, fine_writes, early_write):
    tell(case.__name__, case)
gloo = dist.new_group(backend="gloo")
tell("gloo", lambda: dist.all_reduce(torch.ones(2), group=gloo))
tell("gloo int16", lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16), group=gloo))
tell("new_group", lambda: dist.new_group([0] if rank else [0, 1]))
Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(told))
os._exit(0)
