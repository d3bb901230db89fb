"""Whatever a public function or class is given: it works, or an error of AHBM names what is wrong."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm import _core
from ahbm.errors import AhbmError, ConfigError
from ahbm.job.options import defaults
from ahbm.runs.measure import Arguments
from ahbm.views.page import Page
from support.harmful import HOSTILE, escaped

SMALL = "system:\n  sips: {count: 1}\n"


def plain(count: int = 4) -> Any:
    return np.ones(count, np.float16)


ONE_PE = {"system.sips.count": 2, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
MACHINES = ("overrides", "topology", "ccl", "emulator", "target")
"""Parameters that say on which machine, besides `overrides`."""


@functools.cache
def emulator() -> ahbm.Emulator:
    """A small one, which compiles nothing twice."""
    return ahbm.Emulator.load(overrides=ONE_PE)


@functools.cache
def timeline() -> _core.Timeline:
    return ahbm.run(bytes_per_rank=64, emulator=emulator()).program().simulate()


GOOD: dict[str, Callable[[], Any]] = {
    "agent": lambda: 0,
    "chunks": lambda: 1,
    "collective": lambda: "all_reduce",
    "code": lambda: "AHBM-C129",
    "data": lambda: plain(16),
    "dp": lambda: ahbm.DPPolicy(),
    "dst": lambda: 0,
    "dtype": lambda: "f16",
    "findings": list,
    "found": dict,
    "index": lambda: 0,
    "label": lambda: "rank 0",
    "machine": lambda: emulator().machine,
    "message": lambda: "wrong",
    "name": lambda: "mine",
    "nbytes": lambda: 64,
    "op": lambda: "sum",
    "path": lambda: "written.xml",
    "prefix": lambda: "written",
    "rank": lambda: 0,
    "ranks": lambda: 2,
    "shape": lambda: (4,),
    "share_bytes": lambda: 64,
    "size": lambda: 64,
    "source": lambda: "nowhere.xml",
    "src": lambda: 0,
    "target": lambda: "all_reduce",
    "text": lambda: SMALL,
    "timeline": timeline,
    "tiles": lambda: plain(4).reshape(1, 4),
    "worker": lambda: dist.get_rank,
    "overrides": lambda: {"system.sips.count": 2},
}
"""Values of parameters without a default, by name; else a tensor."""
KEYWORDS = {
    ahbm.inspect: dict.fromkeys(Arguments.__annotations__),
    ahbm.open: dict.fromkeys(defaults()),
    ahbm.run: dict.fromkeys(Arguments.__annotations__),
}


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
        ahbm.Inspection: lambda: report().inspect(),
        ahbm.Machine: lambda: ahbm.Emulator.load().machine,
        ahbm.Report: report,
        ahbm.Table: lambda: ahbm.sweep(sizes=64, overrides={"system.sips.count": 2}),
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
            if "size" in named and parameter not in ("size", "sizes"):
                given["size"] = 64
            if "algorithms" in named and parameter not in ("algorithms", "collective", "collectives", "target"):
                given["algorithms"] = "ring_allreduce"
            if "emulator" in named and parameter not in MACHINES:
                given["emulator"] = emulator()
            elif "overrides" in named and parameter not in MACHINES:
                given["overrides"] = ONE_PE
            given[parameter] = value
            positional = [given.pop(p.name) for p in parameters if p.kind is p.POSITIONAL_ONLY and p.name in given]
            wrong += escaped(f"{name}({parameter})", partial(call, *positional, **given), value)
    return wrong


FUNCTIONS = [name for name in ahbm.__all__ if name not in ("AhbmError", "Tl", "__version__", "errors")]
"""All but those that raise, and the one that only kernels are given."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_package(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = getattr(ahbm, name)
    if name == "report":
        # What is drawn is no argument any more, and takes most of the time.
        monkeypatch.setattr("ahbm.views.overview.page", lambda contents: Page("a page", "", [], {}))
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


def natives(held: object, seen: dict[type, object], depth: int = 0) -> dict[type, object]:
    """The first object of every native class that attributes of `held`, and methods without arguments, lead to."""
    if isinstance(held, list | tuple):
        for item in held[:2]:
            natives(item, seen, depth)
        return seen
    kind = type(held)
    if not kind.__module__.startswith("ahbm") or kind in seen or depth > 6:
        return seen
    seen[kind] = held
    for name in dir(held):
        if name.startswith("_"):
            continue
        with contextlib.suppress(AhbmError):
            value = getattr(held, name)
            if callable(value) and not isinstance(value, type):
                needed = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty]
                value = None if any(p.kind is not p.VAR_KEYWORD for p in needed) else value()
            natives(value, seen, depth + 1)
    return seen


@pytest.mark.slow
def test_objects_that_the_package_returns(here: Path) -> None:
    seen: dict[type, object] = {}
    schedule = ahbm.synthesize("all_gather", topology="ring_1d", size=1 << 12)
    schedule.save("plan.xml")
    report = ahbm.run(bytes_per_rank=64, emulator=emulator())
    returned = (report, report.explain(), schedule, ahbm.open("plan.xml"))
    for root in returned:
        natives(root, seen)
    builder = _core.PlanBuilder("mine", "custom", ranks=2, chunks=1)
    found = {kind: held for kind, held in natives(builder, seen).items() if kind.__module__ == _core.__name__}
    # Those that the documentation names.
    assert {_core.Machine, _core.Plan, _core.Program, _core.Schedule, _core.Timeline} <= set(found)
    for kind, held in {**found, **{type(root): root for root in returned}}.items():
        for method, call in methods(kind.__name__, held):
            assert not tried(method, call)


@pytest.mark.parametrize("kind", [_core.PlanBuilder, _core.Schedule])
def test_native_classes(kind: type, here: Path) -> None:
    assert not tried(kind.__name__, kind)


def test_a_refused_argument_of_a_native_object_is_named() -> None:
    program = ahbm.run(bytes_per_rank=64, emulator=emulator()).program()
    for call, text in (
        (partial(program.simulate, detail="yes"), "detail must be True or False, not 'yes'"),
        (partial(program.describe, -1, 0), "agent must be an integer from 0 to 4294967295, not -1"),
        (partial(program.place, 2), "agent must be an integer from 0 to 1, not 2"),
        (partial(program.delayed, [(0, 1)]), r"pauses must be a list, each item \(an integer .*\), not \[\(0, 1\)\]"),
        (partial(program.write_trace, None, "x"), "timeline must be a Timeline, not None"),
    ):
        with pytest.raises(ConfigError, match=f"AHBM-C129 {text}"):
            call()
