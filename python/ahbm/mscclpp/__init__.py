"""The package that programs import as `mscclpp`: compile, register and select plans, and communicators without a GPU.

`ahbm.dsl.compat()` and `python -m ahbm.torch` serve it under that name. Programs of the DSL are compiled and performed;
what runs CUDA code can be named, and raises UnsupportedError (AHBM-U180) where it is used.

May import `ranks`, `front`, `torch` and below.
"""

from __future__ import annotations

from ahbm.dsl import mscclpp as language
from ahbm.dsl.compat import VERSIONS
from ahbm.dsl.mscclpp import AlgoSpec
from ahbm.mscclpp import ext, utils
from ahbm.mscclpp.comm import CommGroup
from ahbm.mscclpp.compiler import compile
from ahbm.mscclpp.environment import Env, env
from ahbm.mscclpp.executor import Executor
from ahbm.mscclpp.ext import AlgorithmCollection, AlgorithmCollectionBuilder
from ahbm.mscclpp.memory import RawGpuBuffer
from ahbm.mscclpp.plans import Algorithm, ExecutionPlan, ExecutionPlanConstraint, ExecutionPlanHandle
from ahbm.mscclpp.refused import REFUSED
from ahbm.mscclpp.registry import ExecutionPlanRegistry
from ahbm.mscclpp.requests import CollectiveRequest, ExecutionRequest
from ahbm.mscclpp.types import (
    CollectiveBufferMode,
    CommResult,
    DataType,
    DeviceType,
    ErrorCode,
    PacketType,
    ReduceOp,
    Transport,
)

__all__ = [
    "AlgoSpec",
    "Algorithm",
    "AlgorithmCollection",
    "AlgorithmCollectionBuilder",
    "CollectiveBufferMode",
    "CollectiveRequest",
    "CommGroup",
    "CommResult",
    "DataType",
    "DeviceType",
    "Env",
    "ErrorCode",
    "ExecutionPlan",
    "ExecutionPlanConstraint",
    "ExecutionPlanHandle",
    "ExecutionPlanRegistry",
    "ExecutionRequest",
    "Executor",
    "PacketType",
    "RawGpuBuffer",
    "ReduceOp",
    "Transport",
    "compile",
    "env",
    "ext",
    "is_bulk_supported",
    "is_nvls_supported",
    "language",
    "utils",
    "version",
]

globals().update(REFUSED)

version = {"version": VERSIONS["mscclpp"], "ahbm": True}


def is_nvls_supported() -> bool:
    """Whether switches reduce: plans that ask for it run on every machine, unless MSCCLPP_FORCE_DISABLE_NVLS is set."""
    return not env().disable_nvls


def is_bulk_supported() -> bool:
    """False: there is no GPU."""
    return False
