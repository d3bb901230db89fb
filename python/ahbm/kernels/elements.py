"""Kernels that calculate elements of each other's place: functions, casts, copies, fills and draws."""

from __future__ import annotations

from collections.abc import Sequence

from ahbm.kernels.model import FLOATS, Call, Kernel, Tensor, Unknown, broadcast, kernel
from ahbm.kernels.rules import rule
from ahbm.kernels.touched import total

NONE = (
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "detach", "alias",
    "_unsafe_view", "set_", "resize_", "resize_as_", "is_same_size", "record_stream", "is_pinned", "as_strided_",
    "squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "detach_", "sym_size", "sym_stride",
    "sym_numel", "sym_storage_offset", "_nested_tensor_size", "_local_scalar_dense", "_assert_async", "as_strided",
    "view", "reshape", "expand", "permute", "transpose", "t", "select", "slice", "squeeze", "unsqueeze", "split",
    "split_with_sizes", "unbind", "_reshape_alias", "narrow", "diagonal", "unfold", "result_type",
    "_has_compatible_shallow_copy_type", "is_floating_point", "requires_grad_", "view_as", "expand_as", "chunk",
    "_version", "movedim", "numpy_T", "real", "imag", "view_as_real", "view_as_complex", "_conj", "_neg_view",
    "is_nonzero", "item", "data", "output_nr", "numel", "size", "stride", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes", "tensor_split", "hsplit", "vsplit", "dsplit", "swapaxes", "swapdims", "mT", "mH",
    "adjoint", "unflatten", "pin_memory", "_pin_memory",
)  # fmt: skip
"""Operations that start no kernel of their own."""
FILLS = (
    "fill_", "zero_", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
    "new_full", "fill", "zero", "arange", "linspace", "logspace", "eye", "tril_indices", "triu_indices",
    "scalar_tensor", "range", "hann_window", "_efficientzerotensor", "new_tensor", "bartlett_window",
)  # fmt: skip
RANDOM = (
    "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "normal_", "uniform_", "random_",
    "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_", "normal", "bernoulli", "native_dropout",
    "_fused_dropout", "poisson", "binomial", "rrelu_with_noise", "rrelu_with_noise_", "_standard_gamma",
    "normal_functional", "_sample_dirichlet", "alpha_dropout", "feature_dropout",
)  # fmt: skip
COPIES = (
    "copy_", "_to_copy", "clone", "contiguous", "_copy_from", "copy", "lift_fresh_copy", "detach_copy", "view_copy",
    "expand_copy", "permute_copy", "transpose_copy", "t_copy", "select_copy", "slice_copy", "narrow_copy", "_to_dense",
    "diagonal_copy", "as_strided_copy", "unfold_copy", "select_scatter", "slice_scatter", "diagonal_scatter", "flip",
    "roll", "rot90", "repeat", "tile", "constant_pad_nd", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "im2col", "col2im", "unfold_backward", "slice_backward", "select_backward", "_reshape_copy",
    "diagonal_backward", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d", "reflection_pad2d_backward", "replication_pad2d_backward",
    "_pack_padded_sequence", "_pad_packed_sequence", "tril", "triu", "_reshape_alias_copy", "as_strided_scatter",
    "trace_backward", "value_selecting_reduction_backward", "unsqueeze_copy", "squeeze_copy", "split_copy",
    "split_with_sizes_copy", "unbind_copy", "_unsafe_masked_index", "_foreach_clone",
)  # fmt: skip
_NUMBERS = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 11: "bool",
    15: "bfloat16",
}  # fmt: skip
"""torch's types by their number, which is what a profiler writes."""
_ZEROED = {
    "slice_backward", "select_backward", "diagonal_backward", "unfold_backward", "constant_pad_nd", "select_scatter",
    "slice_scatter", "diagonal_scatter", "reflection_pad2d_backward", "replication_pad2d_backward",
    "value_selecting_reduction_backward", "as_strided_scatter",
}  # fmt: skip
"""Copies whose result is filled or copied whole before."""


def of(call: Call) -> Kernel:
    """One kernel of an operation's elements: its class by how its operands lie."""
    outs = result(call)
    operands = [x for x in call.given if x.numel]
    if not operands and not outs:
        raise Unknown(call.name)
    largest = max((*outs, *operands), key=lambda x: (x.numel, x.is_dense))
    kind = kind_of(operands, outs, largest)
    return kernel(
        kind,
        largest.numel,
        *(_STEEP.get(call.name, ()) if kind == "pointwise" else _crossed(kind, operands, outs)),
        nbytes=total(call, outs),
        arithmetic=call.arithmetic(largest, multiplies=False),
    )


_STEEP = {"gelu": (1,), "gelu_backward": (2,), "erf": (1,), "erfinv": (1,), "lgamma": (2,), "digamma": (2,)}
"""Functions that take so many times the instructions of an error function: their second dimension."""


def _crossed(kind: str, operands: Sequence[Tensor], outs: Sequence[Tensor]) -> tuple[int, ...]:
    """1 where the quickest axis of an operand is not that of another, as in a copy that transposes."""
    if kind != "strided":
        return ()
    full = [x for x in (*operands, *outs) if len(x.shape) == len(outs[0].shape) and x.numel == outs[0].numel]
    axes = {next((i for i, n in enumerate(x.shape) if n > 1 and x.step[i] == 1), -1) for x in full} - {-1}
    return (1,) if len(axes) > 1 else ()


def kind_of(operands: Sequence[Tensor], outs: Sequence[Tensor], largest: Tensor) -> str:
    """The class of a kernel of elements."""
    count, order = largest.numel, largest.order
    repeats = False
    reference = largest.shape
    floats = {x.dtype for x in operands if x.dtype in FLOATS and x.shape}
    for x in (*operands, *outs):
        if x.numel < count:
            repeats = repeats or x.numel > 1
        elif x.shape == reference and x.order != order:
            if x.nbytes < x.numel * x.itemsize:
                repeats = True
            else:
                return "strided"
        elif order is None and x.nbytes < x.numel * x.itemsize:
            repeats = True
        elif order is None:
            return "strided"
    return "broadcast" if repeats else "cast" if len(floats) > 1 else "pointwise"


def in_order(x: Tensor) -> list[Kernel]:
    """A copy of what does not lie in the order of its axes, as kernels want it that know no other."""
    if x.strides is None or x.order == Tensor(x.shape).order:
        return []
    return [kernel("strided", x.numel, nbytes=x.nbytes + x.numel * x.itemsize)]


def result(call: Call) -> tuple[Tensor, ...]:
    """An operation's results: those that are known, else one as its operands broadcast to."""
    if call.outs is not None:
        return call.outs
    if call.in_place and call.tensor(0) is not None:
        return (call.need(0),)
    full = [x for x in call.given if x.shape] or call.given
    shape = broadcast(x.shape for x in full)
    if shape is None or not full:
        raise Unknown(call.name)
    like = next((x for x in full if x.shape == shape), None)
    dtype = max((x for x in full), key=lambda x: (x.dtype in FLOATS, x.itemsize)).dtype
    return (Tensor(shape, dtype, like.strides if like is not None and like.is_dense else None),)


@rule(*NONE)
def _none(call: Call) -> list[Kernel]:
    return []


@rule(*FILLS)
def _fill(call: Call) -> list[Kernel]:
    out = _made(call)
    return [kernel("fill", out.numel, nbytes=total(call, (out,)))]


def _made(call: Call) -> Tensor:
    """What is made of nothing: of `arange`, and of all where the results are not known, its size says how much."""
    if call.outs:
        return call.outs[0]
    if call.given:
        return call.given[0]
    sizes = call.ints(0)
    if call.name in ("arange", "range", "linspace", "logspace", "eye") or not sizes:
        numbers = [x for x in call.args if isinstance(x, int | float) and not isinstance(x, bool)]
        if not numbers:
            raise Unknown(call.name)
        span = numbers[1] - numbers[0] if len(numbers) > 1 else numbers[0]
        step = numbers[2] if len(numbers) > 2 and numbers[2] else 1
        return Tensor((max(int(span / step), 1),), "int64")
    return Tensor(sizes)


@rule(*RANDOM)
def _random(call: Call) -> list[Kernel]:
    if call.name == "native_dropout" and (call.number(1) in (0, 1) or call.arg(2) is False):
        return [of(call)]
    out = _made(call)
    outs = call.outs if call.outs is not None else (out, Tensor(out.shape, "bool"))[: 1 + (call.name in _MASKS)]
    return [kernel("random", out.numel, nbytes=total(call, outs), arithmetic=call.arithmetic(out, multiplies=False))]


_MASKS = {"native_dropout", "_fused_dropout"}


@rule(*COPIES)
def _copy(call: Call) -> list[Kernel]:
    source = call.given[-1] if call.name in ("copy_", "_copy_from") and len(call.given) > 1 else call.need(0)
    made = call.outs or ((call.need(0),) if call.in_place else (_like(call, source),))
    out = made[0]
    nbytes = total(call, made)
    before = []
    if call.name in _ZEROED and not (call.name == "constant_pad_nd" and out.numel <= source.numel):
        small = min(source, out, key=lambda x: x.numel)
        before = [kernel("fill", out.numel, nbytes=max(nbytes - 2 * small.nbytes, 0))]
        nbytes -= before[0].nbytes
    if source.shape != out.shape and call.name != "copy_":
        kind = "strided"
    else:
        kind = kind_of([source], [out], out)
        if kind == "pointwise" and source.dtype != out.dtype:
            kind = "cast"
    many = max(call.outs, key=lambda x: x.numel).numel if call.outs else out.numel
    arithmetic = call.arithmetic(out, multiplies=False)
    return [*before, kernel(kind, many, *_crossed(kind, [source], [out]), nbytes=nbytes, arithmetic=arithmetic)]


def _like(call: Call, source: Tensor) -> Tensor:
    """What a copy makes where that is not known: of another shape, where a list of sizes says so."""
    sizes = call.ints(1)
    if call.name == "_to_copy":
        dtype = _NUMBERS.get(int(call.number(1, -1)), source.dtype)
        return Tensor(source.shape, dtype, source.strides if source.is_dense else None)
    if call.name == "contiguous" or (call.name == "clone" and call.arg(1) == 0):
        return Tensor(source.shape, source.dtype)
    if call.name in ("repeat", "tile", "expand_copy", "select_backward", "slice_backward") and sizes:
        if call.name in ("repeat", "tile"):
            padded = (1,) * (len(sizes) - len(source.shape)) + source.shape
            sizes = tuple(a * b for a, b in zip(sizes, padded, strict=False))
        return Tensor(sizes, source.dtype)
    return Tensor(source.shape, source.dtype, source.strides if source.is_dense else None)


@rule("cat", "stack", "_cat", "concat", "concatenate", "hstack", "vstack", "dstack", "block_diag")
def _cat(call: Call) -> list[Kernel]:
    parts = [x for x in call.given if x.numel]
    if not parts:
        return []
    out = call.outs[0] if call.outs else Tensor((sum(x.numel for x in parts),), parts[0].dtype)
    nbytes = total(call, (out,))
    launches = -(-len(parts) // 128) if len({x.dtype for x in parts}) == 1 else len(parts)
    whole = all(x.is_dense and x.numel * x.itemsize % 16 == 0 for x in parts)
    return _shares("pointwise" if whole else "strided", out.numel, nbytes, launches)


def _shares(kind: str, elements: int, nbytes: int, launches: int) -> list[Kernel]:
    return [
        kernel(
            kind,
            elements * (at + 1) // launches - elements * at // launches,
            nbytes=nbytes * (at + 1) // launches - nbytes * at // launches,
        )
        for at in range(launches)
    ]
