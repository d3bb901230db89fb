"""The answer of a page, in sentences that are made of its numbers: what is fastest, how far from the bound, why, what
to try next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ahbm.base.words import in_words
from ahbm.runs.advice import SIMULATED, Advice, best_of
from ahbm.runs.answer import gain
from ahbm.views.words import size, time

if TYPE_CHECKING:
    from ahbm.runs.explanation import Explanation
    from ahbm.runs.report import Report

NEAR = 95.0
"""Percent of the bound from which on another algorithm gains next to nothing."""

REMEDIES = {
    "dispatch": "fewer and larger operations: each one costs its issue",
    "DMA": "fewer and larger loads and stores, or more DMA channels (pe.dma.channels)",
    "link serialisation": "spread these bytes over more links, or send fewer of them",
    "link contention": "send at other times or over other links: messages queue there",
    "wire latency": "fewer hops one after the other: a tree, halving and doubling, or larger messages",
    "slot I/O": "fewer messages, or slots in a faster memory (defaults.buffer_kind)",
    "credit": "deeper queues, so that senders need not wait for credits: --set defaults.n_slots=16",
    "math": "reduce on more PEs at a time",
    "delay": "shorten the computations between the messages",
}
"""By category of the critical path, what makes it shorter."""


def fastest(reports: Sequence[Report]) -> str:
    """Which algorithm is the fastest at the largest size, and where another one is, of results that are right."""
    wrong = ", ".join(dict.fromkeys(report.algorithm for report in reports if not report.right))
    right = [report for report in reports if report.right]
    if not right:
        return f"No result is right: {wrong}."
    largest = max(report.bytes for report in right)
    rivals = sorted((r for r in right if r.bytes == largest), key=lambda report: report.latency_ns)
    best = rivals[0]
    message = f"{best.algorithm} takes {time(best.latency_ns * 1000)} at {size(largest)}"
    if len(rivals) > 1:
        ratio = rivals[1].latency_ns / best.latency_ns if best.latency_ns else 1.0
        lead = f"{ratio:.3g} times " if ratio > 1 else ""
        lead += f"as fast as {rivals[1].algorithm}"
        message = f"{best.algorithm} is the fastest of {len(rivals)} at {size(largest)}: "
        message += f"{time(best.latency_ns * 1000)}, {lead}"
    if not best.latency_ns:
        message = f"At {size(largest)} no time is taken by {', '.join(r.algorithm for r in rivals if not r.latency_ns)}"
    others: dict[str, list[int]] = {}
    for nbytes in sorted({report.bytes for report in right}):
        here = [report for report in right if report.bytes == nbytes]
        winner = min(here, key=lambda report: (report.latency_ns, report.algorithm != best.algorithm)).algorithm
        if winner != best.algorithm:
            others.setdefault(winner, []).append(nbytes)
    for name, won in others.items():
        message += f"; {name} is faster at {size(won[0])}" + (f" to {size(won[-1])}" if len(won) > 1 else "")
    return message + "." + (f" Wrong results take no part: {wrong}." if wrong else "")


def distance(report: Report) -> str:
    """How far a run is from the bound."""
    if report.bound_ns is None or report.percent_of_bound is None:
        return f"No bound is known: {report.limited_by}."
    if report.percent_of_bound >= NEAR:
        return (
            f"It is at {report.percent_of_bound:.3g} % of the bound of {time(report.bound_ns * 1000)}: "
            f"what limits it is the machine, {report.limited_by}."
        )
    return (
        f"It is at {report.percent_of_bound:.3g} % of the bound of {time(report.bound_ns * 1000)} "
        f"({report.limited_by}): {report.latency_ns / report.bound_ns:.3g} times the least time possible."
    )


def because(explanation: Explanation) -> str:
    """The largest part of the critical path: its category, line and link."""
    if not explanation.by_category:
        return "It takes no time, so there is nothing to explain."
    category, ps = next(iter(explanation.by_category.items()))
    message = f"{100 * ps / explanation.latency_ps:.3g} % of its critical path is {in_words(category)}"
    step = max(explanation.steps, key=lambda step: step.by_category.get(category, 0))
    part = step.by_category.get(category, 0)
    if part:
        share = "all" if part == ps else f"{100 * part / ps:.3g} %"
        message += f", {share} of that at {step.place if step.origin else in_words(step.what)}"
    link = max(explanation.links, key=lambda link: (link.path_ps, link.busy_ps), default=None)
    if link is not None and link.path_ps:
        limit = explanation.bandwidth_on(link.name)
        message += f"; the link that the path spends most time on is {link.name} ({time(link.path_ps)}"
        message += f", {limit})" if limit else ")"
    return message + "."


def advice(explanation: Explanation, report: Report | None = None) -> str:
    """What to try next: what was simulated and saves most; the remedy in the algorithm, and the line that gives most.
    Where no algorithm can help, the machine.
    """
    if not explanation.by_category:
        return "Try a larger size."
    best = next(iter(best_of(explanation.advice)), None)
    sentences = [f"Try {_simulated(best, explanation)}"] if best is not None else []
    # A line that is all of the path can be nothing but all of its time.
    lines = (entry for entry in explanation.advice if entry.line and entry.way == SIMULATED)
    line = next(lines, None) if len(explanation.steps) > 1 else None
    if report is not None and report.percent_of_bound is not None and report.percent_of_bound >= NEAR:
        sentences.append(f"no algorithm is faster on this machine than {time((report.bound_ns or 0) * 1000)}")
    else:
        remedy = REMEDIES.get(next(iter(explanation.by_category)))
        if remedy is not None:
            sentences.append(f"in the algorithm, {remedy}" if sentences else f"Try {remedy}")
        if line is not None:
            sentences.append(f"{line.what}: {gain(line, explanation)} ({line.way})")
    return "; ".join(sentences or ["No change that was simulated helps"]) + "."


def _simulated(entry: Advice, explanation: Explanation) -> str:
    return f"{entry.what}: {gain(entry, explanation)}, {time(entry.latency_ps or 0)} ({entry.way})"


def of_sweep(reports: Sequence[Report], explanations: Iterable[tuple[str, Explanation]]) -> list[str]:
    """The sentences of a sweep of algorithms."""
    right = [report for report in reports if report.right]
    if not right:
        return [fastest(reports)]
    largest = max(report.bytes for report in right)
    best = min((r for r in right if r.bytes == largest), key=lambda report: report.latency_ns)
    return first_lines(fastest(reports), best, dict(explanations).get(best.algorithm))


def first_lines(fastest: str, best: Report, explanation: Explanation | None) -> list[str]:
    """The fastest; how far it is from the bound, and why; what to try."""
    if explanation is None:
        return [fastest, distance(best)]
    return [fastest, f"{distance(best)} {because(explanation)}", advice(explanation, best)]
