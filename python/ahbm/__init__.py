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
    from ahbm._core import Tl as Tl
    from ahbm.asked import algorithms as algorithms
    from ahbm.asked import compare as compare
    from ahbm.asked import explain as explain
    from ahbm.asked import numerics as numerics
    from ahbm.asked import plot as plot
    from ahbm.asked import report as report
    from ahbm.asked import topologies as topologies
    from ahbm.base.placement import DeviceTensor as DeviceTensor
    from ahbm.base.placement import DPPolicy as DPPolicy
    from ahbm.core.emulator import Emulator as Emulator
    from ahbm.errors import AhbmError as AhbmError
    from ahbm.front.device import tensor as tensor
    from ahbm.job.features import features as features
    from ahbm.job.open import open_ as open
    from ahbm.job.together import together as together
    from ahbm.ranks.launch import spawn as spawn
    from ahbm.runs.explanation import Explanation as Explanation
    from ahbm.runs.inspection import Inspection as Inspection
    from ahbm.runs.inspection import inspect as inspect
    from ahbm.runs.measure import run as run
    from ahbm.runs.plans import convert as convert
    from ahbm.runs.report import Report as Report
    from ahbm.source.function import algorithm as algorithm
    from ahbm.source.synthesis import synthesize as synthesize
    from ahbm.sweeps.space import Space as Space
    from ahbm.sweeps.sweep import Table as Table
    from ahbm.sweeps.sweep import sweep as sweep
    from ahbm.views.notebook import show as show

    __version__: str

_HOMES = {
    "AhbmError": "errors",
    "DPPolicy": "base.placement",
    "DeviceTensor": "base.placement",
    "Emulator": "core.emulator",
    "Explanation": "runs.explanation",
    "Inspection": "runs.inspection",
    "Machine": "_core",
    "Report": "runs.report",
    "Space": "sweeps.space",
    "Table": "sweeps.sweep",
    "Tl": "_core",
    "algorithm": "source.function",
    "algorithms": "asked",
    "compare": "asked",
    "convert": "runs.plans",
    "explain": "asked",
    "features": "job.features",
    "inspect": "runs.inspection",
    "numerics": "asked",
    "open": "job.open",
    "plot": "asked",
    "report": "asked",
    "run": "runs.measure",
    "show": "views.notebook",
    "spawn": "ranks.launch",
    "sweep": "sweeps.sweep",
    "synthesize": "source.synthesis",
    "tensor": "front.device",
    "together": "job.together",
    "topologies": "asked",
}

__all__ = [
    "AhbmError",
    "DPPolicy",
    "DeviceTensor",
    "Emulator",
    "Explanation",
    "Inspection",
    "Machine",
    "Report",
    "Space",
    "Table",
    "Tl",
    "__version__",
    "algorithm",
    "algorithms",
    "compare",
    "convert",
    "errors",
    "explain",
    "features",
    "inspect",
    "numerics",
    "open",
    "plot",
    "report",
    "run",
    "show",
    "spawn",
    "sweep",
    "synthesize",
    "tensor",
    "together",
    "topologies",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("ahbm")
    elif name in _HOMES:
        value = getattr(import_module(f"ahbm.{_HOMES[name]}"), "open_" if name == "open" else name)
    else:
        raise AttributeError(f"module 'ahbm' has no attribute {name!r}")
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext ahbm`: a notebook shows runs with their timelines."""
    from ahbm.views.notebook import load

    load(shell)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, "distributed"})
