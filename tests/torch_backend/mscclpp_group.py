"""A script that makes a communicator of its own and executes plans on addresses."""

import os
import sys
import time

import mscclpp.utils
import numpy as np
import torch
from mscclpp_program import compiled

import mscclpp

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = sys.argv[1]
plan = compiled(rank, world)
group = mscclpp.CommGroup(interfaceIpPortTrio=f"lo:127.0.0.1:{port}", rank=rank, size=world)
assert (group.my_rank, group.nranks, group.nranks_per_node) == (rank, world, world)
group.barrier()
executor = mscclpp.Executor(group.communicator)
stream = torch.cuda.current_stream()
total = world * (world + 1) // 2


def execute(input: int, output: int, nbytes: int, dtype: torch.dtype) -> None:
    plan.execute(
        comm=group.communicator,
        executor=executor,
        input_buffer=input,
        output_buffer=output,
        input_size=nbytes,
        output_size=nbytes,
        dtype=mscclpp.utils.torch_dtype_to_mscclpp_dtype(dtype),
        stream=stream.cuda_stream,
    )


def refused(code: str, *args: object) -> None:
    try:
        execute(*args)
    except mscclpp_error as error:
        assert error.code == code, error
    else:
        raise AssertionError(f"{args} are taken")


mscclpp_error = sys.modules["ahbm.errors"].AhbmError
buffer = mscclpp.RawGpuBuffer(1 << 14)
x = torch.utils.dlpack.from_dlpack(buffer.to_dlpack(str(torch.float16), [4, 1024], [1024, 1]))
x.fill_(rank + 1)
execute(buffer.data(), buffer.data(), x.nbytes, x.dtype)
assert x.eq(total).all()
y, z = torch.full((512,), rank + 1.0), torch.zeros(512)
execute(y.data_ptr(), z.data_ptr(), y.nbytes, y.dtype)
assert y.eq(rank + 1).all() and z.eq(total).all()
executor.execute(rank, y.data_ptr(), y.data_ptr(), y.nbytes, y.nbytes, mscclpp.DataType.float32, plan.plan, 0)
assert y.eq(total).all()
refused("AHBM-X130", buffer.data() + (1 << 14) - 2, buffer.data(), 1 << 11, x.dtype)  # ends outside
refused("AHBM-X130", 4096, 4096, 1 << 11, x.dtype)  # of nobody
refused("AHBM-X130", buffer.data() + 1, buffer.data(), 1 << 11, x.dtype)  # between elements
refused("AHBM-X131", buffer.data(), buffer.data(), 1 << 9, x.dtype)  # smaller than the plan's messages
array = mscclpp.GpuBuffer((2, 512), dtype=np.float32)
array.set(np.full((2, 512), rank + 1.0))
execute(array.data.ptr, array.data.ptr, array.nbytes, torch.float32)
assert (array.get() == total).all() and torch.from_dlpack(array).eq(total).all()
del x, buffer
for peer in range(world):
    if peer != rank:
        group.send(np.array([rank, peer]), peer, 0)
for peer in range(world):
    if peer != rank:
        told = np.zeros(2, np.int64)
        group.recv(told, peer, 0)
        assert told.tolist() == [peer, rank], told
group.barrier()
if rank == world - 1:
    group.send(np.full(1000, 7.0), 0, 1)  # and ends before it is received
elif rank == 0:
    time.sleep(1)
    last = np.zeros((10, 100))
    group.recv(last, world - 1, 1)
    assert (last == 7).all()
# One write: under torchrun nothing is buffered, and print writes the end of the line by itself.
print(f"rank {rank} is done\n", end="")
