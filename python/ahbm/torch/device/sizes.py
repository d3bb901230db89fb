"""What is expected of data that is not there (`--fake`): sizes that depend on it, and values that a script asks for.

Numbers are 1 and truth values False, of `all` True; nothing is infinite or no number. Half of a comparison's truth
values are True. What a router, a sort or a draw chooses is spread over all that there is to choose from, evenly or,
with `--routing skew=S`, so that the fullest choice gets S times the mean. What is so invented stays: all that is
computed from it agrees.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)

from ahbm.base.logs import notice
from ahbm.errors import ConfigError
from ahbm.torch.device import marks, values

ROUTING = "AHBM_ROUTING"
"""Environment variable: the twin of `--routing`."""
UNKNOWN = (DynamicOutputShapeException, DataDependentOutputException, UnsupportedOperatorException)
"""What torch's fake kernels raise where sizes depend on data."""
PATIENCE = 1000
"""Times that a line of a script is told the same invented truth value before it is told the other one once."""
CHOICES = {
    "topk", "sort", "argsort", "argmax", "argmin", "max", "min", "mode", "kthvalue", "median", "nanmedian",
    "multinomial",
    "isnan", "isinf", "isposinf", "isneginf", "isfinite", "isreal", "any", "all", "_is_all_true", "_is_any_true",
    "eq", "ne",
}  # fmt: skip
"""Operations whose results are invented where their operands have no data."""
_ALWAYS = {"isfinite", "isreal", "all", "_is_all_true"}
_NEVER = {"isnan", "isinf", "isposinf", "isneginf", "any", "_is_any_true"}
_SELF = {"eq": True, "ne": False}
"""What a comparison of a tensor with itself gives: nothing is no number, and with infinity the opposite."""
_asked: dict[tuple[str, int], int] = {}


def _say(what: str) -> None:
    notice(f"--fake invents {what}")


def skew() -> float:
    """How many times the mean the fullest choice gets. Raises ConfigError (AHBM-C127)."""
    asked = os.environ.get(ROUTING) or "uniform"
    if asked == "uniform":
        return 1.0
    name, _, text = asked.partition("=")
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if name != "skew" or not 1 <= found < float("inf"):
        raise ConfigError("AHBM-C127", f"--routing {asked} is unknown", hint="uniform, or skew=S with S of at least 1")
    return found


def value(func: Any, x: torch.Tensor) -> Any:
    """What a script is told that asks for the value of a tensor without data."""
    if func in (torch.ops.aten.equal.default, torch.ops.aten.allclose.default):
        _say("answers: tensors without data are equal")
        return True
    if x.dtype is torch.bool or func is torch.ops.aten.is_nonzero.default:
        return truth()
    _say("numbers: a value that comes from data that is not there is 1")
    return 1.0 if x.dtype.is_floating_point else complex(1) if x.dtype.is_complex else 1


def truth() -> bool:
    """A truth value: False, but once in a while True, so that what waits for it ends."""
    _say("truth values: a condition on data that is not there is False")
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("torch", "ahbm")):
        frame = frame.f_back
    at = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    count = _asked[at] = _asked.get(at, 0) + 1
    if count % PATIENCE == 0:
        notice(f"{os.path.basename(at[0])}:{at[1]} was told False {PATIENCE - 1} times and is told True once")
        return True
    return False


def known_or_invented(x: Any) -> torch.Tensor:
    """The data that a script sees of a tensor without data: numbers are 1, truth values False."""
    make = torch._C._VariableFunctions
    with torch._C._DisableTorchDispatch():
        if x.dtype is torch.bool:
            _say("truth values: a condition on data that is not there is False")
            return make.zeros(tuple(x.shape), dtype=x.dtype)
        _say("numbers: a value that comes from data that is not there is 1")
        if x.numel() * x.element_size() > 1 << 28:  # what nobody reads needs no memory
            return make.ones((), dtype=x.dtype).expand(tuple(x.shape))
        return make.ones(tuple(x.shape), dtype=x.dtype)


def invent(x: Any) -> None:
    """Gives a tensor of integers or truth values that has no data some, for good."""
    make = torch._C._VariableFunctions
    with torch._C._DisableTorchDispatch():
        if x.dtype is torch.bool:
            if x.dim():
                _say("masks: half of the truth values of a comparison of data that is not there are True")
            found = make.arange(x.numel()).remainder(2).to(torch.bool).reshape(tuple(x.shape))
        else:
            _say("numbers: a value that comes from data that is not there is 1")
            found = make.ones(tuple(x.shape), dtype=x.dtype)
    held = marks.storage(x)
    if held is None:
        return
    if x.numel() * x.element_size() == held.nbytes():
        values.attach(x, found)
        return
    # A part of a tensor: the whole gets data, so that its other parts agree.
    with torch._C._DisableTorchDispatch():
        whole = make.empty(held.nbytes() // x.element_size(), dtype=x.dtype)
        if x.dtype is torch.bool:
            whole.copy_(make.arange(whole.numel()).remainder(2))
        else:
            whole.fill_(1)
    values.attach_storage(held, whole.untyped_storage())


def spread(count: int, choices: int, each: int = 1) -> torch.Tensor:
    """So many times `each` different numbers below `choices`, evenly spread, or skewed as was asked for."""
    make, asked = torch._C._VariableFunctions, skew()
    start = choices // 2
    with torch._C._DisableTorchDispatch():
        if asked == 1 or choices == 1 or each >= choices:
            found = make.arange(count * each).add_(start).remainder_(max(choices, 1))
            return found.reshape(count, each)
        # One choice gets `asked` times the mean, as far as each row can take it once; the others share the rest.
        most = min(count, round(asked * count * each / choices))
        rest = make.arange(count * each).remainder_(choices - 1).reshape(count, each)
        found = rest.add_(1)
        found[:most, 0] = 0
        if each > 1:  # the others of a row stay different from each other: `each` in a row of a circle
            return found.add_(start).remainder_(choices)
        return found.add_(start).remainder_(choices)


def choose(name: str, args: Any, kwargs: Any, out: Any) -> bool:
    """Gives what a choice among data that is not there results in; returns whether it is one."""
    make = torch._C._VariableFunctions
    fixed = name in _ALWAYS if name in _ALWAYS or name in _NEVER else None
    if name in _SELF:
        if args[0] is args[1]:
            fixed = _SELF[name]
        elif type(args[1]) is float and args[1] in (float("inf"), -float("inf")):
            fixed = not _SELF[name]
        else:
            return False
    if fixed is not None:
        if isinstance(out, FakeTensor) and out.numel() <= values.INTEGERS:
            with torch._C._DisableTorchDispatch():
                values.attach(out, make.full(tuple(out.shape), fixed, dtype=out.dtype))
        return True
    found = out[-1] if isinstance(out, tuple | list) else out
    x = args[0]
    if found.dtype is not torch.int64 or found.numel() > values.INTEGERS or not found.numel() or not x.dim():
        return False
    _say("choices: what topk, argmax, sort and multinomial choose among data that is not there is spread evenly")
    if name == "multinomial":
        values.attach(found, spread(found.numel(), x.shape[-1]).reshape(tuple(found.shape)))
        return True
    if name in ("argmax", "argmin") and (len(args) < 2 or args[1] is None) and kwargs.get("dim") is None:
        values.attach(found, spread(1, x.numel()).reshape(tuple(found.shape)))
        return True
    default = -1 if name in ("topk", "sort", "argsort", "mode", "kthvalue") else 0
    where = {"topk": 2, "kthvalue": 2}.get(name, 1)
    dim = kwargs.get("dim", args[where] if len(args) > where else default)
    if type(dim) is not int:  # `sort.stable` names it
        dim = kwargs.get("dim", default)
    choices = x.shape[dim]
    if name in ("sort", "argsort"):
        with torch._C._DisableTorchDispatch():
            row = make.arange(choices).reshape([-1 if at == dim % x.dim() else 1 for at in range(x.dim())])
            values.attach(found, row.expand(tuple(found.shape)).contiguous())
        return True
    each = args[1] if name == "topk" else 1
    with torch._C._DisableTorchDispatch():
        rows = spread(found.numel() // each, choices, each)
        if name == "topk":
            others = [size for at, size in enumerate(x.shape) if at != dim % x.dim()]
            rows = rows.reshape([*others, each]).movedim(-1, dim % x.dim())
        values.attach(found, rows.reshape(tuple(found.shape)).contiguous())
    return True


def write(kind: Any, func: Any, args: Any, given: list[torch.Tensor]) -> None:
    """What is not known was written to operands: neither are they. But no gradient is infinite or no number."""
    kept = args[1] if kind.name == "_amp_foreach_non_finite_check_and_unscale_" else None
    wrote = set()
    for argument, arg in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            wrote |= {id(x) for x in (arg if isinstance(arg, list | tuple) else (arg,))}
    outs = {id(x) for x in given[len(args) :]} if kind.outs else set()
    for x in given:
        if x is not kept and (id(x) in wrote or id(x) in outs or kind.outs):
            values.drop(x)


# ---------------------------------------------------------------- sizes that depend on data


def run(mode: Any, kind: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """An operation whose result has a size that depends on data; NotImplemented where its operands do not say so."""
    rule = RULES.get(kind.name)
    return NotImplemented if rule is None else rule(mode, func, args, kwargs)


def _exact(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of operands with data, as tensors without."""
    found = func(*values.with_data(args), **{key: values.with_data(arg) for key, arg in kwargs.items()})
    return _hollow(mode, found)


def _hollow(mode: Any, found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return values.hollowed(mode, found)
    return type(found)(_hollow(mode, one) for one in found) if isinstance(found, tuple | list) else found


def _sized(mode: Any, size: Any, dtype: torch.dtype) -> Any:
    """A tensor of a size, without data."""
    with values.Faking(mode):
        return torch.ops.aten.empty.memory_format(list(size), dtype=dtype, device=torch.device("cpu"))


def _know(x: Any) -> bool:
    """Whether a tensor has data, invented now if it is of integers or truth values."""
    if values.is_known(x):
        return True
    if x.dtype is torch.bool and x.numel() <= values.INTEGERS:
        invent(x)
        return True
    return False


def _nonzero(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x = args[0]
    if _know(x):
        return _exact(mode, func, args, kwargs)
    _say("masks: half of the truth values of a comparison of data that is not there are True")
    return _sized(mode, ((x.numel() + 1) // 2, x.dim()), torch.int64)


def _masked_select(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x, mask = args
    size = torch.broadcast_shapes(x.shape, mask.shape)
    count = 1
    for n in size:
        count *= n
    if _know(mask):
        if values.is_known(x):
            return _exact(mode, func, args, kwargs)
        known = values.data(mask)
        assert known is not None
        return _sized(mode, (int(known.sum()) * (count // max(mask.numel(), 1)),), x.dtype)
    _say("masks: half of the truth values of a comparison of data that is not there are True")
    return _sized(mode, (count // 2,), x.dtype)


def _index(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`x[mask]`: the mask is what is not zero of it."""
    indices = args[1]
    if not any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices):
        return NotImplemented
    into: list[Any] = []
    for i in indices:
        if isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8):
            found = _nonzero(mode, torch.ops.aten.nonzero.default, (i,), {})
            data = values.data(found)
            if data is not None:
                into += [values.hollowed(mode, column.contiguous()) for column in data.unbind(1)]
            else:
                into += [_sized(mode, found.shape[:1], torch.int64) for _ in range(found.shape[1])]
        else:
            into.append(i)
    from ahbm.torch.device import world
    from ahbm.torch.device.kernels import kind_of, tensors

    return world.run(mode, kind_of(func), func, (args[0], into, *args[2:]), kwargs, tensors((args[0], into, *args[2:])))


def _unique(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x = args[0]
    if values.is_known(x):
        return _exact(mode, func, args, kwargs)
    _say("sizes: all elements of data that is not there are different")
    name = func._schema.name.rpartition("::")[2]
    if name in ("unique_dim", "unique_consecutive") and len(args) > 1 and type(args[1]) is int and name == "unique_dim":
        n, size = x.shape[args[1]], tuple(x.shape)
    else:
        n, size = x.numel(), (x.numel(),)
    inverse = size if name == "unique_dim" and len(size) == 1 else (n,) if name == "unique_dim" else tuple(x.shape)
    counts = _sized(mode, (n,), torch.int64)
    return _sized(mode, size, x.dtype), _sized(mode, inverse, torch.int64), counts


def _bincount(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x = args[0]
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
    if values.is_known(x):
        if weights is None or values.is_known(weights):
            return _exact(mode, func, args, kwargs)
        known = values.data(x)
        assert known is not None
        return _sized(mode, (max(least, int(known.max()) + 1 if known.numel() else 0),), weights.dtype)
    bins = max(least, 2)
    if weights is not None:
        return _sized(mode, (bins,), torch.float64 if not weights.dtype.is_floating_point else weights.dtype)
    _say("choices: what topk, argmax, sort and multinomial choose among data that is not there is spread evenly")
    with torch._C._DisableTorchDispatch():
        counts = torch._C._VariableFunctions.full((bins,), x.numel() // bins, dtype=torch.int64)
        counts[: x.numel() % bins] += 1
    return values.hollowed(mode, counts)


def _histc(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A GPU has it for integers as well, the host for numbers alone."""
    x = args[0]
    if x.dtype.is_floating_point or not values.is_known(x):
        return NotImplemented
    known = values.data(x)
    assert known is not None
    return values.hollowed(mode, func(known.double(), *args[1:], **kwargs).to(x.dtype))


def _repeat_interleave(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    repeats = args[0]
    size = kwargs.get("output_size")
    if values.is_known(repeats):
        return _exact(mode, func, args, kwargs)
    _say("numbers: a value that comes from data that is not there is 1")
    return _sized(mode, (repeats.numel() if size is None else size,), torch.int64)


def _pack(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Lengths lie on the host; what is packed may have no data. How many sequences are left at a time has."""
    x, lengths, first = args
    known = values.shown(lengths)
    rows = x.transpose(0, 1) if first else x
    with torch._C._DisableTorchDispatch():
        shape = torch._C._VariableFunctions.zeros((rows.shape[0], rows.shape[1], 1))
    _, sizes = func(shape, known, False)
    return _sized(mode, (int(known.sum()), *rows.shape[2:]), x.dtype), sizes


def by_example(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The result, in sizes alone, of an operation that torch has no rule for: it is done with data that is invented."""

    def example(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return values.shown(arg)
        return type(arg)(example(one) for one in arg) if type(arg) in (list, tuple) else arg

    _say(f"sizes: {func} is done with numbers that are 1")
    found = func(*example(args), **{key: example(arg) for key, arg in kwargs.items()})

    def sized(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            integer = not one.dtype.is_floating_point
            return values.hollowed(mode, one) if integer else _sized(mode, one.shape, one.dtype)
        return type(one)(sized(x) for x in one) if isinstance(one, tuple | list) else one

    return sized(found)


RULES: dict[str, Callable[..., Any]] = {
    "nonzero": _nonzero,
    "nonzero_numpy": _nonzero,
    "argwhere": _nonzero,
    "masked_select": _masked_select,
    "index": _index,
    "_unsafe_index": _index,
    "_unique": _unique,
    "_unique2": _unique,
    "unique_dim": _unique,
    "unique_consecutive": _unique,
    "bincount": _bincount,
    "histc": _histc,
    "repeat_interleave": _repeat_interleave,
    "_pack_padded_sequence": _pack,
}
"""Operations whose results have sizes that depend on data, or that the host does not have as a GPU has them."""
