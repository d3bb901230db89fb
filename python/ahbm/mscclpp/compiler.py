"""`mscclpp.compile`: from a function that writes a program to an algorithm."""

from __future__ import annotations

import hashlib
import inspect
import json
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ahbm.base.store import make_folders, store
from ahbm.dsl.mscclpp import AlgoSpec, CollectiveProgram
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.mscclpp.environment import cache_folder
from ahbm.mscclpp.plans import Algorithm, ExecutionPlan, ExecutionPlanConstraint
from ahbm.mscclpp.types import CollectiveBufferMode
from ahbm.source.plan import PlanAlgorithm

_compiled: dict[tuple[str, str], Algorithm] = {}
"""By id and file."""
_lock = threading.Lock()


def compile(algo: Callable[..., CollectiveProgram], algo_spec: AlgoSpec, rank: int, **kwargs: Any) -> Algorithm:
    """The algorithm that `algo(algo_spec, **kwargs)` writes, lowered once; its plan is the file `<id>.json` of
    `cache_folder()`. What was compiled before is the same object.

    Raises what `algo` raises, ProgramError: AHBM-A103 (a ValueError) where it is no function or gives no program, and
    what is wrong with the program; OSError where the file cannot be written; UnsupportedError (AHBM-U113) for a
    collective without a known result.
    """
    if not callable(algo):
        raise fault("ValueError", "AHBM-A103", f"compile: {algo!r} is no function that writes a program")
    if not isinstance(algo_spec, AlgoSpec):
        raise fault("ValueError", "AHBM-A103", f"compile: {algo_spec!r} is no AlgoSpec")
    program = algo(algo_spec, **kwargs)
    if not isinstance(program, CollectiveProgram):
        name = getattr(algo, "__name__", algo)
        raise fault("ValueError", "AHBM-A103", f"compile: {name} gives {program!r}, no CollectiveProgram")
    text = program.to_json()
    identity = _identity(algo, algo_spec, kwargs, text)
    path = cache_folder() / f"{identity}.json"
    with _lock:
        known = _compiled.get((identity, str(path)))
        if known is None or not path.is_file():
            make_folders(path.parent)
            store({path: text.encode()})
        if known is None:
            how = PlanAlgorithm.of(algo_spec.name, program.recorder.plan(), text, path.resolve())
            known = _compiled[identity, str(path)] = Algorithm(
                algo_spec.name,
                algo_spec.collective.name,
                identity=identity,
                plan=ExecutionPlan._of(text, how, rank),
                constraints=ExecutionPlanConstraint(algo_spec.world_size, algo_spec.nranks_per_node),
                tags=dict(algo_spec.tags),
                buffer_mode=CollectiveBufferMode.InPlace if algo_spec.in_place else CollectiveBufferMode.OutOfPlace,
            )
        return known


def _identity(algo: Callable[..., Any], spec: AlgoSpec, kwargs: dict[str, Any], text: str) -> str:
    """64 hex digits. The plan takes part: a program may depend on more than its source and its arguments."""
    collective = spec.collective
    facts = {field.name: repr(getattr(spec, field.name)) for field in fields(AlgoSpec) if field.name != "collective"}
    facts["collective"] = f"{type(collective).__name__} {sorted(vars(collective).items())}"
    facts["tags"] = repr(sorted(spec.tags.items()))
    try:
        source = inspect.getsource(algo)
    except (OSError, TypeError):  # of a function that was typed in, the plan has to do
        source = ""
    named = sorted((name, repr(value)) for name, value in kwargs.items())
    return hashlib.sha256(json.dumps([facts, named, source, text], sort_keys=True).encode()).hexdigest()
