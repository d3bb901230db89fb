"""A script for a GPU, which looks at everything that scripts look at; run on one that is not there."""

import copy
import functools
import io
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.data import DataLoader, TensorDataset

from ahbm.torch.work import FUTURE

assert torch.cuda.is_available() and torch.cuda.device_count() == 2 and torch.version.cuda
assert torch.accelerator.current_accelerator() == torch.device("cuda")
assert torch.cuda.get_device_capability() >= (8, 0) and torch.cuda.is_bf16_supported()
assert torch.cuda.get_device_properties(0).total_memory > 2**30 and torch.cuda.get_device_name(1)
here, there = torch.device("cuda:0"), torch.device("cuda", 1)

# Factories, moves, devices by default.
x = torch.tensor([1.0, 2.0], device="cuda")
assert x.device == here and x.is_cuda and not x.is_cpu and x.get_device() == 0 and x.type() == "torch.cuda.FloatTensor"
assert repr(x) == "tensor([1., 2.], device='cuda:0')" and x[0].item() == 1.0
assert x.to("cuda") is x and x.cuda() is x and x.to(1).device == there and x.half().device == here
assert torch.cat([x, x]).device == torch.zeros_like(x).device == x.new_ones(2).device == here
host = x.cpu()
host += 1
assert host.device == torch.device("cpu") and x.tolist() == [1.0, 2.0] and host.to(x).device == here
with torch.device("cuda:1"):
    layer = nn.Linear(3, 4)
    assert layer.weight.device == torch.zeros(1).device == torch.tensor(1.0).device == there
with torch.device("meta"):
    assert nn.Linear(3, 4).weight.is_meta
torch.set_default_device("cuda")
assert torch.ones(2).device == here
torch.set_default_device(None)
assert torch.ones(2).device == torch.device("cpu")
with torch.cuda.device(1):
    assert torch.cuda.current_device() == 1 and torch.ones(1, device="cuda").device == there
for wrong in (lambda: torch.cuda.set_device(7), lambda: torch.cuda.set_device("cuda:2")):
    try:
        wrong()
    except RuntimeError as error:
        assert "invalid device ordinal" in str(error)
    else:
        raise AssertionError("there are two devices")

# Modules, autograd, parameters that stay themselves.
parameter = nn.Parameter(torch.ones(2))
module = nn.Module()
module.parameter = parameter
module.to("cuda")
assert module.parameter is parameter and parameter.device == here and copy.deepcopy(module).parameter.is_cuda
leaf = torch.randn(3, device="cuda", requires_grad=True).to("cuda")
(leaf * 2).sum().backward()
assert leaf.is_leaf and leaf.grad.device == here
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
checkpoint(net, torch.randn(2, 8, device="cuda", requires_grad=True), use_reentrant=False).sum().backward()


# What is kept is asked of the attention that a GPU would run.
def attended(dtype):
    def policy(ctx, op, *args, **kwargs):
        asked.append(op.name())
        return CheckpointPolicy.PREFER_RECOMPUTE

    asked = []
    q = torch.randn(1, 2, 16, 8, device="cuda", dtype=dtype, requires_grad=True)
    run = functools.partial(F.scaled_dot_product_attention, is_causal=True)
    context = functools.partial(create_selective_checkpoint_contexts, policy)
    checkpoint(run, q, q, q, use_reentrant=False, context_fn=context).sum().backward()
    return [name for name in asked if "attention" in name]


assert attended(torch.float32) == ["aten::_scaled_dot_product_efficient_attention"]
assert attended(torch.bfloat16) == ["aten::_scaled_dot_product_cudnn_attention"]

# Mixed precision.
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda"):
    out = net(torch.randn(2, 8, device="cuda"))
    assert out.dtype is torch.float16 and torch.is_autocast_enabled("cuda")
with torch.cuda.amp.autocast(dtype=torch.bfloat16):
    loss = F.mse_loss(net(torch.randn(2, 8, device="cuda")).float(), torch.zeros(2, 1, device="cuda"))
assert not torch.is_autocast_enabled()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
nn.utils.clip_grad_norm_(net.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()

# Files.
kept = io.BytesIO()
torch.save({"x": x, "net": net.state_dict()}, kept)
for location, device in ((None, here), ("cpu", torch.device("cpu")), ("cuda:1", there), ({"cuda:0": "cuda:1"}, there)):
    kept.seek(0)
    assert torch.load(kept, map_location=location)["x"].device == device

# Streams, events, memory, random numbers, loaders, threads.
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
with torch.cuda.stream(stream):
    assert torch.cuda.current_stream() == stream
    big = torch.randn(512, 512, device="cuda") @ torch.randn(512, 512, device="cuda")
torch.cuda.current_stream().wait_stream(stream)
end.record()
torch.cuda.synchronize()
assert begin.elapsed_time(end) > 0
before = torch.cuda.memory_allocated()
del big
assert (
    before - torch.cuda.memory_allocated() == 512 * 512 * 4 and torch.cuda.max_memory_allocated() >= 3 * 512 * 512 * 4
)
assert torch.cuda.mem_get_info()[0] < torch.cuda.mem_get_info()[1]
torch.cuda.reset_peak_memory_stats()
torch.cuda.empty_cache()
torch.cuda.manual_seed_all(3)
generator = torch.Generator(device="cuda").manual_seed(1)
assert generator.device.type == "cuda" and torch.randn(2, generator=generator, device="cuda").is_cuda
for (batch,) in DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, pin_memory=True):
    assert batch.is_pinned() and batch.cuda(non_blocking=True).is_cuda
found = []
for name in (None, FUTURE):
    thread = threading.Thread(target=lambda: found.append(torch.zeros(2, device="cuda").device), name=name)
    thread.start()
    thread.join()
assert found == [here, here]
assert torch.compile(net)(torch.randn(2, 8, device="cuda")).is_cuda
with torch.profiler.profile(activities=[*torch.profiler.supported_activities()]):
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
graphed = torch.cuda.make_graphed_callables(net, (torch.randn(2, 8, device="cuda"),))
assert graphed(torch.randn(2, 8, device="cuda")).is_cuda
assert nn.DataParallel(net, device_ids=[0])(torch.randn(2, 8)).is_cuda


@torch.library.custom_op("ahbm_test::shifted", mutates_args=(), device_types="cuda")
def shifted(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


ones = torch.ones(1, 2, 64, 16, device="cuda", requires_grad=True)
causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 64, 64)
want = torch.nn.functional.scaled_dot_product_attention(ones, ones, ones, is_causal=True)
for attends in (flex_attention, torch.compile(flex_attention)):
    out = attends(ones, ones, ones, block_mask=causal)
    assert out.is_cuda and torch.allclose(out, want)
(gradient,) = torch.autograd.grad(out.sum(), ones)
assert gradient.is_cuda
small = ones.detach().flatten()[:3]
assert torch.cond(small.sum() > 0, torch.sin, torch.cos, (small,)).is_cuda
assert shifted(small).is_cuda and torch.equal(shifted(small), small.sin() + 1)
try:
    from triton.testing import do_bench
except ImportError:
    do_bench = None
assert do_bench is None or do_bench(lambda: torch.ones(1 << 20, device="cuda").sin(), quantiles=[0.5]) > 0
assert torch.histc(torch.tensor([0, 2, 2], device="cuda", dtype=torch.int32), 3, min=0, max=2).tolist() == [1, 0, 2]
assert torch.full_like(ones[:, :1], 2, device=ones.device).is_cuda
assert torch.cuda.Stream.priority_range() == (0, -3)
print("all is there")
