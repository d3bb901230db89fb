"""Losses and other operations that torch makes of several kernels of elements and one that reduces."""

from __future__ import annotations

from ahbm.kernels.elements import of
from ahbm.kernels.model import Call, Kernel, Tensor, kernel
from ahbm.kernels.reductions import reducing
from ahbm.kernels.rules import rule
from ahbm.kernels.touched import total

_STEPS = {
    "binary_cross_entropy_with_logits": 5, "huber_loss": 1, "logit_backward": 1, "kl_div": 4, "soft_margin_loss": 5,
    "soft_margin_loss_backward": 4, "cosine_embedding_loss": 9, "hardtanh_backward": 1, "celu": 1, "cdist": 1,
    "cosine_similarity": 8, "smooth_l1_loss": 1, "margin_ranking_loss": 4, "hinge_embedding_loss": 6, "glu": 1,
    "log_sigmoid": 1, "softmin": 2, "linalg_cross": 1, "nan_to_num": 1, "euclidean_dist": 3,
}  # fmt: skip
"""Operations that torch makes of so many kernels of elements, as seen on an H200."""
_REDUCING = {
    "mse_loss": 2, "l1_loss": 2, "smooth_l1_loss": 2, "huber_loss": 2, "binary_cross_entropy": 3, "kl_div": 2,
    "binary_cross_entropy_with_logits": 4, "soft_margin_loss": 2,
}  # fmt: skip
"""Losses with the place of their argument `reduction`: all but 0 reduce what they make."""


@rule(*(_STEPS.keys() | _REDUCING.keys()))
def _steps(call: Call) -> list[Kernel]:
    place = _REDUCING.get(call.name)
    whole = of(call)
    times = _STEPS.get(call.name, 1)
    if place is None or call.number(place, 1) == 0 or not call.given:
        return [whole] * times
    first = call.given[0]
    each = Tensor(first.shape, first.dtype, first.strides)
    one = of(Call(call.name, call.args, (each,), call.flags))
    return [one] * times + reducing(each, tuple(range(len(each.shape))), call.flags)


@rule("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss", "multilabel_margin_loss_forward")
def _loss(call: Call) -> list[Kernel]:
    scores = call.need(0)
    outs = call.outs or (Tensor((), scores.dtype), Tensor((), scores.dtype))
    columns = scores.shape[1 if len(scores.shape) > 1 else 0] if scores.shape else 1
    return [kernel("loss", scores.numel // max(columns, 1), columns, nbytes=total(call, outs))]


@rule("nll_loss_backward", "nll_loss2d_backward", "multi_margin_loss_backward", "multilabel_margin_loss_backward")
def _loss_backward(call: Call) -> list[Kernel]:
    """The gradient is zero but in one place of each row."""
    scores = call.need(1)
    outs = call.outs or (Tensor(scores.shape, scores.dtype),)
    columns = scores.shape[1 if len(scores.shape) > 1 else 0] if scores.shape else 1
    whole = total(call, outs)
    return [
        kernel("fill", scores.numel, nbytes=outs[0].nbytes),
        kernel("loss_backward", scores.numel // max(columns, 1), columns, nbytes=whole - outs[0].nbytes),
    ]


@rule("_ctc_loss", "_ctc_loss_backward", "ctc_loss")
def _ctc(call: Call) -> list[Kernel]:
    steps, batch, classes = (*call.need(0).shape, 1, 1, 1)[:3]
    outs = call.outs or (Tensor((batch,)),)
    kind = "loss_backward" if call.name.endswith("backward") else "loss"
    return [kernel("fill", batch * steps), kernel(kind, batch * steps, classes, nbytes=total(call, outs))]
