"""A communicator of one's own on eight ranks, with the registry's API: a selected plan, executed on addresses."""

import ipaddress
import os

import mscclpp.comm as mscclpp_comm
import netifaces
import torch
from mscclpp.language.collectives import AllReduce
from mscclpp_program import by_switch

import mscclpp

ELEMENTS = 1 << 20
TYPES = {torch.float32: mscclpp.DataType.float32, torch.bfloat16: mscclpp.DataType.bfloat16}


def interface_of(address: str) -> str:
    """The network interface that has an address."""
    for interface in netifaces.interfaces():
        for link in netifaces.ifaddresses(interface).get(netifaces.AF_INET, []):
            if ipaddress.ip_address(link["addr"]) == ipaddress.ip_address(address):
                return interface
    raise ValueError(address)


def selector(plans: list[mscclpp.ExecutionPlanHandle], request: mscclpp.ExecutionRequest) -> object:
    if request.collective != "allreduce" or request.message_size < 1 << 20:
        return None
    return next((plan for plan in plans if "nvls" in plan.tags), plans[0])


class Comm:
    """All-reduces by whatever plan the registry selects."""

    def __init__(self, group: mscclpp_comm.CommGroup, registry: mscclpp.ExecutionPlanRegistry) -> None:
        self.group, self.registry = group, registry
        self.local_rank = group.my_rank % group.nranks_per_node
        self.executor = mscclpp.Executor(group.communicator)

    def all_reduce(self, tensor: torch.Tensor, stream: torch.cuda.Stream | None = None) -> None:
        address, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        plan = self.registry.select(
            collective="allreduce",
            world_size=self.group.nranks,
            n_ranks_per_node=self.group.nranks_per_node,
            send_buffer=address,
            recv_buffer=address,
            message_size=nbytes,
        )
        if plan is None:
            raise ValueError(f"no plan for {nbytes} bytes")
        assert self.registry.get(plan.id) is plan and plan.constraints.world_size == self.group.nranks
        sides = (address, address, nbytes, nbytes)
        stream_of = stream.cuda_stream if stream is not None else 0
        self.executor.execute(self.group.my_rank, *sides, TYPES[tensor.dtype], plan.plan, stream_of)


def main() -> None:
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.cuda.set_device(local)
    address, port = os.environ["MSCCLPP_MASTER_ADDR"], os.environ["MSCCLPP_MASTER_PORT"]
    registry = mscclpp.ExecutionPlanRegistry()
    spec = mscclpp.AlgoSpec(
        name="by_switch",
        collective=AllReduce(8, 1, True),
        nranks_per_node=int(torch.cuda.device_count()),
        world_size=world,
        in_place=True,
        instances=2,
        protocol="Simple",
        num_threads_per_block=1024,
        min_message_size=1 << 20,
        max_message_size=48 << 30,
        tags={"nvls": 1},
    )
    registry.register_plan(mscclpp.compile(algo=by_switch, algo_spec=spec, rank=rank))
    registry.set_selector(selector)
    trio = f"{interface_of(address)}:{address}:{port}"
    comm = Comm(mscclpp_comm.CommGroup(interfaceIpPortTrio=trio, rank=rank, size=world), registry)
    assert comm.local_rank == local
    comm.group.barrier()
    buffer = mscclpp.RawGpuBuffer(2 * ELEMENTS)
    x = torch.utils.dlpack.from_dlpack(buffer.to_dlpack(data_type=str(torch.bfloat16)))
    x.copy_(torch.arange(ELEMENTS) % 13 + rank)
    comm.all_reduce(x, stream=torch.cuda.current_stream())
    torch.cuda.synchronize()
    sums = world * (torch.arange(ELEMENTS) % 13) + sum(range(world))
    assert x.long().equal(sums), x
    try:
        comm.all_reduce(torch.ones(16))
    except ValueError as error:
        assert "64 bytes" in str(error)
    else:
        raise AssertionError("64 bytes have a plan")
    comm.group.barrier()
    # One write: under torchrun nothing is buffered, and print writes the end of the line by itself.
    print(f"rank {rank} is done\n", end="")


if __name__ == "__main__":
    main()
