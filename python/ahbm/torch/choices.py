"""Choices of algorithms between processes: names, and plans by their files, which all processes of a host can read."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ahbm.core.selection import Choice
from ahbm.errors import ConfigError, FormatError

if TYPE_CHECKING:
    from ahbm.source.plan import PlanAlgorithm

KNOWN_PLANS = 256


def told(choice: Choice | None) -> dict[str, str] | None:
    """`choice` as facts of a message.

    Raises ConfigError (AHBM-C180) for an algorithm that has neither a name in ccl.yaml nor a file.
    """
    if choice is None:
        return None
    facts, found = {"rule": choice.rule, "algorithm": choice.name}, choice.algorithm
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


def heard(facts: dict[str, Any]) -> Choice:
    """The choice that `facts` tell.

    Raises FormatError (AHBM-F170) for a plan that is not the one it was, and what reading it raises.
    """
    name = str(facts["algorithm"])
    if "plan" not in facts:
        return Choice(str(facts["rule"]), name)
    return Choice(str(facts["rule"]), _plan(name, str(facts["plan"]), str(facts["digest"])))


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
