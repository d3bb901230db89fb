"""A script for NCCL on eight ranks, with the builder's API: one plan, a selector by size, memory of its own."""

import os
from typing import Any

import mscclpp.ext
import mscclpp.language
import torch
import torch.distributed as dist
from mscclpp.language.collectives import AllReduce
from mscclpp_program import by_switch

import mscclpp

ELEMENTS = 1 << 20


def prepare(builder: mscclpp.ext.AlgorithmCollectionBuilder, rank: int, world: int) -> None:
    spec = mscclpp.language.AlgoSpec(
        name="by_switch",
        collective=AllReduce(world, 1, True),
        nranks_per_node=8,
        world_size=world,
        in_place=True,
        instances=2,
        protocol="Simple",
        num_threads_per_block=1024,
        min_message_size=1 << 20,
        max_message_size=48 << 30,
        tags={"nvls": 1},
    )
    builder.add_algorithm_builder(mscclpp.compile(algo=by_switch, algo_spec=spec, rank=rank))


def selector(algorithms: dict[str, dict[str, Any]], request: mscclpp.CollectiveRequest) -> Any:
    if request.collective != "allreduce" or request.message_size < 1 << 20:
        return None
    return algorithms["allreduce"]["by_switch"]


def main() -> None:
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    builder = mscclpp.AlgorithmCollectionBuilder()
    prepare(builder, rank, world)
    builder.set_algorithm_selector(selector)
    dist.init_process_group(backend="nccl", device_id=local)
    assert dist.get_backend() == "nccl"
    torch.cuda.set_device(local)
    assert torch.cuda.current_device() == local and torch.cuda.device_count() == world
    buffer = mscclpp.RawGpuBuffer(2 * ELEMENTS)
    x = torch.utils.dlpack.from_dlpack(buffer.to_dlpack(data_type=str(torch.bfloat16)))
    x.copy_(torch.arange(ELEMENTS) % 13 + rank)
    dist.all_reduce(x, op=dist.ReduceOp.SUM)
    sums = world * (torch.arange(ELEMENTS) % 13) + sum(range(world))
    assert x.long().equal(sums), x
    small = torch.ones(16)
    dist.all_reduce(small)
    assert small.eq(world).all()
    dist.barrier()
    dist.destroy_process_group()
    # One write: under torchrun nothing is buffered, and print writes the end of the line by itself.
    print(f"rank {rank} is done\n", end="")


if __name__ == "__main__":
    main()
