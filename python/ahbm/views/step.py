"""The page of a training step: that of its recording, and first what the answer at the script's end says.

`python -m ahbm.views.step PAGE` reads the facts of `Facts` as JSON from standard input. A process of its own draws the
page, because torch is changed in the script's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ahbm.base.words import lasts
from ahbm.views.page import Page, Section


@dataclass(frozen=True)
class Facts:
    """What is drawn."""

    job: str
    """Prefix of the recording's files."""
    answer: Mapping[str, Any]
    """`Answer.to_json` of `ahbm.torch.device.answer`."""
    text: str
    """The answer's first sentence."""
    capacity: int
    """Bytes of a device's memory."""
    topology: str | None = None
    ccl: str | None = None
    overrides: Mapping[str, object] | None = None
    factors: Sequence[Sequence[Any]] = ()
    """Kernels that take so many times as long, by a text in their names."""


def sections(facts: Facts) -> list[Section]:
    """What the answer says, as tables."""
    answer = facts.answer
    step = answer["step_ns"]
    made = [
        Section(
            "help",
            "What would help",
            "The step of a machine or with algorithms that are changed in one respect.",
            ("change", "a step", "saves (%)"),
            [
                [
                    f"{change['what']}",
                    lasts(change["step_ns"]),
                    f"{100 * (1 - change['step_ns'] / step):.1f}" if step else "-",
                ]
                for change in answer["changes"]
            ],
        ),
        Section(
            "lines",
            "Communication by line of the script",
            "Per step, as means over ranks. Exposed is time in which a rank does not compute and what it does next "
            "waits for the call.",
            ("line", "collective", "calls", "takes", "exposed", "by"),
            [
                [
                    row["line"],
                    row["collective"],
                    f"{row['calls']:g}",
                    lasts(row["time_ns"]),
                    lasts(row["exposed_ns"]),
                    row["algorithm"],
                ]
                for row in answer["lines"]
            ],
        ),
        Section(
            "memory",
            "Memory",
            "The most that the script's tensors held at a time, and its share of the device's memory.",
            ("rank", "GiB", "%"),
            [
                [f"{rank}", f"{peak / 2**30:.3f}", f"{100 * peak / facts.capacity:.2f}"]
                for rank, peak in enumerate(answer["memory_peak_bytes"])
            ],
        ),
    ]
    better = [choice for choice in (answer["best"] or {}).get("choices", []) if choice["best"] != choice["algorithm"]]
    if better:
        rows = [
            [choice["collective"], f"{choice['bytes']:,}", f"{choice['ranks']}", choice["algorithm"], choice["best"]]
            for choice in better
        ]
        text = "Calls for which another algorithm is quicker."
        columns = ("collective", "bytes", "ranks", "by", "better")
        made.insert(1, Section("better", "Better algorithms", text, columns, rows))
    return made


def page(facts: Facts) -> Page:
    """The page. Raises as `ahbm.open(...).run`."""
    from ahbm.job.open import open_
    from ahbm.job.replay import JobReport
    from ahbm.views import jobs

    factors = [(name, factor) for name, factor in facts.factors]
    where = {"topology": facts.topology, "ccl": facts.ccl, "overrides": facts.overrides}
    ran = open_(facts.job, **where, factors=factors, kind="job").run()
    assert isinstance(ran, JobReport)
    drawn = jobs.page(ran)
    # What would help is told of a step, by the answer.
    rest = [section for section in drawn.sections if section.key != "help"]
    return replace(drawn, sections=[*sections(facts), *rest], headline=[facts.text, *_headline(facts.answer)])


def _headline(answer: Mapping[str, Any]) -> list[str]:
    """The change that helps most, and what the sections of the recording show. No time but a step's."""
    step, text = answer["step_ns"], list[str]()
    best = min(answer["changes"], key=lambda change: (change["step_ns"], change["what"]), default=None)
    if best is not None and best["step_ns"] < step:
        saves = f"-{100 * (1 - best['step_ns'] / step):.1f} %, {lasts(best['step_ns'])}"
        text.append(f"Try {best['what']}: {saves} (simulated again).")
    if answer["steps"] > 1:
        text.append(f"The sections from Ranks on show the recording, which is {answer['steps']} steps.")
    return text


if __name__ == "__main__":
    page(Facts(**json.load(sys.stdin))).write(Path(sys.argv[1]))
