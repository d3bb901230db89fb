"""What only a GPU's driver does: refused with the call and the script's line, never left to the driver's own words."""

from __future__ import annotations

import functools
import importlib.abc
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, ClassVar

import torch

from ahbm.errors import AhbmError, Site, UnsupportedError
from ahbm.ranks import blame

_DRIVER = re.compile(
    "NVIDIA driver|not compiled with CUDA|CUDA driver|CUDA error|libcuda|libnvidia|libcufile|no CUDA-capable|"
    "CUDAGuardImpl|only available on CUDA|only supported on CUDA|only supports? CUDA|not implemented on the CPU|NVML|"
    "0 active drivers|with arguments from the '[A-Za-z]*(CPU|CUDA|Meta)' backend|CUDA backend|must be (a )?CUDA|"
    "cuda dense Tensors|should be on cuda|GPU driver|No CUDA GPUs|"
    "[Cc]annot access accelerator device when none is available"
)
"""Words of errors that end at a driver or at a kernel of a GPU."""
HINT = "a device that is not there has host memory and no driver: leave the call out, or run it on a GPU"


def refusal(call: str, why: str = "", hint: str = HINT) -> UnsupportedError:
    """The error for a call that only a driver could do (AHBM-U156), with the script's line."""
    message = f"{call}: a device that is not there does not do this" + (f" ({why})" if why else "")
    return UnsupportedError("AHBM-U156", message, sites=[Site("the script calls it", blame.call_origin())], hint=hint)


def refusing(call: str, hint: str = HINT) -> Callable[..., Any]:
    """A function that is refused."""

    def refuse(*args: Any, **kw: Any) -> Any:
        raise refusal(call, hint=hint)

    return refuse


def speaks_of_a_driver(error: BaseException) -> bool:
    """Whether an error is that of a driver, or of a kernel that only a GPU has."""
    return not isinstance(error, AhbmError) and _DRIVER.search(str(error)) is not None


def first_line(error: BaseException) -> str:
    """What an error says, short."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]


def guarded(function: Callable[..., Any], call: str) -> Callable[..., Any]:
    """The function; an error of the driver's becomes a refusal (AHBM-U156)."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kw: Any) -> Any:
        try:
            return function(*args, **kw)
        except (RuntimeError, OSError, AssertionError) as error:
            if not speaks_of_a_driver(error):
                raise
            raise refusal(call, first_line(error)) from error

    return wrapper


_PUBLIC = {
    "_cuda_jiterator_compile_and_launch_kernel": "a kernel of torch.cuda.jiterator",
    "_cuda_customAllocator": "torch.cuda.memory.CUDAPluggableAllocator",
    "_cuda_changeCurrentAllocator": "torch.cuda.memory.change_current_allocator",
    "_cuda_getAllocator": "torch.cuda.memory._get_current_allocator",
    "_cuda_init": "torch._C._cuda_init",
    "_nccl_init_rank": "torch.cuda.nccl.init_rank",
    "_CUDAPluggableAllocator": "torch.cuda.memory.CUDAPluggableAllocator",
    "_StaticCudaLauncher": "a compiled kernel",
    "_FastCudaLauncher": "a compiled kernel",
}
"""Parts of torch's C++ that need a driver, and what a script calls them. Those of cuFile hang without one."""
_GUARDED = ("_cuda_", "_nccl_", "_gds_", "_cudnn_", "_can_use_", "_symmetric_")


def install() -> None:
    """Puts refusals in the place of what would reach a driver, after all else has been replaced."""
    for name in dir(torch._C):
        known = getattr(torch._C, name)
        if name in _PUBLIC:
            setattr(torch._C, name, refusing(_PUBLIC[name]))
        elif name.startswith("_gds_"):
            setattr(torch._C, name, refusing(f"torch.cuda.gds ({name})"))
        elif name.startswith(_GUARDED) and type(known).__name__ == "builtin_function_or_method":
            setattr(torch._C, name, guarded(known, f"torch._C.{name}"))
    for home, names in ((torch.cuda.gds, ("gds_register_buffer", "gds_deregister_buffer", "GdsFile")),):
        for name in names:
            setattr(home, name, refusing(f"torch.cuda.gds.{name}"))
    green = sys.modules.get("torch.cuda.green_contexts")
    for place in filter(None, (green, torch.cuda)):
        for name in ("GreenContext", "ExecutionContext"):
            if hasattr(place, name):
                setattr(place, name, _Refused(f"torch.cuda.{name}"))
    torch.cuda.memory.CUDAPluggableAllocator.__init__ = refusing("torch.cuda.memory.CUDAPluggableAllocator")
    _hooks()


class _Refused:
    """A class of which nothing is made."""

    def __init__(self, call: str) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return refusing(f"{self._call}.{name}")

    def __call__(self, *args: Any, **kw: Any) -> Any:
        raise refusal(self._call)


def _hooks() -> None:
    """What ends a script or a thread and speaks of a driver gets a line of ours."""
    ends, ends_thread = sys.excepthook, threading.excepthook

    def hook(kind: Any, error: BaseException, trace: Any) -> None:
        ends(kind, error, trace)
        tell(error)

    def thread_hook(args: Any) -> None:
        ends_thread(args)
        if args.exc_value is not None:
            tell(args.exc_value)

    sys.excepthook = hook
    threading.excepthook = thread_hook


def tell(error: BaseException) -> None:
    """Says of an error that ends a script that it was a driver's, and where."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, AhbmError):
            return
        if speaks_of_a_driver(seen):
            place = blame._raised_at(error) or "the script"
            print(
                f"ahbm: AHBM-U156 {type(seen).__name__} at {place} speaks of a GPU's driver or kernel, and the device "
                f"is not there: {first_line(seen)}\n  hint: {HINT}",
                file=sys.stderr,
            )
            return
        seen = seen.__cause__ or seen.__context__


class _After(importlib.abc.MetaPathFinder):
    """Calls functions with modules that have just been imported."""

    waiting: ClassVar[dict[str, list[Callable[[Any], None]]]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        runs = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            runs(module)
            for function in self.waiting.pop(fullname, ()):
                function(module)

        loader.exec_module = exec_module
        return spec


def when_imported(names: Iterable[str], function: Callable[[Any], None]) -> None:
    """Calls `function` with each of these modules: now where it is imported, else as it is."""
    if not any(isinstance(finder, _After) for finder in sys.meta_path):
        sys.meta_path.insert(0, _After())
    for name in names:
        if name in sys.modules:
            function(sys.modules[name])
        else:
            _After.waiting.setdefault(name, []).append(function)
