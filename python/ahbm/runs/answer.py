"""An explanation for people: why it takes so long in a few sentences, then the parts, the largest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ahbm.base.words import in_words
from ahbm.runs.advice import SIMULATED, Advice, best_of, link_class

if TYPE_CHECKING:
    from ahbm.runs.explanation import Explanation, Step

TOP = 10
"""Entries of a list; of more, their number is told."""
_FLOWS = 4
"""Flows of a link that are told."""
LEAST = 0.5
"""% of the latency that a change must save to be worth a sentence."""


def sentences(why: Explanation, advice: Sequence[Advice]) -> list[str]:
    """The time and its share of the bound; the largest cause and its place; the change that would help most."""
    if not why.latency_ps:
        return [f"{why.name} takes no time."]
    took = f"{why.name} takes {ns(why.latency_ps)} ns (simulated)"
    if why.bound_ps:
        took += f", {100 * why.bound_ps / why.latency_ps:.1f} % of the bound of {ns(why.bound_ps)} ns"
    return [f"{took}.", f"{_cause(why)}.", f"{_help(why, advice)}."]


def described(why: Explanation, advice: Sequence[Advice]) -> str:
    """The whole explanation."""
    lines = [*sentences(why, advice), "the critical path, in ns:"]
    lines += _categories(why.by_category, why.latency_ps)
    if len(why.steps) > TOP:
        lines.append("by kind of step:")
        lines += _top(
            [
                f"  {ns(kind.ps):>14}  {in_words(kind.kind)}: {_count(kind.lines, 'line')}, {_ranks(kind.ranks)}: "
                f"{_parts(kind.by_category)}"
                for kind in why.kinds
            ]
        )
    lines.append("by line of the algorithm:")
    lines += _top(
        [
            f"  {ns(step.ps):>14}  {step.place}  {in_words(step.what)} x {step.operations}: {_parts(step.by_category)}"
            for step in sorted(why.steps, key=lambda step: -step.ps)
        ]
    )
    on_path = sorted((link for link in why.links if link.path_ps), key=lambda link: -link.path_ps)
    if on_path:
        lines.append("by link:")
        lines += _top(
            [f"  {ns(link.path_ps):>14}  {link.name}: busy {_share(link.busy_ps, why)} of the run" for link in on_path]
        )
    if len(why.ranks) > 1:
        lines.append("by rank:")
        lines += _top([f"  {ns(rank.ps):>14}  rank {rank.rank}: {_parts(rank.by_category)}" for rank in why.ranks])
    waited = [link for link in why.links if link.waited_ps]
    lines.append("links that messages queued for:" if waited else "no message had to wait for a link")
    lines += _top(
        [
            f"  {ns(link.waited_ps):>14}  {link.name}: {link.waits} of {link.crossed} waited, busy "
            f"{_share(link.busy_ps, why)} of the run, {ns(link.path_ps)} on the path"
            for link in waited
        ]
    )
    if why.collisions:
        lines.append("flows that share a link although there are other ways as short:")
    lines += _top(
        [
            f"  {ns(each.busy_ps):>14}  {each.link}: {len(each.flows)} of {each.among} flows, {_flows(each.flows)}; "
            f"evenly over {_count(each.links, 'link')} {each.even}, busy {ns(each.even_ps)}"
            for each in why.collisions
        ]
    )
    lines.append("time of all agents, waits included:")
    lines += _categories(why.agents_by_category, sum(why.agents_by_category.values()))
    for title, chosen in (
        ("what was asked for:", [entry for entry in advice if entry.asked]),
        ("what would help:", best_of(advice)),
        ("what a line would give if it cost nothing:", [e for e in advice if e.line and e.way == SIMULATED]),
    ):
        lines += [title] if chosen else []
        for entry in chosen:
            takes = "" if entry.line or entry.latency_ps is None else f": {ns(entry.latency_ps)} ns"
            lines.append(f"  {gain(entry, why):>16}  {entry.what}{takes} ({entry.way})")
            lines += [f"{'':>20}{entry.command}"] if entry.command and not entry.line else []
    return "\n".join(lines)


def _flows(flows: list[tuple[int, int]]) -> str:
    shown = ", ".join(f"sip{source}->sip{target}" for source, target in flows[:_FLOWS])
    return shown if len(flows) <= _FLOWS else f"{shown} and {len(flows) - _FLOWS} more"


def changes(advice: Sequence[Advice]) -> list[Advice]:
    """The changes and other algorithms that were simulated."""
    return [entry for entry in advice if entry.way == SIMULATED and not entry.line]


def ns(ps: int) -> str:
    """ps as nanoseconds."""
    return f"{ps / 1000:,.3f}"


def _cause(why: Explanation) -> str:
    """The largest of time on links, and the categories of the time on none."""
    links = sorted((link for link in why.links if link.path_ps), key=lambda link: -link.path_ps)
    on_links, elsewhere = sum(link.path_ps for link in links), next(iter(why.unlinked.items()), ("", 0))
    if on_links < elsewhere[1]:
        name = elsewhere[0]
        return f"{_share(elsewhere[1], why)} of the critical path is {in_words(name)}, {_place(why.shares(name))}"
    link = links[0]
    limit = why.bandwidth_on(link.name)
    bandwidth = f"{limit}, " if limit else ""
    if 2 * link.path_ps >= on_links:
        return (
            f"{_share(link.path_ps, why)} of the critical path is bytes {bandwidth}on {link.name}, "
            f"{_place(why.shares(link=link.name))}; the link is busy {_share(link.busy_ps, why)} of the time"
        )
    classes: dict[str, list[int]] = {}
    for link in links:
        classes.setdefault(link_class(link.name), []).append(link.path_ps)
    most = max(classes, key=lambda name: sum(classes[name]))
    bandwidth = bandwidth if link_class(links[0].name) == most else ""
    count = len(classes[most])
    begin = f"{_share(sum(classes[most]), why)} of the critical path is bytes {bandwidth}on {count} links {most}"
    return f"{begin}, {_place(why.shares())}"


def _place(shares: list[tuple[Step, int]]) -> str:
    """The line that most of the time belongs to, or the kind of step where no line has half of it."""
    step, ps = shares[0]
    whole = sum(share for _, share in shares)
    if 2 * ps >= whole:
        part = "all" if ps == whole else f"{100 * ps / whole:.0f} %"
        return f"{part} of it for {step.place} ({in_words(step.what)})"
    kinds: dict[str, list[int]] = {}
    for step, ps in shares:
        kinds.setdefault(step.kind, []).append(ps)
    kind = max(kinds, key=lambda name: sum(kinds[name]))
    lines = _count(len(kinds[kind]), "line")
    return f"{100 * sum(kinds[kind]) / whole:.0f} % of it for {lines} ({in_words(kind)})"


def _help(why: Explanation, advice: Sequence[Advice]) -> str:
    simulated = changes(advice)
    if not simulated:
        long = "the run is too long for that unless it is asked for (--what-if all)"
        return f"No change was simulated: {long}, or nothing can change it"
    best = max(simulated, key=lambda entry: entry.gain_ps)
    if 100 * best.gain_ps < LEAST * why.latency_ps:
        return f"No change that was simulated ({len(simulated)}) saves {LEAST} % of the time"
    return (
        f"Of the changes that were simulated ({len(simulated)}), this would help most: {best.what}, {gain(best, why)}"
    )


def gain(entry: Advice, why: Explanation) -> str:
    """The change of the latency, in %."""
    percent = round(-100 * entry.gain_ps / why.latency_ps, 1)
    return f"{percent:+.1f} %" if percent else "0.0 %"


def _top(entries: list[str], most: int = TOP) -> list[str]:
    more = len(entries) - most
    return entries[:most] + ([f"  … {more} more"] if more > 0 else [])


def _share(ps: int, why: Explanation) -> str:
    return f"{100 * ps / why.latency_ps:.1f} %"


def _categories(times: Mapping[str, int], total: int) -> list[str]:
    return [f"  {ns(ps):>14}  {100 * ps / total:5.1f} %  {in_words(name)}" for name, ps in times.items()]


def _parts(times: Mapping[str, int]) -> str:
    return ", ".join(f"{in_words(name)} {ns(ps)}" for name, ps in times.items())


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    whole = ranks == list(range(ranks[0], ranks[-1] + 1))
    return f"ranks {ranks[0]}-{ranks[-1]}" if whole else f"{len(ranks)} ranks of {ranks[0]}-{ranks[-1]}"
