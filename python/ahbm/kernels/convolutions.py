"""Convolutions as cuDNN launches them, pooling and changes of resolution."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ahbm.kernels.elements import in_order
from ahbm.kernels.model import HALVES, Call, Flags, Kernel, Tensor, Unknown, kernel
from ahbm.kernels.reductions import counters, reducing
from ahbm.kernels.rules import rule
from ahbm.kernels.touched import total

FORWARD, INPUT, WEIGHT = 0, 1, 2
_CONVOLUTIONS = {
    "convolution": (3, 6, 8), "_convolution": (3, 6, 8), "convolution_overrideable": (3, 6, 8),
    "cudnn_convolution": (3, -1, 5), "mkldnn_convolution": (4, -1, 6), "_slow_conv2d_forward": (4, -1, -1),
    "cudnn_convolution_transpose": (4, -2, 6), "_conv_depthwise2d": (4, -1, -2), "conv_depthwise3d": (4, -1, -2),
    "slow_conv3d_forward": (4, -1, -1),
    "slow_conv_dilated2d": (4, -1, -1), "slow_conv_dilated3d": (4, -1, -1), "slow_conv_transpose2d": (4, -2, -1),
    "slow_conv_transpose3d": (4, -2, -1), "cudnn_convolution_relu": (3, -1, 6),
}  # fmt: skip
"""Places of the stride, of whether it is transposed (-1: it is not, -2: it is) and of the groups (-1: one, -2: as many
as channels)."""


@dataclass
class _Shape:
    x: Tensor
    """The input of a convolution; of a transposed one, its result."""
    y: Tensor
    weight: Tensor
    groups: int
    stride: int
    half: bool
    transforms: bool
    """Whether operands that lie by channels are put in channels_last, as tensor cores want them."""
    last: bool
    arithmetic: str

    @property
    def taps(self) -> int:
        return prod(self.weight.shape[2:])

    @property
    def deep(self) -> bool:
        """One channel in each group, as in a depthwise convolution."""
        return self.groups > 1 and self.weight.shape[1] == 1

    @property
    def operations(self) -> int:
        """As torch counts them."""
        return 2 * self.y.numel * self.weight.shape[1] * self.taps

    def main(self, which: int, nbytes: int) -> Kernel:
        x, y = self.x, self.y
        return kernel(
            "convolution",
            *(x.shape[0], x.shape[1], y.shape[1], prod(x.shape[2:]), prod(y.shape[2:]), self.taps, self.groups),
            *(which, int(self.last), self.stride),
            nbytes=nbytes,
            operations=self.operations,
            arithmetic=self.arithmetic,
        )

    def transform(self, x: Tensor, *, small: bool = False) -> list[Kernel]:
        """What changes a tensor's layout, or back. One pixel, or one tap, has no order."""
        if not self.transforms or prod(x.shape[2:]) == 1:
            return []
        crossed = [1] if prod(x.shape[2:]) < 32 else []
        return [kernel("strided", x.numel, *crossed, nbytes=2 * x.numel * x.itemsize)]


def _shape(call: Call, x: Tensor, y: Tensor, weight: Tensor, groups: int, stride: int) -> _Shape:
    arithmetic = call.arithmetic(weight, convolves=True)
    half = weight.dtype in HALVES
    last = x.channels_last or weight.channels_last or (y.channels_last and prod(y.shape[2:]) > 1)
    deep = groups > 1 and weight.shape[1] == 1
    few = x.shape[1] < 8
    gemm = prod(weight.shape[2:]) == 1 and stride == 1 and not half
    transforms = not last and not deep and not few and not gemm and (half or arithmetic == "tf32")
    if prod(x.shape[2:]) == 1 and prod(y.shape[2:]) == 1:
        last = last or half
    return _Shape(x, y, weight, groups, stride, half, transforms, last, arithmetic)


def _result(call: Call, x: Tensor, weight: Tensor, places: tuple[int, int, int], *, back: bool) -> Tensor:
    """What a convolution makes, by its stride, padding and dilation."""
    at = places[0]
    count = len(x.shape) - 2
    stride, padding, dilation = (_each(call.ints(i), count, d) for i, d in _orders(call.name, at))
    spatial = []
    for i in range(count):
        reach = dilation[i] * (weight.shape[2 + i] - 1)
        if back:
            spatial.append((x.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + reach + 1)
        else:
            spatial.append((x.shape[2 + i] + 2 * padding[i] - reach - 1) // max(stride[i], 1) + 1)
    channels = weight.shape[1] * _groups(call, weight, x, places) if back else weight.shape[0]
    strides = None
    if x.channels_last and channels > 1:
        shape = (x.shape[0], *spatial, channels)
        step, size = [1], 1
        for n in reversed(shape[1:]):
            size *= n
            step.append(size)
        *inner, first = step
        strides = (first, inner[0], *reversed(inner[1:]))
    return Tensor((x.shape[0], channels, *(max(n, 0) for n in spatial)), x.dtype, strides)


def _orders(name: str, at: int) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    if name.startswith(("cudnn_convolution", "mkldnn")) and name != "cudnn_convolution_relu":
        padding, stride = (at - 1, at) if not name.endswith("transpose") else (2, 4)
        return (stride, 1), (padding, 0), (at + 1, 1)
    return (at, 1), (at + 1, 0), (at + 2, 1)


def _each(given: tuple[int, ...], count: int, default: int) -> tuple[int, ...]:
    return given if len(given) == count else (given[0] if given else default,) * count


def _groups(call: Call, weight: Tensor, x: Tensor, places: tuple[int, int, int]) -> int:
    at = places[2]
    if at == -2:
        return x.shape[1]
    return max(int(call.number(at, 1)), 1) if at >= 0 else 1


@rule(*_CONVOLUTIONS)
def _forward(call: Call) -> list[Kernel]:
    places = _CONVOLUTIONS[call.name]
    x, weight = _pictured(call.need(0)), _pictured(call.need(1))
    if len(weight.shape) < 3:
        raise Unknown(call.name)
    back = places[1] == -2 or (places[1] >= 0 and bool(call.arg(places[1], False)))
    y = _pictured(call.outs[0]) if call.outs else _result(call, x, weight, places, back=back)
    if not y.numel * x.numel:
        return []
    groups = _groups(call, weight, x, places)
    stride = max(call.ints(places[0]), default=1)
    bias = call.tensor(3 if call.name.startswith(("_slow", "slow", "_conv_dep", "conv_dep")) else 2)
    nbytes = total(call, call.outs or (y,))
    shape = _shape(call, *((y, x) if back else (x, y)), weight, groups, stride)
    found = [*shape.transform(x), *shape.transform(weight), *_cleared(shape, FORWARD, call.flags)]
    after = shape.transform(y)
    if bias is not None and not call.name.startswith(("_slow", "slow", "_conv", "mkldnn")):
        after.append(kernel("broadcast", y.numel, nbytes=2 * y.numel * y.itemsize + bias.nbytes))
    return [*found, shape.main(INPUT if back else FORWARD, nbytes), *after]


def _pictured(x: Tensor) -> Tensor:
    """A convolution of one axis is one of two."""
    if len(x.shape) == 3:
        strides = None if x.strides is None else (*x.strides[:2], x.shape[2] * x.strides[2], x.strides[2])
        return Tensor((*x.shape[:2], 1, x.shape[2]), x.dtype, strides, x.again)
    return x


@rule("convolution_backward", "convolution_backward_overrideable")
def _backward(call: Call) -> list[Kernel]:
    grad, x, weight = (_pictured(call.need(i)) for i in range(3))
    if len(weight.shape) < 3 or not grad.numel * x.numel:
        return []
    at = 4 if call.name == "convolution_backward" else 3
    back = bool(call.arg(at + 3, False))
    groups = max(int(call.number(at + 5, 1)), 1)
    wanted = call.mask(at + 6, 3)
    stride = max(call.ints(at), default=1)
    shape = _shape(call, *((grad, x) if back else (x, grad)), weight, groups, stride)
    found = []
    if wanted[0]:
        made = x.numel * x.itemsize
        found += [*shape.transform(grad), *shape.transform(weight), *_cleared(shape, INPUT, call.flags)]
        found += [shape.main(FORWARD if back else INPUT, grad.nbytes + weight.nbytes + made), *shape.transform(x)]
    if wanted[1]:
        found += [*shape.transform(x), *shape.transform(grad), *_cleared(shape, WEIGHT, call.flags)]
        found.append(shape.main(WEIGHT, grad.nbytes + x.nbytes + weight.nbytes))
        found += _parts(shape, call.flags.units)
        found += shape.transform(weight)
    if wanted[2]:
        found += reducing(grad, tuple(i for i in range(len(grad.shape)) if i != 1), call.flags)
    return found


def _cleared(shape: _Shape, which: int, flags: Flags) -> list[Kernel]:
    """What is cleared before, as seen on an H200: counters of blocks that take tiles from a queue, or sums of parts;
    of f32 by channels, the whole gradient of the input, and what a sum over pixels is made of in channels_last."""
    x, y = shape.x, shape.y
    plain = not shape.half and shape.arithmetic != "tf32" and not shape.last
    if plain and which == INPUT:
        return [kernel("fill", x.numel, nbytes=x.nbytes)]
    if plain and which == WEIGHT and not shape.deep:
        small = shape.taps == 1 or prod(y.shape[2:]) < 400
        return (
            [kernel("strided", each.numel, nbytes=2 * each.nbytes) for each in (x, y)] if small else [counters(flags)]
        )
    if plain or shape.deep:
        return []
    if which == WEIGHT:
        return [counters(flags)] if shape.taps > 1 else []
    made = y if which == FORWARD else x
    many = made.numel > 2.5 * flags.units * 128 * min(256, -(-made.shape[1] // 64) * 64)
    return [counters(flags)] if many or (shape.transforms and shape.arithmetic == "tf32") else []


def _parts(shape: _Shape, units: int) -> list[Kernel]:
    """What adds up, or clears, the parts of a gradient of weights whose long sums are split among blocks."""
    rows, columns = shape.weight.shape[0], shape.weight.shape[1] * shape.taps
    pixels = shape.y.numel // max(shape.y.shape[1], 1)
    if (shape.deep and shape.last) or (
        not shape.deep and -(-rows // 64) * -(-columns // 96) <= units // 2 and pixels >= 1024
    ):
        return [kernel("reduce", 1, 4, rows * columns, nbytes=20 * rows * columns)]
    return []


@rule("conv_tbc", "conv_tbc_backward", "_slow_conv2d_backward")
def _products(call: Call) -> list[Kernel]:
    raise Unknown(call.name)


_POOLS = (
    "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d",
    "max_pool1d_with_indices", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "fractional_max_pool2d",
    "fractional_max_pool3d", "quantized_max_pool2d", "mkldnn_max_pool2d",
)  # fmt: skip


@rule(*_POOLS)
def _pool(call: Call) -> list[Kernel]:
    x = call.need(0)
    count = 1 if "1d" in call.name else 3 if "3d" in call.name else 2
    sizes = _each(call.ints(1), count, 1)
    adaptive = "adaptive" in call.name
    if call.outs:
        out = call.outs[0]
    else:
        strides = sizes if adaptive else _each(call.ints(2), count, 0)
        strides = tuple(s or k for s, k in zip(strides, sizes, strict=True))
        padding = _each(call.ints(3), count, 0)
        spatial = (
            sizes
            if adaptive
            else tuple(
                (n + 2 * p - k) // max(s, 1) + 1
                for n, k, s, p in zip(x.shape[-count:], sizes, strides, padding, strict=False)
            )
        )
        out = Tensor((*x.shape[:-count], *spatial), x.dtype)
    window = max(x.numel // max(out.numel, 1), 1) if adaptive else prod(sizes)
    outs = call.outs or ((out, Tensor(out.shape, "int64")) if "indices" in call.name else (out,))
    return [kernel("pool", out.numel, window, int(x.channels_last), nbytes=total(call, outs))]


@rule(*(f"{name}_backward" for name in _POOLS))
def _pool_backward(call: Call) -> list[Kernel]:
    """Where each window had its largest element; by atomic sums into zeros where windows overlap."""
    grad, x = call.need(0), call.need(1)
    outs = call.outs or (Tensor(x.shape, x.dtype),)
    sizes = call.ints(2)
    adaptive = "adaptive" in call.name
    window = max(x.numel // max(grad.numel, 1), 1) if adaptive or not sizes else prod(sizes)
    clears = [kernel("fill", x.numel, nbytes=x.nbytes)] if "max" in call.name or adaptive else []
    last = int(grad.channels_last or x.channels_last)
    return [*clears, kernel("pool_backward", grad.numel, window, last, nbytes=total(call, outs))]


@rule(
    *(
        f"{name}{back}"
        for name in (
            "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d",
            "upsample_linear1d", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_nearest_exact1d",
            "_upsample_nearest_exact2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler_2d",
            "_upsample_nearest_exact3d", "grid_sampler_3d",
        )
        for back in ("", "_backward")
    )
)  # fmt: skip
def _resized(call: Call) -> list[Kernel]:
    x = call.need(0)
    back = call.name.endswith("_backward")
    if call.outs:
        outs = call.outs
    else:
        count = 1 if "1d" in call.name else 3 if "3d" in call.name else 2
        sizes = call.ints(2 if back else 1)
        if back and len(sizes) == len(x.shape):
            outs = (Tensor(sizes, x.dtype),)
        elif len(sizes) == count and "grid" not in call.name:
            outs = (Tensor((*x.shape[:-count], *sizes), x.dtype),)
        else:
            outs = (x,)
    largest = max(x.numel, outs[0].numel)
    found = [kernel("strided", largest, nbytes=total(call, outs), arithmetic=call.arithmetic(multiplies=False))]
    if back:
        found = [*in_order(x), *found]
    if back and "nearest" not in call.name:
        found.insert(0, kernel("fill", outs[0].numel, nbytes=outs[0].nbytes))
    return found
