"""What autocast of a device casts and that of the host does not (`--fake`): sizes of results are those of the device.

With data, numbers are those that the host's autocast gives; without, only the sizes count, and a device makes norms,
softmax and sums in f32 (torch's `autocast_mode.h`). Attention with dropout, and dropout, are one kernel of the device.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
import torch.nn.functional as F
import torch.optim.optimizer as optimizers
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _foreach_utils as foreach
from torch.utils._pytree import tree_map

from ahbm.torch.device import marks
from ahbm.torch.replacing import replace

_F32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "rms_norm", "group_norm", "cosine_similarity", "logsumexp", "dist", "pdist", "renorm", "linalg_vector_norm",
    "norm.ScalarOpt_dim", "norm.Scalar",
)  # fmt: skip
_F32_BY_TYPE = ("softmax.int", "log_softmax.int", "sum", "sum.dim_IntList", "cumsum", "cumprod")
"""Those that have an argument `dtype`, which a script may give."""
_host: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_half = (torch.float16, torch.bfloat16)


def _wide(arg: Any) -> Any:
    return arg.float() if isinstance(arg, torch.Tensor) and arg.dtype in _half else arg


def _kernel(op: Any, *, by_type: bool) -> Any:
    def kernel(*args: Any, **kw: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_host):
            if isinstance(args[0], torch.Tensor) and marks.where(args[0]) is None:
                return op(*args, **kw)
            if not by_type:
                return op(*tree_map(_wide, args), **tree_map(_wide, kw))
            given = kw.get("dtype") is not None or any(isinstance(arg, torch.dtype) for arg in args)
            if given or args[0].dtype not in _half:
                return op(*args, **kw)
            # The host has no kernel that reads halves and writes f32; where the device has none, it casts as well.
            return op(args[0].float(), *args[1:], **kw)

    return kernel


_library: Any = None


def install() -> None:
    """Has operations cast as on a device."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (*_F32, *_F32_BY_TYPE):
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            if not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "AutocastCPU"):
                _library.impl(name, _kernel(op, by_type=name in _F32_BY_TYPE), "AutocastCPU")
    for home in (optimizers, foreach):  # a device's optimizers take tensors by the list
        if FakeTensor not in home._foreach_supported_types:
            home._foreach_supported_types.append(FakeTensor)
    entropy, attention = F.cross_entropy, F.scaled_dot_product_attention

    @functools.wraps(entropy)
    def cross_entropy(input: Any, target: Any, weight: Any = None, *args: Any, **kw: Any) -> Any:
        plain = not args and not kw.get("label_smoothing") and not target.is_floating_point()
        legacy = kw.get("size_average") is not None or kw.get("reduce") is not None
        if (
            not plain
            or legacy
            or input.dtype not in _half
            or marks.where(input) is None
            or not torch.is_autocast_enabled()
        ):
            return entropy(input, target, weight, *args, **kw)
        rows = torch.log_softmax(input, 0 if input.dim() == 1 else 1, dtype=input.dtype)
        kept = {key: kw[key] for key in ("ignore_index", "reduction") if key in kw}
        return F.nll_loss(rows, target, weight, **kept)

    @functools.wraps(attention)
    def scaled_dot_product_attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *args: Any, **kw: Any
    ) -> Any:
        """Without dropout: with it the host has no kernel that is one, and what is dropped is not known."""
        return attention(
            query, key, value, attn_mask, 0.0 if marks.where(query) is not None else dropout_p, *args, **kw
        )

    drops = F.dropout

    @functools.wraps(drops)
    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        """A device keeps which elements it has dropped as truth values."""
        if training and 0 < p < 1 and not inplace and marks.where(input) is not None:
            return torch.native_dropout(input, p, True)[0]
        return drops(input, p, training, inplace)

    replace(drops, dropout)
    replace(entropy, cross_entropy)
    replace(attention, scaled_dot_product_attention)
