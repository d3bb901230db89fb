"""What asks the rules."""

from __future__ import annotations

from ahbm.kernels import attention, convolutions, elements, indexing, lists, losses, norms, products, recurrent
from ahbm.kernels.elements import of
from ahbm.kernels.lists import foreach
from ahbm.kernels.model import DEFAULT, Arg, Call, Flags, Kernel, Tensor, Unknown, kernel
from ahbm.kernels.reductions import reducing
from ahbm.kernels.rules import found
from ahbm.kernels.touched import once, total

ROOMS = (attention, convolutions, elements, indexing, lists, losses, norms, products, recurrent)
"""Modules that know operations."""
ODD = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, StopIteration)
"""What a rule may raise for arguments that its operation never has, as a trace that was cut may say."""


def known(name: str) -> bool:
    """Whether a rule is about an operation. Others are of the class that their shapes show."""
    return found(name) is not None or name.startswith("_foreach_")


def describe(
    name: str,
    args: tuple[Arg, ...],
    outs: tuple[Tensor, ...] | None = None,
    *,
    flags: Flags = DEFAULT,
    operations: int | None = None,
) -> tuple[Kernel, ...]:
    """The kernels that CUDA launches for an operation.

    `name`: as torch has it, without namespace and overload. `args`: in the order of its schema, tensors as `Tensor`,
    lists as tuples. `outs`: its results; None where they are not known: then rules say what they would be.
    `operations`: as torch counts them, shared among the kernels that have any. Empty for what starts none, and for what
    is neither known nor shows by its shapes what it does. Never raises.
    """
    call = Call(name, args, outs, flags, operations)
    try:
        kernels = _described(call)
    except (Unknown, *ODD):
        kernels = _guessed(call)
    return tuple(kernels if _grouped(call) else _counted(kernels, operations))


def _described(call: Call) -> list[Kernel]:
    if call.outs and not any(x.numel for x in call.outs) and call.given:
        return []
    rule = found(call.name)
    if rule is not None:
        return rule(call)
    if call.name.startswith("_foreach_"):
        return foreach(call)
    return _guessed(call)


def _guessed(call: Call) -> list[Kernel]:
    """One kernel by what shapes show: of elements where they broadcast to the result, a reduction where it is smaller,
    else one that moves elements."""
    try:
        one = of(call)
    except (Unknown, *ODD):
        one = None
    if call.outs is None:
        return [] if one is None else [one]
    made = max((x.numel for x in call.outs), default=0)
    read = max((x for x in call.given), key=lambda x: x.numel, default=None)
    nbytes = total(Call("", call.args, call.outs), call.outs)
    if not nbytes:
        return []
    if read is None:
        return [kernel("fill", made, nbytes=nbytes)]
    if 2 * made <= read.numel:
        axes = tuple(range(len(read.shape)))
        return [*reducing(read, axes, call.flags, nbytes)]
    if one is not None and read.numel <= made:
        return [one]
    return [kernel("strided", max(made, read.numel), nbytes=max(nbytes, once(call.given)))]


def _grouped(call: Call) -> bool:
    """Whether it is the gradient of a convolution in groups, which torch counts as if there was one group."""
    return call.name == "convolution_backward" and call.number(9, 1) > 1


def _counted(kernels: list[Kernel], operations: int | None) -> list[Kernel]:
    """Kernels with as many operations together as torch counts."""
    if operations is None or not kernels:
        return kernels
    ours = sum(each.operations for each in kernels)
    if ours == operations:
        return kernels
    if not ours:
        at = max(range(len(kernels)), key=lambda i: kernels[i].nbytes)
        return [each._replace(operations=operations if i == at else 0) for i, each in enumerate(kernels)]
    found, done, given = [], 0, 0
    for each in kernels:
        done += each.operations
        share = operations * done // ours - given
        given += share
        found.append(each._replace(operations=share))
    return found
