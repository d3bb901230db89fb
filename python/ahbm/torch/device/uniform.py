"""What collectives leave in tensors that have data but beside them (`--fake`): every rank is like this one."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._subclasses.fake_tensor import FakeTensor

from ahbm.errors import UnsupportedError
from ahbm.torch.device import marks, values


def called(name: str, args: Any, out: Any) -> None:
    """A collective was called: what it wrote gets the data that is known, or loses what no longer holds."""
    rule = _RULES.get(name)
    if rule is None:
        return
    pairs: list[tuple[Any, Any]] = []  # what is written, and what of
    targets, sources = rule(args, out)
    for target, source in zip(targets, sources, strict=False):
        if isinstance(target, FakeTensor):
            pairs.append((target, source))
    known = {id(source): values.data(source) if values.is_known(source) else None for _, source in pairs}
    for target, source in pairs:
        data = known[id(source)]
        if data is None:
            values.drop(target)
            continue
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            found = _result(name, data, args, target)
        if found is None or found.numel() != target.numel():
            values.drop(target)
        else:
            values.attach(target, found.reshape(tuple(target.shape)).clone())


def functional(mode: Any, func: Any, name: str, args: Any, kwargs: Any, index: int | None) -> Any:
    """A functional collective of tensors without data on device `index`, of which torch only finds out the sizes: the
    group performs it, in what it made."""
    held = marks.storage(args[0]) if name in ("wait_tensor", "_wrap_tensor_autograd") else None
    open_ = [] if held is None else held.__dict__.pop(_WORK, [])
    if name == "wait_tensor":
        for work in open_:
            work.wait()
    with values.Faking(mode):
        out = func(*args, **kwargs)
    if name in ("wait_tensor", "_wrap_tensor_autograd"):
        if open_ and name != "wait_tensor":  # with data, it is the same memory
            marks.storage(out).__dict__[_WORK] = open_
        return out
    issue = _ISSUES.get(name.removesuffix("_coalesced"))
    if issue is None:
        raise UnsupportedError("AHBM-U156", f"_c10d_functional::{name} under --fake", hint="run it with data")
    group = _group(args)
    many = isinstance(args[0], list | tuple)
    for made, given in zip(out if many else [out], args[0] if many else [args[0]], strict=True):
        work = issue(group, marks.put(made, index), given, args)
        held = marks.storage(made)
        if held is not None:
            held.__dict__.setdefault(_WORK, []).append(work)
    return out


_WORK = "_ahbm_work"


def _all_reduce(group: Any, made: Any, given: Any, args: Any) -> Any:
    options = c10d.AllreduceOptions()
    options.reduceOp = _reduce_op(args[1])
    return group.allreduce([made], options)


def _all_gather(group: Any, made: Any, given: Any, args: Any) -> Any:
    return group._allgather_base(made, given)


def _reduce_scatter(group: Any, made: Any, given: Any, args: Any) -> Any:
    options = c10d.ReduceScatterOptions()
    options.reduceOp = _reduce_op(args[1])
    return group._reduce_scatter_base(made, given, options)


def _all_to_all(group: Any, made: Any, given: Any, args: Any) -> Any:
    return group.alltoall_base(made, given, *([int(n) for n in splits] for splits in args[1:3]))


def _broadcast(group: Any, made: Any, given: Any, args: Any) -> Any:
    options = c10d.BroadcastOptions()
    options.rootRank = args[1]
    return group.broadcast([made], options)


_ISSUES = {
    "all_reduce": _all_reduce,
    "all_reduce_": _all_reduce,
    "all_gather_into_tensor": _all_gather,
    "all_gather_into_tensor_out": _all_gather,
    "reduce_scatter_tensor": _reduce_scatter,
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast,
    "broadcast_": _broadcast,
}


def _reduce_op(name: str) -> Any:
    return getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(name.lower(), name.upper()))


def _group(args: Any) -> Any:
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            try:
                return dist.ProcessGroup.unbox(arg)
            except RuntimeError:
                continue
    name = args[-1]
    return c10d._resolve_process_group(name) if isinstance(name, str) else name


def _operator(args: Any) -> str:
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            try:
                return str(dist.ReduceOp.unbox(arg).op).rpartition(".")[2].lower()
            except (RuntimeError, AttributeError):
                continue
    return str(args[1]).lower()


def _result(name: str, data: torch.Tensor, args: Any, target: Any) -> torch.Tensor | None:
    """What a collective makes of what all ranks give."""
    group = _group(args)
    size, me = group.size(), group.rank()
    if name in _REDUCING:
        operator = _operator(args)
        if "scatter" in name:
            data = data.reshape(size, -1)[me]
        if operator in ("sum", "prod", "product", "premul_sum"):
            return None if operator == "premul_sum" else data * size if operator == "sum" else data**size
        return data
    if name in ("alltoall_base_", "all_to_all_single"):
        splits = args[3] if name == "alltoall_base_" else args[2]
        rows = [int(n) for n in splits] or [data.shape[0] // size] * size
        start = sum(rows[:me])
        return torch.cat([data[start : start + rows[me]]] * size)
    if name in ("_allgather_base_", "all_gather_into_tensor", "allgather_into_tensor_coalesced_"):
        return torch.cat([data.reshape(-1)] * size)
    return data


def _in_place(args: Any, out: Any) -> Any:
    many = args[0] if isinstance(args[0], list | tuple) else [args[0]]
    return many, many


def _functional(args: Any, out: Any) -> Any:
    return [out], [args[0]]


def _base(args: Any, out: Any) -> Any:
    return [args[0]], [args[1]]


def _lists(args: Any, out: Any) -> Any:
    return [x for many in args[0] for x in many], [x for many, x in zip(args[0], args[1], strict=True) for _ in many]


def _each(args: Any, out: Any) -> Any:
    group = _group(args)
    return args[0], [args[1][group.rank()]] * len(args[0])


def _many(args: Any, out: Any) -> Any:
    return args[0], args[1]


_REDUCING = {
    "allreduce_", "all_reduce", "all_reduce_", "_reduce_scatter_base_", "reduce_scatter_tensor",
    "allreduce_coalesced_", "reduce_scatter_tensor_coalesced_",
}  # fmt: skip
_RULES = {
    "allreduce_": _in_place,
    "allreduce_coalesced_": _in_place,
    "allgather_into_tensor_coalesced_": _many,
    "reduce_scatter_tensor_coalesced_": _many,
    "broadcast_": _in_place,
    "all_reduce_": _in_place,
    "all_reduce": _functional,
    "broadcast": _functional,
    "all_gather_into_tensor": _functional,
    "reduce_scatter_tensor": _functional,
    "all_to_all_single": _functional,
    "wait_tensor": _functional,
    "_allgather_base_": _base,
    "_reduce_scatter_base_": _base,
    "alltoall_base_": _base,
    "allgather_": _lists,
    "alltoall_": _each,
}
