"""The package that programs import as `mscclpp`: compile, register and select plans, and communicators without a GPU.

`ahbm.dsl.compat()` and `python -m ahbm.torch` serve it under that name. Programs of the DSL are compiled and performed;
what runs CUDA code can be named, and raises UnsupportedError (AHBM-U180) where it is used. Each name is imported when
it is first used: a program that only writes a plan needs none.

May import `ranks`, `front`, `torch` and below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm.dsl.mscclpp import AlgoSpec as AlgoSpec
    from ahbm.mscclpp.comm import CommGroup as CommGroup
    from ahbm.mscclpp.compiler import compile as compile
    from ahbm.mscclpp.environment import Env as Env
    from ahbm.mscclpp.environment import env as env
    from ahbm.mscclpp.environment import is_bulk_supported as is_bulk_supported
    from ahbm.mscclpp.environment import is_nvls_supported as is_nvls_supported
    from ahbm.mscclpp.environment import version as version
    from ahbm.mscclpp.executor import Executor as Executor
    from ahbm.mscclpp.ext import AlgorithmCollection as AlgorithmCollection
    from ahbm.mscclpp.ext import AlgorithmCollectionBuilder as AlgorithmCollectionBuilder
    from ahbm.mscclpp.memory import GpuBuffer as GpuBuffer
    from ahbm.mscclpp.memory import RawGpuBuffer as RawGpuBuffer
    from ahbm.mscclpp.plans import Algorithm as Algorithm
    from ahbm.mscclpp.plans import ExecutionPlan as ExecutionPlan
    from ahbm.mscclpp.plans import ExecutionPlanConstraint as ExecutionPlanConstraint
    from ahbm.mscclpp.plans import ExecutionPlanHandle as ExecutionPlanHandle
    from ahbm.mscclpp.registry import ExecutionPlanRegistry as ExecutionPlanRegistry
    from ahbm.mscclpp.requests import CollectiveRequest as CollectiveRequest
    from ahbm.mscclpp.requests import ExecutionRequest as ExecutionRequest
    from ahbm.mscclpp.types import CollectiveBufferMode as CollectiveBufferMode
    from ahbm.mscclpp.types import CommResult as CommResult
    from ahbm.mscclpp.types import DataType as DataType
    from ahbm.mscclpp.types import DeviceType as DeviceType
    from ahbm.mscclpp.types import ErrorCode as ErrorCode
    from ahbm.mscclpp.types import PacketType as PacketType
    from ahbm.mscclpp.types import ReduceOp as ReduceOp
    from ahbm.mscclpp.types import Transport as Transport

_HOMES = {
    "dsl.mscclpp": ["AlgoSpec"],
    "mscclpp.comm": ["CommGroup"],
    "mscclpp.compiler": ["compile"],
    "mscclpp.environment": ["Env", "env", "is_bulk_supported", "is_nvls_supported", "version"],
    "mscclpp.executor": ["Executor"],
    "mscclpp.ext": ["AlgorithmCollection", "AlgorithmCollectionBuilder"],
    "mscclpp.memory": ["GpuBuffer", "RawGpuBuffer"],
    "mscclpp.plans": ["Algorithm", "ExecutionPlan", "ExecutionPlanConstraint", "ExecutionPlanHandle"],
    "mscclpp.registry": ["ExecutionPlanRegistry"],
    "mscclpp.requests": ["CollectiveRequest", "ExecutionRequest"],
    "mscclpp.types": [
        "CollectiveBufferMode",
        "CommResult",
        "DataType",
        "DeviceType",
        "ErrorCode",
        "PacketType",
        "ReduceOp",
        "Transport",
    ],
}
"""The modules of the public names."""
_MODULES = {"ext": "mscclpp.ext", "language": "dsl.mscclpp", "utils": "mscclpp.utils"}

__all__ = sorted([*(name for names in _HOMES.values() for name in names), *_MODULES])


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'mscclpp' has no attribute {name!r}")
    from ahbm.mscclpp.refused import REFUSED

    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"ahbm.{module}"), name)
            break
    else:
        if name in _MODULES:
            value = importlib.import_module(f"ahbm.{_MODULES[name]}")
        elif name in REFUSED:
            value = REFUSED[name]
        else:
            raise AttributeError(f"module 'mscclpp' has no attribute {name!r}")
    globals()[name] = value
    return value
