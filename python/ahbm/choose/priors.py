"""The prior's thresholds and orders, found on the machines that may be learned from: `python -m ahbm.choose.priors`.

Nothing of a machine that is scored takes part. Each collective is fitted by itself: of all thresholds in `STEPS` those
with the least mean of log(time / quickest), where each family begins with what lost least on the calls that the family
is for.
"""

from __future__ import annotations

import argparse
import itertools
import math
import pprint
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ahbm.base.request import Request
from ahbm.choose.outcomes import Outcomes
from ahbm.choose.splits import SPLITS, points, split_of
from ahbm.selectors.prior import FAMILIES, NEVER, Network, Way, chosen_of
from ahbm.source.switches import count_nodes

STEPS = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
"""Bytes at which a threshold may lie."""


@dataclass(frozen=True)
class Seen:
    """A call on a machine, and what everything that runs loses there."""

    machine: str
    collective: str
    nbytes: int
    ranks: int
    network: Network
    lost: Mapping[str, float]
    """log(time / quickest) by name."""


def seen(outcomes: Outcomes, asked: Iterable[tuple[str, Request]]) -> list[Seen]:
    """What is known of calls on their machines."""
    found = []
    for machine, request in asked:
        outcome = outcomes.of(machine, request)
        best = outcome.ps[outcome.best] or 1
        lost = {
            entry.name: math.log(ps / best)
            for entry, ps in zip(outcomes.catalogue, outcome.ps, strict=True)
            if ps is not None
        }
        here = outcomes.machine(machine)
        network = Network.of(here, count_nodes(here, request.ranks))
        found.append(Seen(machine, request.collective, request.nbytes, request.world_size, network, lost))
    return found


def fit(calls: Sequence[Seen], families: Mapping[str, Way] = FAMILIES) -> dict[str, Way]:
    """The ways of every collective of which calls were seen; the others as they are."""
    found = dict(families)
    for collective, family in families.items():
        own = [call for call in calls if call.collective == collective]
        if not own:
            continue
        made: list[tuple[float, int, Way]] = []
        for number, (small, share, large) in enumerate(itertools.product(STEPS, (0, *STEPS), (0, *STEPS, NEVER))):
            way = _sorted(replace(family, small=small, share=share, large=large), own)
            made.append((sum(_lost(way, call) for call in own) / len(own), number, way))
        found[collective] = min(made, key=lambda each: each[:2])[2]
    return found


def _sorted(way: Way, calls: Sequence[Seen]) -> Way:
    """The way with what loses least first, in each family on the calls that the family is for."""
    lists: dict[str, list[Seen]] = {name: [] for name in ("few", "far", "rings", "around", "aware")}
    for call in calls:
        aware = any(name in call.lost for name in way.aware)
        lists[way.family(call.nbytes, call.ranks, call.network, aware=aware)].append(call)

    def ordered(name: str) -> tuple[str, ...]:
        family: tuple[str, ...] = getattr(way, name)

        def mean(one: str) -> float:
            losses = [call.lost[one] for call in lists[name] if one in call.lost]
            return sum(losses) / len(losses) if losses else math.inf

        return tuple(sorted(family, key=lambda one: (mean(one), family.index(one))))

    return replace(
        way,
        few=ordered("few"),
        far=ordered("far"),
        rings=ordered("rings"),
        around=ordered("around"),
        aware=ordered("aware"),
    )


def _lost(way: Way, call: Seen) -> float:
    chosen = chosen_of(way, call.nbytes, call.ranks, call.network, call.lost.__contains__)
    return max(call.lost.values()) if chosen is None else call.lost[chosen]


def left_out(calls: Sequence[Seen]) -> list[tuple[Seen, str, float]]:
    """Every call with what a prior chooses that was fitted without the call's machine, and what that loses."""
    found = []
    for machine in dict.fromkeys(call.machine for call in calls):
        ways = fit([call for call in calls if call.machine != machine])
        for call in calls:
            way = ways.get(call.collective)
            if call.machine == machine and way is not None:
                chosen = chosen_of(way, call.nbytes, call.ranks, call.network, call.lost.__contains__)
                found.append((call, chosen or "", _lost(way, call)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the ways of a split's training side, and what they lose on machines that were left out."""
    parser = argparse.ArgumentParser(prog="python -m ahbm.choose.priors", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--split", choices=SPLITS, default="machines")
    asked = parser.parse_args(arguments)
    split = split_of(asked.split)
    sides = [(part, part.outcomes(split.catalogue)) for part in (split.train, split.test)]
    calls = [seen(outcomes, points(part, outcomes)) for part, outcomes in sides]
    pprint.pprint(fit(calls[0]), width=120, sort_dicts=False)
    print("each machine by a prior that was fitted to the others:")
    lost = left_out([*calls[0], *calls[1]])
    for machine in dict.fromkeys(call.machine for call, _, _ in lost):
        own = [math.exp(loss) - 1 for call, _, loss in lost if call.machine == machine]
        within = sum(loss <= 0.01 for loss in own) / len(own)
        print(f"  {machine}: mean regret {sum(own) / len(own):.1%}, within 1 % {within:.0%}")
    for call, chosen, loss in lost:
        if math.exp(loss) > 1.5:
            best = min(call.lost, key=lambda name: call.lost[name])
            print(f"  {call.machine} {call.collective} {call.nbytes}: {chosen}, not {best}: {math.exp(loss) - 1:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
