"""Calls that name a device: they are made in host memory, and what they make bears the device's mark.

They are replaced in torch's namespaces, so that they hold in every thread and cost nothing elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.jit import _builtins as builtins
from torch.utils import _device as defaults

from ahbm.torch.device import checks, marks, memory, streams, typed
from ahbm.torch.device.kernels import _FAKE, _active, placing
from ahbm.torch.device.meter import meter

_HOST = torch.device("cpu")
_NEW = ("new_tensor", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
_AT = 6
"""The place of the device among the arguments of `_make_wrapper_subclass`."""
_BEFORE_COPY = 3
"""How many arguments of `Tensor.to` stand before `copy`."""
_OF_DATA = {"tensor": 0, "as_tensor": 0, "asarray": 0, "new_tensor": 1}
"""Factories that copy data of the host to the device, and the place of the data among their arguments."""
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")


def _places(make: Callable[..., Any]) -> Callable[..., Any]:
    """A factory that knows marked devices."""
    name = make.__name__
    new = name == "new_tensor"
    of_nothing = name not in (*_NEW, *_LIKE, *_OF_DATA, "nested_tensor", "normal")

    @functools.wraps(make)
    def factory(*args: Any, **kw: Any) -> Any:
        device = kw.get("device")
        if kw.get("pin_memory"):
            return _pin(factory(*args, **{**kw, "pin_memory": False}))
        if device is None:
            if new and marks.where(args[0]) is not None:
                return placed(make, args, kw, torch.device(marks.KIND, marks.where(args[0])))
            if of_nothing and memory.in_backward():  # by a backward function of the script's own
                return placed(make, args, kw, _HOST)
            # A device by default is a mode of torch's, which asks below: see `_default`.
            return checks.hosted(make(*args, **kw))
        return placed(make, args, kw, device)

    return factory


def placed(make: Callable[..., Any], args: Any, kw: dict[str, Any], device: Any) -> Any:
    """What a factory makes, on a device."""
    index = marks.index_of(device)
    first = args[0] if index is not None and args else None
    if not isinstance(first, torch.Tensor) and hasattr(first, "__cuda_array_interface__"):
        args = (_of_interface(first), *args[1:])
    if index is not None and make.__name__ == "nested_tensor":
        return _nested(make, args, kw, torch.device(marks.KIND, index))
    before, placing.to = placing.to, -1 if index is None else index
    try:
        out = make(*args, **(kw if index is None else {**kw, "device": _HOST}))
    finally:
        placing.to = before
    if index is not None and isinstance(out, torch.Tensor) and _active(_FAKE) is None:
        source: Any = args[0] if args else None
        if out is source and marks.where(out) != index:  # `as_tensor` and `asarray` do not copy
            out = out.clone()
        elif source is not None and type(source) not in (int, list, tuple, float) and marks.where(out) is None:
            out = out.clone()  # whose memory another array has
        marks.put(out, index)
        at = _OF_DATA.get(make.__name__)
        data = None if at is None else args[at] if len(args) > at else kw.get("data")
        if at is not None and not (isinstance(data, torch.Tensor) and marks.where(data) is not None):
            streams.synchronized()
            meter.copy("_to_copy", out.nbytes)
    return out if index is not None else checks.hosted(out)


def _of_interface(given: Any) -> torch.Tensor:
    """The tensor of an object that says where its memory on a device lies: it is the host's."""
    facts = {**given.__cuda_array_interface__, "version": 3}
    made = type("Given", (), {"__array_interface__": {key: facts[key] for key in facts if key != "stream"}})()
    return marks.put(torch.from_numpy(numpy.asarray(made)), marks.current())


def _nested(make: Callable[..., Any], args: Any, kw: dict[str, Any], device: torch.device) -> Any:
    """A nested tensor is made on the host, with its offsets, and moved."""
    parts = [x.detach().to(_HOST) if isinstance(x, torch.Tensor) else x for x in args[0]]
    needs = bool(kw.get("requires_grad"))
    out = make(parts, *args[1:], **{**kw, "device": _HOST, "requires_grad": False}).to(device)
    return out.requires_grad_() if needs else out


def _default(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """`torch.set_default_device` and `with torch.device(...)`."""
    kwargs = kwargs or {}
    if func in defaults._device_constructors() and kwargs.get("device") is None:
        return placed(func, args, {**kwargs, "device": mode.device}, mode.device)
    return func(*args, **kwargs)


def _sort(args: tuple[Any, ...], kw: dict[str, Any]) -> tuple[bool, int | None, tuple[Any, ...], dict[str, Any]]:
    """Of arguments of `Tensor.to`: whether they name a device, which, and the arguments with the host in its place."""
    if "device" in kw:
        device = kw["device"]
        return device is not None, marks.index_of(device), args, {**kw, "device": device and _host(device)}
    other = kw.get("other", args[0] if args else None)
    if isinstance(other, torch.Tensor):
        index = marks.where(other)
        rest = {key: value for key, value in kw.items() if key != "other"}
        where = _HOST if index is not None else torch._C.TensorBase.device.__get__(other)
        return True, index, (where, other.dtype, *args[1:]), rest
    if args and (type(other) is int or isinstance(other, str | torch.device)):
        return True, marks.index_of(other), (_host(other), *args[1:]), kw
    return False, None, args, kw


def _host(device: Any) -> Any:
    return device if marks.index_of(device) is None else _HOST


def _return_gradients(copied: Any, index: int | None) -> None:
    """The gradient of what was copied is where that is, not where the copy is."""
    device = _HOST if index is None else torch.device(marks.KIND, index)
    copied.register_hook(lambda grads, _: tuple(grad if grad is None else grad.to(device) for grad in grads))


def install() -> None:
    """Puts all this in torch's place."""
    tensor: Any = torch.Tensor
    moves = tensor.to

    @functools.wraps(moves)
    def to(x: Any, *args: Any, **kw: Any) -> Any:
        named, index, args, kw = _sort(args, kw)
        if not named or marks.where(x) == index or (index is None and not marks.on_host(x)):
            return moves(x, *args, **kw)
        if index is None and str(kw.get("device", args[0] if args else "cpu")) == "meta":
            return moves(x, *args, **kw)
        before, placing.to = placing.to, -1 if index is None else index
        try:
            out = moves(x, *args[:_BEFORE_COPY], **{**kw, "copy": True})
        finally:
            placing.to = before
        if not marks.on_host(out) and not marks.parts(out):
            return out
        if out.grad_fn is not None:
            _return_gradients(out.grad_fn, marks.where(x))
        marks.put(out, index)
        return out if index is not None else checks.hosted(out)

    tensor.to = to
    tensor.cuda = lambda x, device=None, non_blocking=False, memory_format=torch.preserve_format: to(
        x, torch.device(marks.KIND, marks.current() if device is None else _index(device)), memory_format=memory_format
    )
    tensor.cpu = lambda x, memory_format=torch.preserve_format: to(x, _HOST, memory_format=memory_format)
    types = tensor.type

    def type_(x: Any, dtype: Any = None, non_blocking: bool = False, **kw: Any) -> Any:
        if dtype is None:
            name: str = types(x)
            return name if marks.where(x) is None else name.replace("torch.", "torch.cuda.")
        of_device = typed.named(dtype)
        if of_device is not None:
            return to(x, torch.device(marks.KIND, marks.current()) if marks.where(x) is None else x.device, of_device)
        if marks.where(x) is not None and not isinstance(dtype, torch.dtype):
            x = to(x, _HOST)
        return types(x, dtype, non_blocking, **kw)

    tensor.type = type_
    tensor.pin_memory = lambda x, device=None: _pin(x.clone() if marks.where(x) is None else x)
    tensor.is_pinned = lambda x, device=None: _PINNED in getattr(marks.storage(x), "__dict__", {})
    tensor.new = _new
    tensor.record_stream = lambda x, stream: None
    for name in _NEW:
        setattr(tensor, name, _places(getattr(tensor, name)))
    for make in sorted(defaults._device_constructors(), key=lambda made: made.__name__):
        home: Any = torch
        if make.__name__ in ("fftfreq", "rfftfreq"):
            home = torch.fft
        elif make.__name__ == "nested_tensor":
            home = torch.nested
        known: Any = getattr(home, make.__name__, None)
        if known is make:
            setattr(home, make.__name__, _scripted(make, _places(make)))
    for name in (*_LIKE, "normal"):
        setattr(torch, name, _scripted(getattr(torch, name), _places(getattr(torch, name))))
    defaults.DeviceContext.__torch_function__ = _default
    wraps: Any = torch._C.TensorBase._make_wrapper_subclass

    def _make_wrapper_subclass(kind: Any, *args: Any, **kw: Any) -> Any:
        if marks.index_of(kw.get("device")) is not None:
            kw["device"] = _HOST
        if len(args) > _AT and marks.index_of(args[_AT]) is not None:
            args = (*args[:_AT], _HOST, *args[_AT + 1 :])
        return wraps(kind, *args, **kw)

    tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
    generator = torch.Generator

    class Generator(torch.Generator):
        """torch's, whose device may be one that is not there."""

        def __new__(cls, device: Any = "cpu") -> Any:
            """One for the host."""
            made = generator.__new__(cls, _host(device))
            made._named = torch.device(device)
            return made

        device = property(lambda made: made._named)

        def graphsafe_get_state(self) -> Any:
            """A generator of its own in the same state."""
            return self.clone_state()

        def graphsafe_set_state(self, state: Any) -> Any:
            """Takes the state of another generator."""
            return self.set_state(state.get_state())

        def clone_state(self) -> Any:
            """A generator of its own in the same state."""
            made = Generator(self.device)
            made.set_state(self.get_state())
            return made

    torch.Generator = Generator


_PINNED = "_ahbm_pinned"


def _pin(x: Any) -> Any:
    """The tensor, which says from now on that the driver has pinned its memory."""
    held = marks.storage(x)
    if held is not None:
        held.__dict__[_PINNED] = True
    return x


_makes_new: Any = torch.Tensor.new


def _new(x: Any, *args: Any, **kw: Any) -> Any:
    """`Tensor.new`: on the device of the tensor."""
    index = marks.where(x)
    if index is None:
        return _makes_new(x, *args, **kw)
    kw.pop("device", None)
    out = _makes_new(x, *args, **kw)
    return out if marks.where(out) is not None else marks.put(out, index)


def _scripted(make: Any, factory: Any) -> Any:
    """The factory, which TorchScript knows as the operator that it stands for."""
    operator = builtins._find_builtin(make)
    if operator is not None:
        builtins._register_builtin(factory, operator)
    return factory


def _index(device: Any) -> int:
    index = marks.index_of(device)
    if index is None:
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return index
