"""What torch refuses of tensors on two devices, found where each operation is dispatched.

All tensors lie in host memory, so torch's own checks see one device. A tensor counts as the host's where the script has
put it there, or made it of such ones; what C++ makes inside of an operation counts as neither, for a GPU would have it.
`--lenient` (AHBM_LENIENT=1) leaves this out.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from ahbm.torch import rules
from ahbm.torch.device import marks
from ahbm.torch.failures import refused

on = [False]
"""Whether operations are looked at."""
_HOST = "_ahbm_host"
_MASK = "expected self and mask to be on the same device, but got mask on {} and self on {}"
_SAME = "Expected all tensors to be on the same device"
_KINDS = (torch.Tensor, torch.nn.Parameter)
_BINARY = """
__and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__ add addcdiv addcmul atan2
bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor binary_cross_entropy
binary_cross_entropy_with_logits clamp clamp_max clamp_min copysign div dist eq fake_quantize_per_channel_affine
fake_quantize_per_tensor_affine fill floor_divide fmax fmin fmod ge gt heaviside hypot index_fill le lerp logical_and
logical_or logical_xor lt masked_fill max maximum min minimum mse_loss mul ne normal_functional pow remainder rsub
smooth_l1_loss special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he special_laguerre_polynomial_l
special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_xlog1py special_xlogy special_zeta
ldexp soft_margin_loss sub true_divide where xlogy bernoulli
"""
SCALARS = frozenset(_BINARY.split()) | {f"{name}_" for name in _BINARY.split()}
"""Operations of TensorIterator (`device_check: NoCheck` in native_functions.yaml), which take host tensors of no
dimension beside those of a device."""
_FREE = """
_to_copy copy_ _foreach_copy_ _local_scalar_dense item set_ resize_ resize_as_ record_stream is_same_size is_set_to
_has_compatible_shallow_copy_type _pad_packed_sequence _pack_padded_sequence_backward ctc_loss
_ctc_loss_backward _use_cudnn_ctc_loss _cudnn_ctc_loss quantize_per_tensor quantize_per_channel lstm gru rnn_tanh
rnn_relu _cudnn_rnn _cudnn_rnn_backward _thnn_fused_lstm_cell _thnn_fused_gru_cell tensor_split _assert_async
_assert_tensor_metadata copy _pin_memory diagonal_scatter slice_scatter select_scatter as_strided_scatter linspace
logspace linalg_pinv _unsafe_masked_index _unsafe_masked_index_put_accumulate
"""
FREE = frozenset(_FREE.split())
"""Operations that take tensors of several devices, or whose rule is another's."""
_INSIDE = {"embedding": ("index", "_index_select")}
"""Operations that torch makes of another one, which does the looking."""
INDEXED = frozenset({"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"})


def hosted(x: Any) -> Any:
    """Notes that the script has put a tensor on the host, unless it is on a device; returns it."""
    if on[0] and type(x) in _KINDS and x.layout is torch.strided:
        held = marks.storage(x)
        if held is not None:
            held.__dict__.setdefault(_HOST, True)
    return x


def located(x: Any) -> int | None:
    """See `rules.located`."""
    index = marks.where(x)
    if index is not None:
        return index
    if type(x) not in _KINDS:
        inner = marks.parts(x)
        return located(inner[0]) if inner else None
    held = marks.storage(x) if x.layout is torch.strided else None
    return rules.HOST if held is not None and _HOST in held.__dict__ else None


def passed_on(given: list[torch.Tensor], out: Any) -> None:
    """What is made of the host's tensors alone is the host's."""
    for x in given:
        if located(x) != rules.HOST:
            return
    for x in (out,) if type(out) is torch.Tensor else out if type(out) in (tuple, list) else ():
        hosted(x)


def check(known: Any, given: list[torch.Tensor]) -> None:
    """Looks at an operation whose tensors are not all on one device. Raises torch's RuntimeError where it does."""
    name = known.name
    if (
        not on[0]
        or not known.is_aten
        or name in FREE
        or name.startswith(("_foreach_", "_fused_", "_nested_", "_sparse_"))
    ):
        return
    if name == "_ctc_loss":  # which has lengths where it finds them, and then moves them where no one sees it
        for x in given:
            marks.storage(x).__dict__.pop(_HOST, None)
        return
    if torch._C._current_graph_task_id() >= 0:  # the script's own operations are looked at, not their gradients'
        return
    places = [located(x) for x in given]
    if name == "_pack_padded_sequence":
        if places[1] is not None and places[1] >= 0:
            words = (
                "'lengths' argument should be a 1D CPU int64 tensor, but got 1D " + _shown(places[1]) + " Long tensor"
            )
            raise refused(RuntimeError, "AHBM-X136", words, "lengths stay on the host: lengths.cpu()")
        return
    device = next((at for at in places if at is not None and at >= 0), None)
    if device is None:
        return
    if name in INDEXED:
        places = _indexed(name, given, places)
    elif name in SCALARS:
        places = [
            at if at != rules.HOST or x.dim() or (known.writes_operands and x is given[0]) else None
            for x, at in zip(given, places, strict=True)
        ]
    odd = next((at for at in places if at is not None and at != device), None)
    if odd is None:
        return
    here, there = _shown(device), _shown(odd)
    words = f"{_SAME}, but found at least two devices, {here} and {there}!"
    if name.startswith("masked_fill") and places[1] == odd:
        if name == "masked_fill_":  # torch makes `x[mask] = number` of it; see `install`
            return
        words = _MASK.format(there, here)
    elif name in ("convolution", "_convolution", "convolution_overrideable"):
        words = "Input type ({}) and weight type ({}) should be the same".format(*map(_type_of, given[:2]))
    elif name not in SCALARS and name not in INDEXED:
        argument = known.operand(next(i for i, at in enumerate(places) if at == odd))
        argument, name = _INSIDE.get(name, (argument, name))
        words = (
            f"{_SAME}, but got {argument} is on {there}, different from other tensors on {here} "
            f"(when checking argument in method wrapper_CUDA_{name})"
        )
    raise refused(
        RuntimeError, "AHBM-X136", words, "move one of them: x.to(device); a GPU has no memory in common with its host"
    )


def _indexed(name: str, given: list[torch.Tensor], places: list[int | None]) -> list[int | None]:
    """Of `x[indices]` and `x[indices] = values`: indices of the host are fine for a tensor of a device."""
    if places[0] == rules.HOST and any(at is not None and at >= 0 for at in places[1:]):
        if "put" not in name or any(at is not None and at >= 0 for at in places[1:-1]):
            words = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            raise refused(RuntimeError, "AHBM-X136", words, "move the indices to the host: indices.cpu()")
        return places
    values = 1 if "put" in name else 0
    end = len(places) - values
    kept = [at if at != rules.HOST else None for at in places[1:end]]
    return [
        places[0],
        *kept,
        *(at if at != rules.HOST or x.dim() else None for x, at in zip(given[end:], places[end:], strict=True)),
    ]


def _shown(at: int) -> str:
    return "cpu" if at == rules.HOST else f"{marks.KIND}:{at}"


def _type_of(x: torch.Tensor) -> str:
    return f"{x.type()}"


def install() -> None:
    """Looks at operations from now on, and at what leaves torch."""
    if os.environ.get(rules.LENIENT) == "1":
        return
    on[0] = True
    rules.located[0] = located
    tensor: Any = torch.Tensor
    leaves, pins, rebuilds = tensor.numpy, tensor.pin_memory, torch._utils._rebuild_tensor

    @functools.wraps(leaves)
    def numpy(x: Any, *, force: bool = False) -> Any:
        at = marks.where(x)
        if at is None:
            return leaves(x, force=force)
        if force:
            return leaves(x.detach().cpu(), force=True)
        words = (
            f"can't convert {_shown(at)} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )
        raise refused(TypeError, "AHBM-X136", words, "x.cpu().numpy()")

    @functools.wraps(pins)
    def pin_memory(x: Any, *args: Any, **kw: Any) -> Any:
        if marks.where(x) is not None:
            words = f"cannot pin '{x.type()}' only dense CPU tensors can be pinned"
            raise refused(RuntimeError, "AHBM-X136", words, "pin it before it is moved to the device")
        return pins(x, *args, **kw)

    fills = tensor.masked_fill_

    @functools.wraps(fills)
    def masked_fill_(x: Any, mask: Any, value: Any) -> Any:
        at = marks.where(x)
        if at is not None and located(mask) == rules.HOST:
            words = _MASK.format(_shown(rules.HOST), _shown(at))
            raise refused(RuntimeError, "AHBM-X136", words, "move the mask: mask.to(x.device)")
        return fills(x, mask, value)

    tensor.numpy, tensor.pin_memory, tensor.masked_fill_ = numpy, pin_memory, masked_fill_
    torch._utils._rebuild_tensor = functools.wraps(rebuilds)(lambda *args, **kw: hosted(rebuilds(*args, **kw)))
    for name in ("from_numpy", "frombuffer"):
        setattr(torch, name, _hosting(getattr(torch, name)))


def _hosting(makes: Any) -> Any:
    @functools.wraps(makes)
    def make(*args: Any, **kw: Any) -> Any:
        return hosted(makes(*args, **kw))

    return make
