"""Whatever a public function or class is given: it works, or an error of AHBM names what is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.harmful import HOSTILE, escaped

import ahbm
import ahbm.distributed as dist
from ahbm.job.door import Terms
from ahbm.runs.measure import Arguments

SMALL = "system:\n  sips: {count: 1}\n"


def plain(count: int = 4) -> Any:
    return np.ones(count, np.float16)


GOOD: dict[str, Callable[[], Any]] = {
    "collective": lambda: "all_reduce",
    "code": lambda: "AHBM-C129",
    "data": lambda: plain(16),
    "dp": lambda: ahbm.DPPolicy(),
    "dst": lambda: 0,
    "findings": list,
    "found": dict,
    "label": lambda: "rank 0",
    "message": lambda: "wrong",
    "nbytes": lambda: 64,
    "op": lambda: "sum",
    "shape": lambda: (4,),
    "size": lambda: 64,
    "source": lambda: "nowhere.xml",
    "src": lambda: 0,
    "target": lambda: "all_reduce",
    "text": lambda: SMALL,
    "tiles": lambda: plain(4).reshape(1, 4),
    "worker": lambda: dist.get_rank,
    "overrides": lambda: {"system.sips.count": 2},
}
"""Values of parameters without a default, by name; else a tensor."""
KEYWORDS = {ahbm.open: dict.fromkeys(Terms.__dataclass_fields__), ahbm.run: dict.fromkeys(Arguments.__annotations__)}


def public(home: Any, names: list[str]) -> Iterator[tuple[str, Any]]:
    for name in names:
        value = getattr(home, name)
        # To call an enumeration is to look something up in it.
        if callable(value) and not (isinstance(value, type) and issubclass(value, Enum)):
            yield f"{home.__name__}.{name}", value


def methods(name: str, thing: object) -> Iterator[tuple[str, Any]]:
    """The public methods of an object."""
    for attribute in dir(type(thing)):
        if not attribute.startswith("_") and callable(getattr(type(thing), attribute)):
            yield f"{name}.{attribute}", getattr(thing, attribute)


def samples() -> dict[type, Callable[[], object]]:
    """An object of every public class that is not made by its own arguments alone."""
    report = partial(ahbm.run, bytes_per_rank=64, overrides={"system.sips.count": 2})
    return {
        ahbm.Emulator: lambda: ahbm.Emulator.load(overrides={"system.sips.count": 2}),
        ahbm.Explanation: lambda: report().explain(),
        ahbm.Machine: lambda: ahbm.Emulator.load().machine,
        ahbm.Report: report,
    }


def signature(call: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(call)
    except ValueError:
        return None


def tried(name: str, call: Any) -> list[str]:
    """Calls `call` with every hostile value in place of every argument; what came back besides AHBM's errors."""
    known = signature(call)
    if known is None:
        return []
    wrong = []
    parameters = [p for p in known.parameters.values() if p.kind is not p.VAR_POSITIONAL]
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    named += KEYWORDS.get(call, {}) if len(named) < len(parameters) else ()
    for parameter in named:
        for value in HOSTILE:
            given = {
                p.name: GOOD.get(p.name, plain)()
                for p in parameters
                if p.default is p.empty and p.kind is not p.VAR_KEYWORD
            }
            if "bytes_per_rank" in named and parameter != "bytes_per_pe":
                given["bytes_per_rank"] = 64
            given[parameter] = value
            positional = [given.pop(p.name) for p in parameters if p.kind is p.POSITIONAL_ONLY and p.name in given]
            wrong += escaped(f"{name}({parameter})", partial(call, *positional, **given), value)
    return wrong


FUNCTIONS = [name for name in ahbm.__all__ if name not in ("AhbmError", "__version__", "errors")]
"""All but those that raise."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_package(name: str, here: Path) -> None:
    value = getattr(ahbm, name)
    assert not tried(f"ahbm.{name}", value)
    if isinstance(value, type):
        make = samples().get(value)
        held = make() if make is not None else value(**{p: GOOD[p]() for p in required(value)})
        for method, call in methods(f"ahbm.{name}", held):
            assert not tried(method, call)


def required(kind: type) -> list[str]:
    known = signature(kind)
    assert known is not None, f"{kind} needs a sample"
    return [p.name for p in known.parameters.values() if p.default is p.empty]


def test_distributed(here: Path) -> None:
    wrong = []
    for name, call in public(dist, dist.__all__):
        if name.endswith(("init_process_group", "destroy_process_group")):
            continue
        dist.init_process_group(overrides={"system.sips.count": 1})
        wrong += tried(name, call)
        dist.destroy_process_group()
    assert not wrong


def test_init_process_group(here: Path) -> None:
    def init(**given: Any) -> None:
        try:
            dist.init_process_group(**given)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    init.__signature__ = inspect.signature(dist.init_process_group)  # type: ignore[attr-defined]
    assert not tried("init_process_group", init)
