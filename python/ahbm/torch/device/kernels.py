"""What a GPU would be given to do: every operation of torch's dispatcher, seen below autograd.

The mode lets operations run in host memory, marks what they make with the device of what they are given, and tells the
meter which kernels they are.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, UnsupportedOperatorException
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ahbm.kernels.touched import OVERWRITING
from ahbm.torch.device import checks, marks, memory, precision, scratch, sizes, uniform, values, world
from ahbm.torch.device.described import whole
from ahbm.torch.device.meter import Meter, counting, hushed

_PLAIN = {torch.Tensor, torch.nn.Parameter, FakeTensor}
_QUIET = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "detach", "alias",
    "_unsafe_view", "set_", "resize_", "resize_as_", "is_same_size", "record_stream", "is_pinned",
    "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "_nested_tensor_size",
}  # fmt: skip
"""Operations that start no kernel."""
_ASKING = {
    "is_same_size", "is_pinned", "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "_nested_tensor_size",
    "_record_function_enter_new", "_record_function_exit",
}  # fmt: skip
"""Operations that ask what a tensor is, or what is beside the work."""
_SYNCHRONIZING = {"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select", "_unique2"}
"""Operations whose answer the host waits for."""
_RESIZING = {"set_", "resize_", "resize_as_", "detach", "alias", "lift_fresh", "_unsafe_view"}
_ALIKE = {"_to_copy", "clone", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"}
"""Operations whose result is as large as their operand."""
_MOVING = {"_to_copy", "copy_", "_foreach_copy_", "_local_scalar_dense"}
"""Operations that may go from the host to the device or back."""
_ON_HOST = {"_pack_padded_sequence": (1,)}
"""Operations of the device that leave parts of their results on the host."""
CALLS = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem")
"""Namespaces of collectives, whose time the emulator knows."""


_active: Any = torch._C._get_dispatch_mode
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
_BY_SCRIPT = re.compile(r"^CUDA: registered at \S*\.py:", re.MULTILINE)
"""Of what torch tells of an operation: its kernel for GPUs is a function of Python."""


operators: list[Callable[..., Any]] = [lambda _, func, args, kwargs: func(*args, **kwargs)]
"""What runs operators that are given functions: see `higher`."""


class _Placing(threading.local):
    to: int | None = None
    """The device on which the calling thread makes what it makes of nothing."""
    latest: int | None = None
    """The device of the calling thread's latest operation."""
    graph: Any = None
    """The recording of the graph that the calling thread captures."""


placing = _Placing()


class Kernels(TorchDispatchMode):
    """See above."""

    supports_higher_order_operators = True

    def __init__(self, meter: Meter, fake: Any = None) -> None:
        """`fake`: the mode in which the device's tensors, and large ones of the host, have no data."""
        super().__init__()
        self.meter = meter
        self.fake = marks.fake[0] = fake

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled, and torch's wrapper against it takes 10 us of every operation."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation."""
        for kind in types:
            if kind not in _PLAIN and not issubclass(kind, torch.nn.Parameter):
                return NotImplemented
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs) if _active(_FAKE) is not None else operators[0](self, func, args, kwargs)
        if _active(_FAKE) is not None:  # torch finds out shapes: nothing that a device would do
            if marks.index_of(kwargs.get("device")) is not None:
                kwargs = {**kwargs, "device": torch.device("cpu")}
            return func(*args, **kwargs)
        known = kind_of(func)
        if known.decomposes and not any(x.is_nested for x in tensors(args)):
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        if known.is_scripts and self.fake is None and any(marks.where(x) is not None for x in tensors((args, kwargs))):
            with self:
                return func.redispatch(_CUDA, *args, **kwargs)
        index = placing.to
        if "device" in kwargs:
            asked = marks.index_of(kwargs["device"])
            if asked is not None:
                kwargs = {**kwargs, "device": torch.device("cpu")}
                index = asked
        given = tensors(args) if not kwargs else tensors((args, kwargs))
        graph = placing.graph
        if graph is not None:
            graph.before(known, args, kwargs, given, index)
        before, mixed, hollow = None, False, False
        for x in given:
            found = marks.where(x)
            if found != before:
                mixed = mixed or x is not given[0]
                if found is not None and (before is None or x.dim()):
                    before = found
            hollow = hollow or type(x) is FakeTensor
        if known.asks and hollow:
            self.meter.synchronize()
            return world.ask(func, args, given)
        if (mixed or known.takes_lengths) and before is not None:
            checks.check(known, given)
        if known.moves and known.overwrites and before is not None:  # what is written stays where it is
            index = marks.where(given[0])
            index = -1 if index is None else index
        if known.is_call:
            self.meter.flush()
        if self.fake is None or values.real.on:
            if known.makes:
                memory.ask(before if index is None else index, args, kwargs, given)
            try:
                out = func(*args, **kwargs)
            except (RuntimeError, NotImplementedError) as error:
                memory.refused(before if index is None else index, error)
                out = precision.again(func, known, args, kwargs, given, error)
        elif known.is_call:
            if hollow and func.namespace == "_c10d_functional":
                out = uniform.functional(self.fake, func, known.name, args, kwargs, before)
            else:
                try:
                    out = func(*args, **kwargs)
                except UnsupportedOperatorException as error:  # torch knows no sizes of it: the group performs it
                    uniform.called(known.name, args, None)
                    raise NotImplementedError(f"{func}") from error
            uniform.called(known.name, args, out)
        elif (
            hollow
            or (index is not None and index >= 0)
            or before is not None
            or (not given and str(kwargs.get("device")) != "meta" and world.is_large(args, kwargs.get("dtype")))
        ):
            out = world.run(self.fake, known, func, args, kwargs, given)
        else:
            out = func(*args, **kwargs)
        if index is None:
            # C++ makes gradients of nothing, such as zeros, and they are where the pass is.
            index = before if given or not memory.in_backward() else placing.latest
        elif index < 0:
            index = None
        placing.latest = before if index is None else index
        if index is None and before is None:
            # What C++ puts on the device of another tensor is on the device where that is.
            if given and checks.on[0] and not known.is_view and not (known.moves and "device" in kwargs):
                checks.passed_on(given, out)
            if self.meter.host is not None:
                self.meter.host.own(known)
            return out
        if index is not None and (not known.is_view or (hollow and given[0].layout in marks.SPARSE)):
            counts = not (known.fuses and scratch.passing(known.name, out))
            if type(out) in _PLAIN:
                marks.put(out, index, counts=counts)
                if not counts:
                    marks.keep(out, given)
            else:
                for x in tensors((out,)):
                    marks.put(x, index, counts=counts)
                    if not counts:
                        marks.keep(x, given)
                for at in known.on_host:
                    marks.put(out[at], None)
        if graph is not None:
            graph.after(func, known, args, kwargs, out)
        host = self.meter.host
        if host is not None and not (hushed() or scratch.generates()):
            host.operation(known, given)
        if not known.is_quiet:
            if known.scratch:
                scratch.take(index, known.name, args)
            copied = _copied(known, index, out, given) if known.moves else None
            waits = known.synchronizes or (before is not None and index is None)
            if copied is not None:
                if host is not None:
                    asynchronous = kwargs.get("non_blocking", known.overwrites and args[2:3] == (True,))
                    pinned = _pinned(given) or (asynchronous and index is None and not known.overwrites)
                    waits = not (asynchronous and pinned)
                    if not pinned:  # the driver's own buffers are few: they fill as the stream empties them
                        self.meter.synchronize()
                        host.stages(copied)
                self.meter.copy(known.name, copied)
            else:
                self.meter.kernel(known, args, kwargs, out, given)
            if waits:
                self.meter.synchronize()
        return out


def written(known: Kind, args: Any, kwargs: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that an operation writes; of a collective, all that it is given."""
    if known.is_call:
        return given
    found = [args[at] for at in known.writes if at < len(args)]
    return tensors([*found, *(kwargs[name] for name in known.outs if name in kwargs)])


def _copied(known: Kind, index: int | None, out: Any, given: list[torch.Tensor]) -> int | None:
    """The bytes that a copy moves between host and device; None where it moves none there."""
    if known.name == "_foreach_copy_":
        half = len(given) // 2
        pairs = list(zip(given[:half], given[half:], strict=False))
    elif known.overwrites:
        pairs = [(given[0], given[1])] if len(given) > 1 else []
    else:
        if (marks.where(given[0]) is None) == (index is None):
            return None
        # The host's type and order of elements are the ones that travel, as in torch's own copies.
        travels: torch.Tensor = out if index is None and isinstance(out, torch.Tensor) else given[0]
        return whole(travels)
    moved = [b for a, b in pairs if (marks.where(a) is None) != (marks.where(b) is None)]
    return sum(map(whole, moved)) if moved else None


def _pinned(given: list[torch.Tensor]) -> bool:
    """Whether the host's ends of a copy are pinned, of those that there are before it."""
    found = [x for x in given if marks.where(x) is None]
    return bool(found) and all(x.is_pinned() for x in found)


class Kind:
    """What is to be known of an operation."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        name = schema.name.rpartition("::")[2]
        written = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        self.is_view = not written and any(r.alias_info is not None for r in schema.returns)
        self.writes_operands = written
        self.writes = tuple(
            at
            for at, a in enumerate(schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write and not a.kwarg_only
        )
        """The places of the operands that are written."""
        self.places = {a.name: at for at, a in enumerate(schema.arguments)}
        self.name = name
        self.on_host = _ON_HOST.get(name, ())
        self.is_call = schema.name.partition("::")[0] in CALLS
        self.is_aten = schema.name.startswith("aten::")
        self.is_scripts = not self.is_aten and _BY_SCRIPT.search(torch._C._dispatch_dump(func.name())) is not None
        """Whether the script has given it a function for GPUs, whose operations are what a device is given."""
        self.takes_lengths = name == "_pack_padded_sequence"
        """Whether an operand has to be the host's."""
        self._operands: list[str] = [a.name for a in schema.arguments if "Tensor" in str(a.type)]
        self.is_quiet = self.is_view or name in _QUIET or self.is_call or schema.name.startswith("prim::")
        self.is_free = self.is_call or name in _ASKING or schema.name.startswith("prim::")
        """Whether the host does nothing for it that counts here."""
        self.synchronizes = name in _SYNCHRONIZING
        self.asks = name in ("_local_scalar_dense", "item", "equal", "is_nonzero", "allclose")
        self.counts = counting(func._overloadpacket)
        self.overwrites = int(written and name in OVERWRITING)
        """How many operands are written without being read."""
        self.outs = tuple(a.name for a in schema.arguments if a.kwarg_only and a.alias_info and a.alias_info.is_write)
        """Operands by name that are written without being read."""
        self.moves = name in _MOVING
        self.sizes_depend = name in sizes.RULES
        """Whether the result may have a size that depends on data."""
        has, key = torch._C._dispatch_has_kernel_for_dispatch_key, torch._C.DispatchKey
        self.scratch = name in scratch.KINDS or self.counts is not None
        """Whether libraries take memory for it beside its results."""
        self.fuses = not self.is_quiet and self.counts is None and not written and scratch.fuses(func)
        """Whether its result takes no memory where code is generated."""
        takes = any("Tensor" in str(a.type) for a in schema.arguments)
        self.makes = not (self.is_quiet and name in _RESIZING) and not written and (not takes or name in _ALIKE)
        """Whether its arguments say how much memory it takes."""
        self.decomposes = (
            # Else its parts are what a device sees; but what CPU has a kernel for keeps its rounding.
            not self.is_quiet
            and self.counts is None
            and has(func.name(), key.CompositeImplicitAutograd)
            and not has(func.name(), key.CPU)
        )

    def operand(self, at: int) -> str:
        """The name of the operand that has the tensor number `at`; of lists, the last one has all that are left."""
        return self._operands[min(at, len(self._operands) - 1)]


@lru_cache(4096)
def kind_of(func: Any) -> Kind:
    """The kind of an operation."""
    return Kind(func)


def tensors(args: Any) -> list[torch.Tensor]:
    """The tensors among arguments."""
    found = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            found.append(arg)
        elif type(arg) in (list, tuple):
            found += tensors(arg)
        elif type(arg) is dict:
            found += tensors(arg.values())
        elif arg is not None and type(arg) not in _SCALARS:
            found += [x for x in tree_leaves(arg) if isinstance(x, torch.Tensor)]
    return found


_SCALARS = (int, float, bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
