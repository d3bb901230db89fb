"""What torch's C++ or a library chooses by the real device, on one that is not there: as on the host, and marked."""

from __future__ import annotations

import io
import pickle
import subprocess
import warnings
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ahbm.errors import UnsupportedError

warnings.simplefilter("ignore")
CUDA = torch.device("cuda:0")
x = torch.ones(2, device="cuda")


def on_device(*values: Any) -> None:
    """All tensors are on the device."""
    for value in torch.utils._pytree.tree_leaves(values):
        if isinstance(value, torch.Tensor):
            assert value.device == CUDA and value.is_cuda, value


def same(make: Any) -> None:
    """A function of a device gives the host's numbers on the device."""
    torch.manual_seed(0)
    wanted = torch.utils._pytree.tree_leaves(make("cpu"))
    torch.manual_seed(0)
    found = torch.utils._pytree.tree_leaves(make("cuda"))
    on_device(found)
    assert len(wanted) == len(found)
    for one, other in zip(wanted, found, strict=True):
        assert torch.equal(one, other.cpu()), make


def refused(call: Any, name: str) -> None:
    """A call is refused by our code, which names it and the line of this script."""
    try:
        call()
    except UnsupportedError as error:
        assert error.code == "AHBM-U156" and name in str(error) and "routed_job.py" in str(error), error
    else:
        raise AssertionError(f"{name} is not refused")


def recurrent(kind: Any, **options: Any) -> Any:
    """A layer's results and gradients."""

    def run(device: str) -> Any:
        layer = kind(4, 6, num_layers=2, dropout=0.5, **options).to(device)
        given = torch.randn(5, 3, 4).to(device).requires_grad_()
        out, state = layer(given)
        out.sum().backward()
        return out, state, given.grad, [each.grad for each in layer.parameters()]

    return run


def packed(device: str) -> Any:
    """Sequences of several lengths."""
    layer = nn.LSTM(4, 6).to(device)
    rows = torch.randn(5, 3, 4).to(device)
    given = nn.utils.rnn.pack_padded_sequence(rows, torch.tensor([3, 5, 2]), enforce_sorted=False)
    assert given.batch_sizes.device.type == "cpu"
    out, state = layer(given)
    return nn.utils.rnn.pad_packed_sequence(out)[0], state, given.data


for kind in (nn.LSTM, nn.GRU, nn.RNN):
    same(recurrent(kind, bidirectional=True, batch_first=True))
same(recurrent(nn.LSTM, proj_size=3))
same(packed)
for dtype in (torch.float16, torch.bfloat16):
    with torch.autocast("cuda", dtype=dtype):
        out, _ = nn.LSTM(4, 4).cuda()(torch.ones(3, 1, 4, device="cuda"))
    assert out.dtype is dtype and out.device == CUDA


def sparse(device: str) -> Any:
    """An embedding that only some rows of learn."""
    table, bag = nn.Embedding(10, 4, sparse=True).to(device), nn.EmbeddingBag(10, 4, sparse=True, mode="sum").to(device)
    optimizer = torch.optim.SparseAdam([*table.parameters(), *bag.parameters()])
    for _ in range(2):
        optimizer.zero_grad()
        rows = torch.tensor([[1, 2], [2, 3]]).to(device)
        (table(rows).sum() + bag(rows).sum()).backward()
        optimizer.step()
    grad = table.weight.grad
    assert grad is not None and grad.is_sparse and grad.device.type == device
    return grad.coalesce().values(), grad.to_dense(), (grad + grad).coalesce().indices(), table.weight, bag.weight


same(sparse)
same(lambda device: torch.eye(3).to(device).to_sparse_csr().values())
same(lambda device: torch.eye(3).to_sparse().to(device) @ torch.ones(3, 2, device=device))
assert torch.eye(3, device="cuda").to_sparse().cpu().device.type == "cpu"

on_device(x.new_tensor([1.0]), x.new([1.0]), x.new(2, 3), x.new(), x.new_zeros(2))
capsule = torch.utils.dlpack.to_dlpack(x)
on_device(torch.from_dlpack(x), torch.utils.dlpack.from_dlpack(capsule))
assert torch.from_dlpack(torch.utils.dlpack.to_dlpack(torch.ones(2))).device.type == "cpu"
for made in (torch.empty(4, pin_memory=True), torch.zeros(4, pin_memory=True), torch.tensor([1.0], pin_memory=True)):
    assert made.is_pinned() and made.device.type == "cpu"
    on_device(made.cuda(non_blocking=True))

of = torch.cuda.FloatTensor
on_device(of([1.0]), of(2, 3), of(), torch.cuda.LongTensor([1]), torch.ones(1).type(torch.cuda.HalfTensor))
assert isinstance(x, of) and not isinstance(torch.ones(1), of) and not isinstance(x, torch.cuda.LongTensor)
torch.set_default_tensor_type("torch.cuda.FloatTensor")
on_device(torch.ones(2), torch.Tensor([1.0]), torch.randn(3), nn.Linear(2, 2).weight)
torch.set_default_tensor_type("torch.FloatTensor")
assert torch.ones(2).device.type == "cpu" and torch.Tensor([1.0]).device.type == "cpu"
held = torch.UntypedStorage(8, device="cuda")
assert held.device == CUDA and torch.TypedStorage(4, dtype=torch.float, device="cuda").is_cuda
assert isinstance(x.storage(), torch.cuda.FloatStorage)
for sent in (x, nn.Parameter(x.clone())):
    got = pickle.loads(ForkingPickler.dumps(sent))
    on_device(got)
    assert torch.equal(got, sent) and type(got) is type(sent)

jagged = torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(4, 8)], layout=torch.jagged, device="cuda")
on_device(jagged.values(), jagged.offsets(), nn.Linear(8, 3).cuda()(jagged).values())
heads = jagged.unflatten(-1, [2, 4]).transpose(1, 2)
on_device(nn.functional.scaled_dot_product_attention(heads, heads, heads).values())
for backend in ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
    query = torch.randn(1, 2, 8, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        result = nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    result.sum().backward()
    on_device(result, query.grad)
assert torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()

module = nn.Linear(2, 2).cuda()
exported = torch.export.export(module, (torch.ones(1, 2, device="cuda"),))
on_device(exported.module()(torch.ones(1, 2, device="cuda")))
scripted, buffer = torch.jit.script(module), io.BytesIO()
torch.jit.save(scripted, buffer)
for place in (None, "cuda", "cuda:0"):
    buffer.seek(0)
    on_device(torch.jit.load(buffer, map_location=place).weight)


@torch.jit.script
def shifted(given: torch.Tensor) -> torch.Tensor:
    """Calls a factory."""
    return given + torch.zeros(2)


assert shifted(torch.ones(2)).tolist() == [1, 1]
on_device(torch.func.hessian(lambda v: (v**3).sum())(x), torch.func.vmap(lambda v: v * 2)(x))
on_device(torch.linalg.svd(torch.eye(3, device="cuda"), driver="gesvdj"), torch.fft.rfft(x))
assert torch.backends.cuda.cufft_plan_cache[0].size == 0
signed = torch.ones(3, device="cuda", requires_grad=True)
torch.sgn(signed).sum().backward()
on_device(signed.grad)
on_device(x.to("cuda", torch.float64, False, True))
on_device(
    torch.mm(torch.ones(2, 2, device="cuda").half(), torch.ones(2, 2, device="cuda").half(), out_dtype=torch.float)
)

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    on_device(torch.ones(3, device="cuda"))
address = torch.cuda.caching_allocator_alloc(1024)
torch.cuda.caching_allocator_delete(address)
torch.cuda.memory._record_memory_history()
assert torch.cuda.memory._snapshot()["segments"] == []
generator = torch.Generator(device="cuda")
on_device(torch.randn(2, generator=generator, device="cuda"))
told = subprocess.check_output("nvidia-smi --query-gpu=index,memory.total --format=csv,noheader,nounits", shell=True)
assert told.split() == [b"0,", str(torch.cuda.mem_get_info()[1] >> 20).encode()], told

refused(lambda: torch.cuda.gds.gds_register_buffer(x.untyped_storage()), "torch.cuda.gds.gds_register_buffer")
refused(lambda: torch.cuda.memory.CUDAPluggableAllocator("x.so", "a", "b"), "CUDAPluggableAllocator")
jiterated = torch.cuda.jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")
refused(lambda: jiterated(x), "jiterator")
refused(lambda: torch.cuda.current_blas_handle(), "_cuda_getCurrentBlasHandle")
refused(lambda: torch.linalg.lu_factor(torch.eye(2, device="cuda"), pivot=False), "lu_factor")
refused(lambda: torch.cuda.cudart().cudaFree(1), "cudaFree")
print("all is there")
