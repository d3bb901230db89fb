"""Arguments of operations as PyTorch's profiler writes them (`record_shapes`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ahbm.kernels.model import Arg, Tensor

_TYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "long int": "int64",
    "long": "int64", "int": "int32", "short": "int16", "short int": "int16", "signed char": "int8", "bool": "bool",
    "unsigned char": "uint8", "char": "int8", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2", "long long": "int64",
}  # fmt: skip
"""torch's names of types by those of C++."""
_TENSORS = {"TensorList", "OptionalTensorList"}


def arguments(facts: Mapping[str, Any]) -> tuple[Arg, ...] | None:
    """The arguments of an operation, by the `args` of its event: "Input Dims", "Input type", "Input Strides" and
    "Concrete Inputs". None where they are not there, or a list is too long to have been written."""
    dims, types = facts.get("Input Dims"), facts.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
        return None
    strides = facts.get("Input Strides") or [None] * len(dims)
    concrete = facts.get("Concrete Inputs") or [""] * len(dims)
    found: list[Arg] = []
    for at, (shape, kind) in enumerate(zip(dims, types, strict=True)):
        step = strides[at] if at < len(strides) else None
        if kind in _TENSORS:
            if not shape or not all(isinstance(each, list) for each in shape):
                return None
            found.append(tuple(_listed(shape, step)))
        elif kind in _TYPES:
            found.append(_tensor(shape, _TYPES[kind], step))
        else:
            found.append(_value(concrete[at] if at < len(concrete) else ""))
    return tuple(found)


def _tensor(shape: Sequence[int], dtype: str, step: Any) -> Tensor:
    lies = tuple(step) if isinstance(step, list) and len(step) == len(shape) else None
    return Tensor(tuple(shape), dtype, lies)


def _listed(shapes: Sequence[Sequence[int]], steps: Any) -> list[Tensor]:
    """A list of tensors, whose type the profiler does not write: f32 is what most are."""
    known = steps if isinstance(steps, list) and len(steps) == len(shapes) else [None] * len(shapes)
    return [_tensor(shape, "float32", step) for shape, step in zip(shapes, known, strict=True)]


def _value(text: Any) -> Arg:
    """A number, a truth value, a list of such; None for what is not written."""
    if not isinstance(text, str) or text in ("", "None"):
        return None
    if text in ("True", "False"):
        return text == "True"
    try:
        found = json.loads(text.replace("True", "true").replace("False", "false"))
    except ValueError:
        return text
    return tuple(found) if isinstance(found, list) else found
