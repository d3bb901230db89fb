"""One process as one rank of many (`--ranks N`), and tensors without data (`--fake`)."""

from __future__ import annotations

import functools
import itertools
import math
import os
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ahbm.base.logs import notice
from ahbm.config.topology import ENV
from ahbm.errors import DistributedError, UnsupportedError
from ahbm.torch.device import marks, native, sizes, values
from ahbm.torch.replacing import replace

WORLD = "AHBM_WORLD"
"""Environment variable: the number of ranks that one process stands for, and which of them it is."""
FAKE = "AHBM_FAKE"


def wanted() -> tuple[int, int] | None:
    """The rank and the number of ranks that this process plays; None where it is one of real ones."""
    asked = os.environ.get(WORLD)
    if not asked:
        return None
    ranks, _, rank = asked.partition(":")
    return int(rank or 0), int(ranks)


def refuse_hosts() -> None:
    """Raises UnsupportedError (AHBM-U156) where torchrun has started ranks on several hosts."""
    hosts = os.environ.get("GROUP_WORLD_SIZE") or "1"
    if hosts != "1":
        raise UnsupportedError(
            "AHBM-U156",
            f"ranks on {hosts} hosts: the emulator is in the process of rank 0, which others reach on one host",
            hint="run all ranks on this host, or --ranks N, one process that stands for all",
        )


def environment(devices: int) -> None:
    """Sets what torchrun would."""
    found = wanted()
    if found is None:
        return
    rank, ranks = found
    local = min(devices, ranks)
    facts = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local}
    os.environ.update({key: f"{value}" for key, value in facts.items()})
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")


def initialize() -> Any:
    """`init_process_group` of one rank that stands for all."""
    from ahbm.torch.alone import init_alone

    found = wanted()
    assert found is not None
    notice(f"this process is rank {found[0]} of {found[1]} ranks like it")
    topology = os.environ.get(ENV)
    try:
        init_alone(*found)
    except DistributedError as error:
        if error.code != "AHBM-X104" or not topology:
            raise
        hint = f'{ENV}="{topology}, system.sips.count={found[1]}" has as many, on as many nodes as they take'
        raise DistributedError(error.code, error.message, hint=hint) from None
    native.when_imported(("torch.distributed.checkpoint.utils",), _saves_alone)
    native.when_imported(("torch.distributed.checkpoint.default_planner",), _plans_alone)
    return dist.group.WORLD


def _saves_alone(module: Any) -> None:
    """A distributed checkpoint has what this rank holds, and is written and read by it alone."""
    makes = module._DistWrapper.__init__

    @functools.wraps(makes)
    def make(self: Any, group: Any, use_dist: bool, coordinator_rank: int) -> None:
        makes(self, group, False, coordinator_rank)

    module._DistWrapper.__init__ = make


def _plans_alone(module: Any) -> None:
    module._validate_global_plan = lambda global_plan, metadata: []  # shards of others are in no plan


_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")


def _objects() -> None:
    """Objects that are told to other ranks have data, however large they are."""

    def telling(tells: Any) -> Any:
        @functools.wraps(tells)
        def tell(*args: Any, **kw: Any) -> Any:
            before, values.real.on = values.real.on, True
            try:
                return tells(*args, **kw)
            finally:
                values.real.on = before

        return tell

    for name in _OBJECTS:
        known = getattr(dist, name)
        replace(known, telling(known))


def fake_mode() -> Any:
    """The mode in which tensors have no data; None where they have. See `values` and `sizes` for what is known of it
    after all, and what is invented."""
    if not os.environ.get(FAKE):
        return None
    from ahbm.torch.device import casts, files

    sizes.skew()
    values.install()
    files.install()
    casts.install()
    _objects()

    swaps = torch.utils.swap_tensors

    def swap_tensors(old: torch.Tensor, new: torch.Tensor) -> None:
        try:
            swaps(old, new)
        except RuntimeError:  # torch's fake mode has weak references to them, which swapping does not mind here
            old.__dict__, new.__dict__ = new.__dict__, old.__dict__
            torch._C._swap_tensor_impl(old, new)

    torch.utils.swap_tensors = swap_tensors
    mode: Any = FakeTensorMode(allow_non_fake_inputs=True)
    mode.create_symbolic_nested_int = _ragged
    tensor: Any = torch.Tensor
    tensor.nested_int_memo = property(_ragged_of)  # which torch asks of offsets that go to the device
    return mode


_raggeds = itertools.count(1 << 32)


def _ragged_of(x: Any) -> Any:
    from torch.nested._internal.nested_tensor import get_tensor_symint

    return get_tensor_symint(x)


def _ragged(*, nt_tensor_id: int | None = None) -> Any:
    """The size that a nested tensor has where it is ragged: one that is equal to itself alone, and no symbol."""
    from torch.nested._internal.nested_int import NestedIntNode

    return torch.SymInt(NestedIntNode(next(_raggeds) if nt_tensor_id is None else nt_tensor_id, 1))


LARGE = 1 << 16
"""Elements from which on a tensor of integers of the host has no data, either."""


def is_large(args: Any, dtype: torch.dtype | None) -> bool:
    """Whether what a factory makes on the host has no data: a model may be larger than memory. All of a model has none,
    so that its parameters stay the same objects where they move."""
    size = args[0] if args else ()
    if not isinstance(size, list | tuple) or not size or not all(type(n) is int for n in size):
        return False
    return (dtype or torch.get_default_dtype()).is_floating_point or math.prod(size) >= LARGE


def run(mode: Any, kind: Any, func: Any, args: Any, kwargs: Any, given: list[torch.Tensor]) -> Any:
    """An operation of tensors of which some may have no data, with its data where that is known."""
    if kind.is_view and given and isinstance(given[0], FakeTensor):
        with values.Faking(mode):
            return func(*args, **kwargs)
    known, beside = True, False
    for x in given:
        if isinstance(x, FakeTensor):
            if values.is_known(x):
                beside = True
            else:
                known = False
                if not kind.writes_operands:
                    break
    if kind.sizes_depend:
        found = sizes.run(mode, kind, func, args, kwargs)
        if found is not NotImplemented:
            return found
    try:
        with values.Faking(mode):  # torch's fake kernels make tensors where they find others
            out = func(*args, **kwargs)
    except sizes.UNKNOWN:
        return sizes.by_example(mode, func, args, kwargs)
    except NotImplementedError as error:
        if not native.speaks_of_a_driver(error):
            raise
        raise native.refusal(f"the kernel {func}", native.first_line(error)) from error
    if kind.is_view:
        for x in given:
            if not isinstance(x, FakeTensor) and isinstance(out, FakeTensor) and out.shape == x.shape:
                values.attach(out, x.detach())
        return out
    if known or (kind.overwrites and _covers(kind, args, given)):
        values.compute(func, args, kwargs, given, out, made=not given, beside=beside, writes=kind.writes_operands)
        return out
    if kind.writes_operands and beside:
        sizes.write(kind, func, args, given)
    if kind.name in sizes.CHOICES and sizes.choose(kind.name, args, kwargs, out):
        return out
    if given and not given[0].dtype.is_floating_point and not kind.writes_operands and _countable(given, out):
        for x in given:
            if not values.is_known(x):
                sizes.invent(x)
        values.compute(func, args, kwargs, given, out, made=False, beside=True, writes=False)
    return out


def _covers(kind: Any, args: Any, given: list[torch.Tensor]) -> bool:
    """Whether an operation that overwrites writes the whole of what has no data, from what has."""
    if kind.name.startswith("_foreach"):
        return False
    target = given[0]
    if not all(values.is_known(x) for x in given[1:]):
        return False
    if values.is_known(target):
        return True
    held = marks.storage(target)
    whole = held is not None and target.numel() * target.element_size() == held.nbytes()
    if not whole or target.numel() > (
        values.limit(target.dtype) if len(given) > 1 else values.made_limit(target.dtype)
    ):
        return False
    values.attach(
        target, torch._C._VariableFunctions.empty_strided(tuple(target.shape), target.stride(), dtype=target.dtype)
    )
    return True


def _countable(given: list[torch.Tensor], out: Any) -> bool:
    """Whether an operation is one of integers and truth values alone, and small enough to be done."""
    outs = out if isinstance(out, tuple | list) else (out,)
    return all(not x.dtype.is_floating_point and x.numel() <= values.limit(x.dtype) for x in given) and all(
        isinstance(x, torch.Tensor) and x.numel() <= values.limit(x.dtype) for x in outs
    )


def ask(func: Any, args: Any, given: list[torch.Tensor]) -> Any:
    """The value that a script asks for: that of data that is known, else an invented one."""
    if all(values.data(x) is not None for x in given):
        return func(*values.with_data(args))
    return sizes.value(func, given[0])
