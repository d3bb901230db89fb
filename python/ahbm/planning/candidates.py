"""The ways of cutting a model over a number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any

from ahbm.errors import ConfigError
from ahbm.job.transformer import V_SCHEDULES, Transformer

AXES = ("tp", "pp", "virtual_stages", "schedule", "cp", "ep", "zero", "micro_batch", "recompute")
"""What plans differ in; data-parallel ranks are what is left of the ranks."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The values that are tried of each number of a plan; None for all that may be worth it."""

    tp: Sequence[int] | None = None
    pp: Sequence[int] | None = None
    virtual_stages: Sequence[int] | None = None
    schedule: Sequence[str] | None = None
    cp: Sequence[int] | None = None
    ep: Sequence[int] | None = None
    zero: Sequence[int] | None = None
    micro_batch: Sequence[int] | None = None
    recompute: Sequence[str] | None = None
    also: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of `Transformer`, for all plans."""

    def of(self, axis: str, usual: Sequence[Any]) -> Sequence[Any]:
        """The values of an axis."""
        said = getattr(self, axis)
        return usual if said is None else said


def candidates(model: Mapping[str, Any], ranks: int, batch: int, choices: Choices, node: int) -> Iterator[Transformer]:
    """All plans of a model for `ranks` ranks and `batch` sequences of a step, in a fixed order; tensor-parallel ranks
    stay inside of a node of `node` ranks.

    Raises ConfigError (AHBM-C157) for numbers of a model that are none, or where not one plan divides ranks, batch and
    layers as it must.
    """
    known = {each.name for each in fields(Transformer)}
    if unknown := sorted(set(model) - known):
        raise ConfigError("AHBM-C157", f"{unknown[0]} is no number of a transformer")
    layers, heads = model["layers"], model.get("heads") or max(model["hidden"] // 128, 1)
    kv, experts = model.get("kv_heads") or heads, model.get("experts") or 0
    sequence = model.get("sequence") or Transformer.sequence
    inside = [n for n in _divisors(ranks) if n <= max(node, 1) and heads % n == 0 and kv % n == 0]
    stages = [n for n in _divisors(ranks) if n <= layers]
    rings = [n for n in _divisors(ranks) if n <= 16 and sequence % n == 0] if sequence > 16384 else [1]
    axes = {
        "tp": choices.of("tp", inside),
        "pp": choices.of("pp", stages),
        "virtual_stages": choices.of("virtual_stages", [1, 2, 3, 4, 5, 6, 8]),
        "schedule": choices.of("schedule", [{**model, **choices.also}.get("schedule") or Transformer.schedule]),
        "cp": choices.of("cp", [1] if experts else rings),
        "ep": choices.of("ep", [n for n in _divisors(experts) if n <= ranks] if experts else [1]),
        "zero": choices.of("zero", [0, 1, 3]),
        "micro_batch": choices.of("micro_batch", [1, 2, 4, 8]),
        "recompute": choices.of("recompute", ["none", "full"]),
    }
    found = False
    for values in product(*axes.values()):
        plan = _plan(dict(zip(axes, values, strict=True)), model, ranks, batch, choices.also)
        if plan is not None:
            found = True
            yield plan
    if not found:
        what = f"no plan divides {ranks} ranks, {batch} sequences of a step and {layers} layers"
        raise ConfigError("AHBM-C157", what, hint="another --batch, or fewer limits")


def _plan(
    cut: dict[str, Any], model: Mapping[str, Any], ranks: int, batch: int, also: Mapping[str, Any]
) -> Transformer | None:
    inner = cut["tp"] * cut["pp"] * cut["cp"]
    if ranks % inner:
        return None
    dp = ranks // inner
    if batch % (dp * cut["micro_batch"]) or dp % cut["ep"]:
        return None
    micro_batches = batch // (dp * cut["micro_batch"])
    pp, chunks = cut["pp"], cut["pp"] * cut["virtual_stages"]
    if cut["schedule"] in V_SCHEDULES:
        few = cut["schedule"] == "dualpipev" and micro_batches < 2 * pp
        if pp == 1 or cut["virtual_stages"] != 2 or few:
            return None
    elif cut["virtual_stages"] > 1 and (pp == 1 or micro_batches % pp or cut["schedule"] == "gpipe"):
        return None
    # Without a pipeline all schedules are one.
    if pp == 1 and cut["schedule"] != Transformer.schedule:
        return None
    # Parameters that are gathered for each micro-batch of a pipeline are never the quickest.
    if (cut["zero"] and dp * cut["cp"] == 1) or (cut["zero"] == 3 and pp > 1):
        return None
    layers = model["layers"]
    ends = 0 if layers % chunks == 0 else 1 if (layers + 2) % chunks == 0 else None
    if ends is None or (layers + 2 * ends) // chunks <= ends:
        return None
    own = {"micro_batches": micro_batches, "dp": dp, "end_layers": ends, "sequence_parallel": cut["tp"] > 1}
    return Transformer(**{**model, **also, **cut, **own})


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
