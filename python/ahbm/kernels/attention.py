"""Attention as one kernel, with the backend that torch would choose on a GPU; where none fits, as products."""

from __future__ import annotations

from typing import NamedTuple

from ahbm.kernels.model import HALVES, Call, Flags, Kernel, Tensor, Unknown, kernel
from ahbm.kernels.products import product
from ahbm.kernels.rules import rule

BACKENDS = {"flash": 0, "efficient": 1, "cudnn": 2}


class _Places(NamedTuple):
    """Where an operation has its arguments. -1: nowhere."""

    queries: int
    mask: int
    causal: int
    dropout: int
    backend: str
    """Empty: chosen as torch does."""
    by_tokens: bool = False
    """Whether heads come after tokens."""


_FORWARD = {
    "_scaled_dot_product_flash_attention_for_cpu": _Places(0, 5, 4, 3, ""),
    "_scaled_dot_product_fused_attention_overrideable": _Places(0, 3, 5, 4, ""),
    "_scaled_dot_product_flash_attention": _Places(0, -1, 4, 3, "flash"),
    "_scaled_dot_product_efficient_attention": _Places(0, 3, 6, 5, "efficient"),
    "_scaled_dot_product_cudnn_attention": _Places(0, 3, 6, 5, "cudnn"),
    "_flash_attention_forward": _Places(0, -1, 8, 7, "flash", True),
    "_efficient_attention_forward": _Places(0, 3, 9, 8, "efficient", True),
    "_cudnn_attention_forward": _Places(0, 3, 10, 9, "cudnn"),
}
_BACKWARD = {
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Places(1, 8, 7, 6, ""),
    "_scaled_dot_product_fused_attention_overrideable_backward": _Places(1, 4, 12, 11, ""),
    "_scaled_dot_product_flash_attention_backward": _Places(1, -1, 11, 10, "flash"),
    "_scaled_dot_product_efficient_attention_backward": _Places(1, 4, 11, 9, "efficient"),
    "_scaled_dot_product_cudnn_attention_backward": _Places(1, 8, 14, 13, "cudnn"),
    "_flash_attention_backward": _Places(1, -1, 11, 10, "flash", True),
    "_efficient_attention_backward": _Places(1, 4, 13, 10, "efficient", True),
    "_cudnn_attention_backward": _Places(1, 8, 14, 13, "cudnn"),
}


class _Shape(NamedTuple):
    batch: int
    heads: int
    queries: int
    keys: int
    size: int
    value_size: int
    key_heads: int


def _shape(call: Call, places: _Places) -> _Shape:
    q, k, v = (call.need(places.queries + i) for i in range(3))
    if min(map(len, (q.shape, k.shape, v.shape))) < 3:
        raise Unknown(call.name)

    def parts(x: Tensor) -> tuple[int, int, int, int]:
        *lead, a, b, size = x.shape
        batch = 1
        for n in lead:
            batch *= n
        if len(x.shape) == 3:
            batch = 1
        return (batch, b, a, size) if places.by_tokens else (batch, a, b, size)

    batch, heads, queries, size = parts(q)
    _, key_heads, keys, _ = parts(k)
    return _Shape(batch, heads, queries, keys, size, v.shape[-1], key_heads)


def backend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, flags: Flags) -> str:
    """What torch's `_fused_sdp_choice_cuda` takes of the backends that are allowed; "math" where no kernel fits.

    As in torch 2.11 on GPUs of capability 9 and 10: cuDNN first, for two-byte types, heads of a multiple of 8 up to 128
    numbers (256 only forward and so not here); FlashAttention for two-byte types without a mask, heads up to 256; the
    memory-efficient kernel for f32 as well and for masks. Fewer heads of keys are for cuDNN and FlashAttention alone.
    """
    if min(q.numel, k.numel, v.numel) == 0 or len({q.dtype, k.dtype, v.dtype}) != 1:
        return "math"
    sizes = {q.shape[-1], k.shape[-1], v.shape[-1]}
    half = q.dtype in HALVES
    grouped = len(q.shape) > 3 and q.shape[-3] != k.shape[-3]
    quick = all(x.strides is None or x.strides[-1] == 1 for x in (q, k, v))
    if not quick:
        return "math"
    for name in flags.attention:
        if name == "cudnn" and half and all(n % 8 == 0 and n <= 128 for n in sizes) and len(q.shape) == 4:
            return name
        if name == "flash" and half and mask is None and max(sizes) <= 256 and len(sizes) == 1:
            return name
        if name == "efficient" and not grouped and (half or q.dtype == "float32") and all(n % 4 == 0 for n in sizes):
            return name
    return "math"


@rule(*_FORWARD)
def _forward(call: Call) -> list[Kernel]:
    places = _FORWARD[call.name]
    shape, q, k, v = _shape(call, places), *(call.need(i) for i in range(3))
    mask = call.tensor(places.mask)
    made = Tensor((shape.batch, shape.heads, shape.queries, shape.value_size), q.dtype)
    outs = call.outs or (made, Tensor((shape.batch, shape.heads, shape.queries)))
    kind = places.backend or backend(q, k, v, mask, call.flags)
    products = 2 * shape.batch * shape.heads * shape.queries * shape.keys
    operations = products * (shape.size + shape.value_size)
    if kind == "math":
        return _decomposed(call, shape, q, mask)
    causal = int(bool(call.arg(places.causal, False)))
    nbytes = sum(x.nbytes for x in (q, k, v)) + sum(x.nbytes for x in outs[:2]) + (mask.nbytes if mask else 0)
    main = kernel(
        "attention",
        *(shape.batch, shape.heads, shape.queries, shape.keys, shape.size, causal, BACKENDS[kind], shape.key_heads),
        *([1] if call.number(places.dropout) else []),
        nbytes=nbytes,
        operations=operations,
        arithmetic=call.arithmetic(q),
    )
    if kind != "cudnn":
        return [main]
    seeds = [kernel("pointwise", 1, nbytes=16)] if call.number(places.dropout) else []
    return [*seeds, kernel("fill", 1), main]


@rule(*_BACKWARD)
def _backward(call: Call) -> list[Kernel]:
    """The sums of gradient times result by rows, the fused kernel, and the gradient of queries rounded from f32."""
    places = _BACKWARD[call.name]
    shape, q, k, v = _shape(call, places), *(call.need(places.queries + i) for i in range(3))
    mask, grad = call.tensor(places.mask), call.need(0)
    kind = places.backend or backend(q, k, v, mask, call.flags)
    products = 2 * shape.batch * shape.heads * shape.queries * shape.keys
    operations = products * (3 * shape.size + 2 * shape.value_size)
    rows = shape.batch * shape.heads * shape.queries
    if kind == "math":
        return [*_decomposed(call, shape, q, mask), *_decomposed(call, shape, q, mask, back=True)]
    causal = int(bool(call.arg(places.causal, False)))
    made = (q.numel + k.numel + v.numel) * q.itemsize
    nbytes = sum(x.nbytes for x in (grad, q, k, v)) + made + 8 * rows + (mask.nbytes if mask else 0)
    main = kernel(
        "attention_backward",
        *(shape.batch, shape.heads, shape.queries, shape.keys, shape.size, causal, BACKENDS[kind], shape.key_heads),
        *([1] if call.number(places.dropout) else []),
        nbytes=nbytes,
        operations=operations,
        arithmetic=call.arithmetic(q),
    )
    if kind == "efficient":
        times = kernel("pointwise", grad.numel, nbytes=3 * grad.nbytes)
        return [times, kernel("reduce", rows, shape.value_size, 1, nbytes=grad.nbytes + 4 * rows), main]
    sums = kernel("reduce", rows, shape.value_size, 1, nbytes=2 * grad.nbytes + 4 * rows)
    rounded = kernel("cast", q.numel, nbytes=q.numel * (4 + q.itemsize))
    found = [kernel("fill", q.numel, nbytes=4 * q.numel if kind == "flash" else 0), sums, main, rounded]
    if kind == "flash" and shape.key_heads != shape.heads:
        each = shape.batch * shape.key_heads * shape.keys * shape.size
        group = shape.heads // max(shape.key_heads, 1)
        found += [kernel("reduce", each // shape.size, group, shape.size, nbytes=each * (group + 1) * k.itemsize)] * 2
    return found


@rule("flex_attention", "flex_attention_backward")
def _flexible(call: Call) -> list[Kernel]:
    """`flex_attention` in generated code: one kernel from a template, and backward the sums by rows as well. Arguments:
    queries, keys, values, and the mean number of keys that a query's blocks have."""
    shape = _shape(call, _Places(0, -1, -1, -1, "flash"))
    q, k, v = (call.need(i) for i in range(3))
    seen = min(max(int(call.number(3, shape.keys)), 1), shape.keys)
    back = call.name.endswith("backward")
    products = 2 * shape.batch * shape.heads * shape.queries * seen
    rows = shape.batch * shape.heads * shape.queries
    made = rows * shape.value_size * q.itemsize
    moved = sum(x.nbytes for x in (q, k, v))
    main = kernel(
        "attention_backward" if back else "attention",
        *(shape.batch, shape.heads, shape.queries, seen, shape.size, 0, BACKENDS["flash"], shape.key_heads),
        nbytes=2 * moved + made + 8 * rows if back else moved + made + 8 * rows,
        operations=products * (3 * shape.size + 2 * shape.value_size if back else shape.size + shape.value_size),
        arithmetic=call.arithmetic(q),
    )
    return [kernel("reduce", rows, shape.value_size, 1, nbytes=2 * made + 4 * rows), main] if back else [main]


def _decomposed(call: Call, shape: _Shape, q: Tensor, mask: Tensor | None, *, back: bool = False) -> list[Kernel]:
    """Two products and a softmax, or their gradients, as torch's `_scaled_dot_product_attention_math`."""
    batch = shape.batch * shape.heads
    scores = Tensor((batch, shape.queries, shape.keys), q.dtype)
    rows = Tensor((batch, shape.queries, shape.size), q.dtype)
    keys = Tensor((batch, shape.size, shape.keys), q.dtype, (shape.size * shape.keys, 1, shape.size))
    values = Tensor((batch, shape.keys, shape.value_size), q.dtype)
    inner = Call("bmm", (rows,), None, call.flags)
    nbytes = scores.nbytes + rows.nbytes + keys.nbytes
    first = product(inner, rows, keys, nbytes)
    second = product(inner, scores, values, nbytes)
    count, columns = batch * shape.queries, shape.keys
    kind = "softmax_backward" if back else "softmax"
    middle = [kernel(kind, count, columns, nbytes=(2 + back) * scores.nbytes)]
    if mask is not None and not back:
        middle.insert(0, kernel("broadcast", scores.numel, nbytes=2 * scores.nbytes + mask.nbytes))
    scaled = kernel("pointwise", rows.numel, nbytes=2 * rows.nbytes)
    if not back:
        return [scaled, scaled, *first, *middle, *second]
    return [*second, *second, *middle, *first, *first, scaled, scaled]
