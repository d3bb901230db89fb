"""Stand-ins for what MSCCL++ scripts use of `torch.cuda`, where there is no GPU: one stream, simulated time."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.overrides import TorchFunctionMode

from ahbm.base.logs import notice
from ahbm.torch import addresses, place
from ahbm.torch.calls import NAME
from ahbm.torch.places import places, synchronize
from ahbm.torch.replacing import replace

_device = 0


class Stream:
    """The only stream: operations of the emulator have ended when a call returns."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kw: Any) -> None:
        self.device = torch.device("cpu")

    def synchronize(self) -> None:
        """Nothing is under way."""

    wait_stream = wait_event = lambda self, other: None

    def query(self) -> bool:
        """True: nothing is under way."""
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """An event of now."""
        event = event or Event()
        event.record(self)
        return event


class Event:
    """A moment of this rank's simulated time."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        self._ps: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Now."""
        self._ps = _now_ps()

    def elapsed_time(self, end_event: Event) -> float:
        """Simulated milliseconds until `end_event`. Raises RuntimeError unless both are recorded."""
        if self._ps is None or end_event._ps is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._ps - self._ps) / 1e9

    def synchronize(self) -> None:
        """Nothing is under way."""

    def query(self) -> bool:
        """True: nothing is under way."""
        return True

    wait = record_event = lambda self, stream=None: None


def _now_ps() -> int:
    """The simulated time of this rank in its latest world."""
    found = [*(place for place, _ in addresses.met), *places()]
    return max((place.seat.clock_ps(place.rank) for place in found), default=0)


def device_count() -> int:
    """The ranks on this host: LOCAL_WORLD_SIZE where torchrun sets it, else 1."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or 1)


def set_device(device: Any) -> None:
    """Notes the number, which `current_device` tells. Raises RuntimeError for one that there is not."""
    global _device
    number = device if isinstance(device, int) else torch.device(device).index or 0
    if not 0 <= number < device_count():
        raise RuntimeError(f"invalid device ordinal {number}: there are {device_count()}")
    _device = number


def current_device() -> int:
    """The number that `set_device` was given."""
    return _device


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """There is one stream."""
    yield


class OnHost(TorchFunctionMode):
    """Puts what a script places on "cuda" into host memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The call with the CPU as its device."""
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = _host(kwargs["device"])
        places_by_position = func is torch.Tensor.to
        args = tuple(_host(arg) if places_by_position or isinstance(arg, torch.device) else arg for arg in args)
        return func(*args, **kwargs)


def _host(device: Any) -> Any:
    """The CPU for a GPU, whose name may be its number; anything else stays."""
    if isinstance(device, torch.device):
        on_gpu = device.type == "cuda"
    else:
        on_gpu = type(device) is int or (isinstance(device, str) and device.startswith("cuda"))
    return torch.device("cpu") if on_gpu else device


def answer_as_asked(asked: dict[Any, str]) -> None:
    """Lets `get_backend` answer by `asked`: per group (None: the default one), the backend that was asked for."""
    tells = c10d.get_backend

    @functools.wraps(tells)
    def get_backend(group: Any = None) -> str:
        own: str = tells(group)
        key = None if group is dist.group.WORLD else group
        return asked.get(key, asked.get(None, own) if own == NAME else own)

    replace(tells, get_backend)


def stand_in(asked: dict[Any, str]) -> None:
    """Puts all this in torch's place, unless there is a GPU, and lets `dist.get_backend` answer by `asked`: per group
    (None: the default one), the backend that the script asked for."""
    addresses.note_addresses()
    answer_as_asked(asked)
    if torch.cuda.is_available():
        return
    notice("torch.cuda has stand-ins for this script: one stream, simulated time, and tensors in host memory")
    place.devices[0] = True
    current = Stream()
    for name, value in {
        "Event": Event,
        "Stream": Stream,
        "current_device": current_device,
        "current_stream": lambda device=None: current,
        "default_stream": lambda device=None: current,
        "device_count": device_count,
        "set_device": set_device,
        "stream": stream,
        "synchronize": lambda device=None: synchronize(),
    }.items():
        setattr(torch.cuda, name, value)
    OnHost().__enter__()
