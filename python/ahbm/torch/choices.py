"""Choices of algorithms between processes: names, and plans by their files, which all processes of a host can read."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ahbm.base.knobs import KNOBS
from ahbm.core.choice import Choice
from ahbm.errors import ConfigError, Finding, FormatError

if TYPE_CHECKING:
    from ahbm.selectors.why import Why
    from ahbm.source.plan import PlanAlgorithm

KNOWN_PLANS = 256


def encoded(choice: Choice | None) -> dict[str, str | int] | None:
    """`choice` as facts of a message.

    Raises ConfigError (AHBM-C180) for an algorithm that has neither a name in ccl.yaml nor a file.
    """
    if choice is None:
        return None
    facts, found = {"rule": choice.rule, "algorithm": choice.name, **choice.knobs}, choice.algorithm
    if isinstance(found, str):
        return facts
    from ahbm.source.plan import PlanAlgorithm, PlanOptions

    if isinstance(found, PlanAlgorithm) and found.path.is_file() and found.how == PlanOptions():
        return facts | {"plan": str(found.path.resolve()), "digest": found.digest}
    raise ConfigError(
        "AHBM-C180",
        f"the algorithm {found.name} is only in this process's memory: rank 0's process cannot perform it",
        hint="return the name of an algorithm of ccl.yaml, or a plan that is a file",
    )


def decoded(facts: dict[str, Any]) -> Choice:
    """The choice that `facts` tell.

    Raises FormatError (AHBM-F170) for a plan that is not the one it was, and what reading it raises.
    """
    rule, name = str(facts["rule"]), str(facts["algorithm"])
    knobs: dict[str, Any] = {knob: facts[knob] for knob in KNOBS if knob in facts}
    if "plan" not in facts:
        return Choice(rule, name, **knobs)
    return Choice(rule, _plan(name, str(facts["plan"]), str(facts["digest"])), **knobs)


def encoded_why(why: Why | None) -> dict[str, Any] | None:
    """The evidence of a choice as facts of a message: values that are no number, text or truth value as text."""
    if why is None:
        return None
    call = {name: value for name, value in vars(why.call).items() if name != "request"}
    facts = [(name, value if isinstance(value, str | int | float | None) else repr(value)) for name, value in why.facts]
    failure = None if why.failure is None else [why.failure.code, why.failure.message]
    return {"selector": why.selector, "call": call, "facts": facts, "failure": failure}


def decoded_why(facts: dict[str, Any] | None) -> Why | None:
    """The evidence that `facts` tell. Raises KeyError, TypeError or ValueError for what is none."""
    if facts is None:
        return None
    from ahbm.selectors.protocol import Call, CostTable
    from ahbm.selectors.why import Why

    failed = facts["failure"]
    failure = None if failed is None else Finding(str(failed[0]), str(failed[1]))
    pairs = tuple((str(name), value) for name, value in facts["facts"])
    return Why(str(facts["selector"]), Call(**facts["call"]), CostTable((), []), pairs, failure)


@lru_cache(KNOWN_PLANS)
def _plan(name: str, path: str, digest: str) -> PlanAlgorithm:
    from ahbm.base.load import load_bytes
    from ahbm.config.reading import PLAIN
    from ahbm.source.plan import PlanAlgorithm, runnable

    content = load_bytes(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise FormatError("AHBM-F170", f"{path} is not the plan that a rank has chosen: another was written over it")
    found = runnable(path, PLAIN)
    return PlanAlgorithm.of(name, found, content.decode(), path)
