"""AHBM: run collective algorithms on an emulated multi-chip accelerator; get the bytes, the time and the reasons.

`import ahbm.distributed as dist` has torch.distributed's names; `ahbm.run` is the one functional entry. Everything is
imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm import errors as errors
    from ahbm._core import Machine as Machine
    from ahbm.device import tensor as tensor
    from ahbm.emulator import Emulator as Emulator
    from ahbm.errors import AhbmError as AhbmError
    from ahbm.explanation import Explanation as Explanation
    from ahbm.launch import spawn as spawn
    from ahbm.measure import run as run
    from ahbm.placement import DeviceTensor as DeviceTensor
    from ahbm.placement import DPPolicy as DPPolicy
    from ahbm.plans import convert as convert
    from ahbm.report import Report as Report
    from ahbm.synthesis import synthesize as synthesize

    __version__: str

_HOMES = {
    "AhbmError": "errors",
    "DPPolicy": "placement",
    "DeviceTensor": "placement",
    "Emulator": "emulator",
    "Explanation": "explanation",
    "Machine": "_core",
    "Report": "report",
    "convert": "plans",
    "run": "measure",
    "spawn": "launch",
    "synthesize": "synthesis",
    "tensor": "device",
}

__all__ = [
    "AhbmError",
    "DPPolicy",
    "DeviceTensor",
    "Emulator",
    "Explanation",
    "Machine",
    "Report",
    "__version__",
    "convert",
    "errors",
    "run",
    "spawn",
    "synthesize",
    "tensor",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("ahbm")
    elif name in _HOMES:
        value = getattr(import_module(f"ahbm.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'ahbm' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
