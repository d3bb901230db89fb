"""The other places at which torch and scripts look at devices: autocast, storages and files, compilation, threads."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from ahbm.base.logs import notice
from ahbm.torch.device import marks
from ahbm.torch.device.meter import quiet
from ahbm.torch.replacing import replace
from ahbm.torch.work import FUTURE


def install(enter: Callable[[], Any]) -> None:
    """Puts all this in torch's place; `enter` makes the calling thread's kernels seen."""
    _autocast()
    _storages()
    _compile()
    _groups()
    _threads(enter)
    pointers()
    _profiler()


def _autocast() -> None:
    """Autocast of the device is that of the host, with the device's type of numbers."""
    enabled, set_enabled = torch.is_autocast_enabled, torch.set_autocast_enabled
    set_dtype, dtype_of = torch.set_autocast_dtype, torch.get_autocast_dtype
    fast = threading.local()

    def is_autocast_enabled(device_type: str | None = None) -> bool:
        return bool(enabled("cpu" if device_type in (None, marks.KIND) else device_type))

    def set_autocast_enabled(*args: Any) -> None:
        device_type, on = args if len(args) == 2 else (marks.KIND, args[0])
        if device_type == marks.KIND:
            device_type = "cpu"
            if on:
                set_dtype("cpu", get_autocast_dtype(marks.KIND))
        set_enabled(device_type, on)

    def get_autocast_dtype(device_type: str) -> torch.dtype:
        if device_type == marks.KIND:
            known: torch.dtype = getattr(fast, "dtype", torch.float16)
            return known
        return dtype_of(device_type)

    def set_autocast_dtype(device_type: str, dtype: torch.dtype) -> None:
        if device_type == marks.KIND:
            fast.dtype, device_type = dtype, "cpu"
        set_dtype(device_type, dtype)

    replaced: dict[str, Any] = {
        "is_autocast_enabled": is_autocast_enabled,
        "set_autocast_enabled": set_autocast_enabled,
        "get_autocast_dtype": get_autocast_dtype,
        "set_autocast_dtype": set_autocast_dtype,
        "get_autocast_gpu_dtype": lambda: get_autocast_dtype(marks.KIND),
        "set_autocast_gpu_dtype": lambda dtype: set_autocast_dtype(marks.KIND, dtype),
    }
    for name, function in replaced.items():
        setattr(torch, name, function)


def _storages() -> None:
    storages: Any = torch.UntypedStorage

    def copied(held: Any, index: int | None) -> Any:
        out = torch.UntypedStorage(held.nbytes())
        out.copy_(held)
        marks.mark(out, index)
        return out

    def to(held: Any, *, device: Any, non_blocking: bool = False) -> Any:
        index = marks.index_of(device)
        return held if index == marks.of_storage(held) else copied(held, index)

    clones = storages.clone

    storages.to = to
    storages.cuda = lambda held, device=None, non_blocking=False: to(
        held, device=torch.device(marks.KIND, marks.current() if device is None else marks.index_of(device))
    )
    moves = storages.cpu
    storages.cpu = lambda held: moves(held) if marks.of_storage(held) is None else copied(held, None)
    storages.clone = lambda held: clones(held) if (index := marks.of_storage(held)) is None else copied(held, index)


def _compile() -> None:
    def compile_(model: Any = None, **kw: Any) -> Any:
        notice("torch.compile leaves its function as it is: there is no device that generated code could run on")
        return model if model is not None else lambda function: function

    torch.compile = compile_
    torch.nn.Module.compile = lambda self, *args, **kw: compile_() and None


def _groups() -> None:
    """A script is told of the backend that it has asked for."""
    for name in ("is_nccl_available", "is_gloo_available"):
        for module in (dist, c10d):
            setattr(module, name, lambda: True)
    from torch.distributed.tensor import _random

    # Sharded tensors draw their random numbers as on CPU: every rank from its own generator.
    replace(_random.is_rng_supported_mesh, lambda device_mesh: False)
    c10d.is_backend_available = dist.is_backend_available = lambda backend: True


def _profiler() -> None:
    """A profiler looks at the host: the driver that would tell of a device is not there, and it need not say so."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    cuda = torch.profiler.ProfilerActivity.CUDA
    starts = torch.profiler.profile.__init__

    @functools.wraps(starts)
    def start(self: Any, *, activities: Any = None, **kw: Any) -> None:
        kept = [activity for activity in activities or () if activity is not cuda]
        starts(self, activities=kept or [torch.profiler.ProfilerActivity.CPU], **kw)

    torch.profiler.profile.__init__ = start


def _threads(enter: Callable[[], Any]) -> None:
    """Threads of the script see the device as its main thread does."""
    runs = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        if thread.name.startswith("ahbm") and thread.name != FUTURE:
            runs(thread)
            return
        # Functions of futures are called when other processes are there: their kernels have no certain place.
        with enter(), quiet() if thread.name == FUTURE else contextlib.nullcontext():
            runs(thread)

    threading.Thread.run = run  # type: ignore[method-assign, assignment]


def pointers() -> None:
    """Says once, where a script asks for the address of a tensor on the device, that it is the host's."""
    import sys

    tells = torch.Tensor.data_ptr

    @functools.wraps(tells)
    def data_ptr(x: Any) -> int:
        if marks.where(x) is not None:
            asker = sys._getframe(1).f_globals.get("__name__", "")
            if asker == "__main__":
                notice("data_ptr() of a tensor on the device that is not there is an address of the host's memory")
        address: int = tells(x)
        return address

    torch.Tensor.data_ptr = data_ptr
