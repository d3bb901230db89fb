"""Traces of PyTorch's profiler of one device, and recordings of what is predicted, of a machine that is known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ahbm._core import Machine, write_recording
from ahbm.calibrate import templates
from ahbm.calibrate.accelerators import named
from ahbm.calibrate.written import text
from ahbm.kernels import Kernel, Tensor, describe

TRUE = {"memory.share": 0.6, "vector.share": 0.55, "kernel.start_ns": 3000.0}
"""What the machine of the traces has in the place of what a sheet gives."""
SHAPES = [(1 << at, 64 * width) for at in range(6, 15, 2) for width in (1, 3, 16, 50)]


def machine(values: dict[str, float]) -> Machine:
    tree = templates.alone(named("A100"))
    found = Machine.from_yaml(text(tree), "true", [])
    return found.changed([(f"compute.{key}", str(value)) for key, value in values.items()])


def takes(of: Machine, each: Kernel) -> int:
    """ps of a kernel."""
    how: Any = {"arithmetic": each.arithmetic, "kind": each.kind, "dims": each.dims}
    return of.kernel_ps("", each.operations, each.nbytes, **how)


def event(category: str, name: str, start: float, us: float, **args: Any) -> dict[str, Any]:
    thread = {"pid": 1, "tid": 2} if category == "cpu_op" else {"pid": 0, "tid": 7}
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": us, "args": args, **thread}


def stated(*shapes: Sequence[int], kind: str = "float") -> dict[str, Any]:
    return {"Input Dims": [list(each) for each in shapes], "Input type": [kind] * len(shapes)}


def launches(at: float, number: int, name: str, us: Sequence[float], **facts: Any) -> list[dict[str, Any]]:
    """An operation and its kernels."""
    kernels = [event("kernel", "k", 1e6 + at, each, **{"External id": number, "stream": 7, "device": 0}) for each in us]
    return [event("cpu_op", f"aten::{name}", at, 5.0, **{"External id": number}, **facts), *kernels]


def traced(folder: Path, of: Machine, device: str = "NVIDIA A100-SXM4-80GB") -> Path:
    """A trace of a machine that takes what its law says."""
    events: list[dict[str, Any]] = []
    for rows, columns in SHAPES:
        x, w = Tensor((rows, columns)), Tensor((columns, 256))
        for name, args in (("relu", (x,)), ("mm", (x, w)), ("add", (x, x))):
            kernels = describe(name, args)
            us = [takes(of, each) / 1e6 for each in kernels]
            number = len(events) + 1
            events += launches(10.0 * number, number, name, us, **stated(*(each.shape for each in args)))
    # Around them what has kernels only through others, and what states nothing.
    events += [event("cpu_op", "aten::linear", 5.0, 1.0), *launches(9e5, 999_999, "triton_fused", [9e3])]
    properties = [{"id": 0, "name": device, "numSms": 108}]
    document = {"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}
    with gzip.open(folder / "trace.json.gz", "wt") as file:
        json.dump(document, file)
    return folder / "trace.json.gz"


def recorded(folder: Path) -> Path:
    """What `ahbm.torch` keeps of a device that does some of these operations."""
    nodes: list[Any] = []
    for rows, columns in SHAPES:
        for each in describe("mm", (Tensor((rows, columns)), Tensor((columns, 256)))):
            facts = [("num_ops", each.operations), ("tensor_size", each.nbytes), ("num_ops_dtype", each.arithmetic)]
            facts += [("kernel_kind", each.kind), ("kernel_dims", list(each.dims))]
            nodes.append(("COMP_NODE", "mm", [], 0, 0, facts))
    return Path(write_recording(folder / "step", 0, 1, nodes))
