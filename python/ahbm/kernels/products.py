"""Products of matrices, with what cuBLAS launches beside them."""

from __future__ import annotations

from ahbm.kernels.model import HALVES, Call, Flags, Kernel, Tensor, Unknown, kernel
from ahbm.kernels.rules import rule
from ahbm.kernels.touched import total


def transposed(x: Tensor) -> int:
    """1 for a matrix (the last two axes) that lies by columns."""
    if x.strides is None or len(x.shape) < 2:
        return 0
    rows, columns = x.shape[-2:]
    return int(x.strides[-2] == 1 and (x.strides[-1] != 1 or (columns == 1 and rows > 1)) and rows > 1)


def product(
    call: Call, a: Tensor, b: Tensor, nbytes: int, *, bias: bool = False, arithmetic: str | None = None
) -> list[Kernel]:
    """The kernels of C = A B of two matrices or as many pairs."""
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise Unknown(call.name)
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = a.shape[0] if len(a.shape) > 2 else 1
    if not batch * m * n:
        return []
    of = call.arithmetic(a) if arithmetic is None else arithmetic
    operations = 2 * batch * m * n * k
    beside = _beside(batch, m, n, k, a, bias, call.flags)
    main = kernel(
        "product", batch, m, n, k, transposed(a), transposed(b), nbytes=nbytes, operations=operations, arithmetic=of
    )
    return [*(each for each in beside if each.kind == "fill"), main, *(each for each in beside if each.kind != "fill")]


def _beside(batch: int, m: int, n: int, k: int, a: Tensor, bias: bool, flags: Flags) -> list[Kernel]:
    """What cuBLAS launches beside a product, as seen on an H200: where a persistent kernel takes tiles from a counter,
    what clears it; where few tiles have long rows, what adds up the parts of a split K."""
    if n == 1 or m == 1:
        return []
    half, f32 = a.dtype in HALVES, a.dtype == "float32"
    tile = 128 * min(256, -(-min(m, n) // 64) * 64)
    if batch * m * n > 2.5 * flags.units * tile and (half or flags.tf32_products):
        return [kernel("fill", 1)]
    small = batch * -(-m // 64) * -(-n // 96)
    parts = kernel("reduce", 1, 4, m * n)
    if f32 and bias and m * n <= 8192 and k <= 128:
        return [kernel("fill", 1), kernel("pointwise", m * n), parts]
    if small <= flags.units // 2 and k >= (4096 if half else 128):
        return [parts]
    if half and small <= 1.5 * flags.units and k >= 16000:
        return [parts]
    return []


@rule("mm", "bmm", "_int_mm", "_grouped_mm", "_sparse_semi_structured_mm")
def _product(call: Call) -> list[Kernel]:
    a, b = call.need(0), call.need(1)
    if len(a.shape) < 2 or len(b.shape) < 2:
        return [_vectors(call, a, b)]
    out = call.outs or (Tensor((*a.shape[:-1], b.shape[-1]), a.dtype),)
    return product(call, a, b, total(call, out))


@rule("addmm", "_addmm_activation", "baddbmm", "addbmm", "sspaddmm")
def _added(call: Call) -> list[Kernel]:
    """A bias of a row is added by the product itself; what else is added is put in place before."""
    bias, a, b = call.need(0), call.need(1), call.need(2)
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise Unknown(call.name)
    shape = (*a.shape[:-1], b.shape[-1])
    out = call.outs or (Tensor(shape, a.dtype),)
    nbytes = total(call, out)
    fused = bias.shape == shape[-1:] and len(shape) == 2 and min(shape) > 1 and call.number(3, 1) == 1
    before = []
    beta = call.number(3, 1)
    if not fused and beta and not call.in_place and not (call.outs and bias.again):
        kind = "pointwise" if bias.shape == shape else "broadcast"
        made = bias.nbytes + out[0].nbytes
        before = [kernel(kind, out[0].numel, nbytes=min(made, nbytes // 2))]
        nbytes -= before[0].nbytes
    return [*before, *product(call, a, b, nbytes, bias=fused)]


@rule("_scaled_mm", "_scaled_mm_v2", "_scaled_grouped_mm")
def _scaled(call: Call) -> list[Kernel]:
    a, b = call.need(0), call.need(1)
    out = call.outs or (Tensor((*a.shape[:-1], b.shape[-1]), "bfloat16"),)
    return product(call, a, b, total(call, out), arithmetic="f8")


@rule("mv", "addmv", "addr", "outer", "ger")
def _vector(call: Call) -> list[Kernel]:
    at = int(call.name.startswith("add"))
    return [_vectors(call, call.need(at), call.need(at + 1))]


def _vectors(call: Call, a: Tensor, b: Tensor) -> Kernel:
    """A product with vectors: one of a row or a column."""
    if call.name in ("outer", "ger", "addr"):
        m, n, k = a.numel, b.numel, 1
    else:
        k = b.shape[0] if b.shape else 1
        m, n = a.numel // max(k, 1), b.numel // max(k, 1)
    outs = call.outs or (Tensor((m, n), a.dtype),)
    return kernel(
        "product",
        *(1, m, n, k, transposed(a), 0),
        nbytes=total(call, outs),
        operations=2 * m * n * k,
        arithmetic=call.arithmetic(a),
    )
