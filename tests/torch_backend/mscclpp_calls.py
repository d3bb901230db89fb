"""A script for NCCL whose calls plans and selectors serve: `october` or `head`, then what each rank selects by."""

import os
import sys

import torch
import torch.distributed as dist
from mscclpp_program import compiled

import mscclpp

generation, differs = sys.argv[1], sys.argv[2:] == ["differs"]
rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
assert mscclpp.__ahbm__
plan, other = compiled(rank, world), compiled(rank, world, "another")
if generation == "october":
    registry = mscclpp.ExecutionPlanRegistry()
    registry.register_plan(plan)
    registry.register_plan(other)
    registry.set_selector(lambda plans, request: plans[differs * rank] if request.message_size >= 1 << 12 else None)
else:
    builder = mscclpp.ext.AlgorithmCollectionBuilder()
    builder.add_algorithm_builder(plan)
    builder.add_algorithm_builder(other)

    def selector(algorithms, request):
        name = "another" if differs and rank else "by_switch"
        return algorithms["allreduce"][name] if request.message_size >= 1 << 12 else None

    builder.set_algorithm_selector(selector)
torch.cuda.set_device(local)
assert (torch.cuda.current_device(), torch.cuda.device_count()) == (local, world)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
assert dist.get_backend() == "nccl"
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for size in (8, 1 << 10, 1 << 11, 1 << 19):  # elements of 2 bytes: too few for a plan, of one, then selected
    buffer = mscclpp.RawGpuBuffer(2 * size)
    x = torch.utils.dlpack.from_dlpack(buffer.to_dlpack(data_type=str(torch.bfloat16)))
    assert x.shape == (size,) and x.data_ptr() == buffer.data()
    x.fill_(rank + 1)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((size,), world * (world + 1) // 2, dtype=torch.bfloat16)), x
y = torch.ones(4, device=torch.device("cuda", local))
for placed in (y.cuda(local), y.to("cuda"), y.to(local), y.to(local, torch.float64, True), torch.ones(4, device=local)):
    assert placed.device.type == "cpu" and placed.eq(1).all()
net = torch.nn.Linear(2, 2).to(local)
assert net(torch.ones(2, device=local)).device.type == net.weight.device.type == "cpu"
dist.all_gather_into_tensor(torch.empty(4 * world, device=f"cuda:{local}"), y)
torch.cuda.synchronize()
end.record(torch.cuda.current_stream())
assert 0 < start.elapsed_time(end) < 10
dist.barrier()
dist.destroy_process_group()
