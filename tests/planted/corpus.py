"""The whole corpus, and how much of it the checks find."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import files, kernels
from .case import Case

CLASSES = (
    "deadlock", "race", "stale read", "double count", "missing rank", "off-by-one chunk", "credit exhaustion",
    "cross-call reuse", "divergence",
)  # fmt: skip
SOURCES = ("kernel", "xml", "plan")


def cases(folder: Path) -> list[Case]:
    """Every program, its files written into `folder`."""
    return [*kernels.cases(folder), *files.cases(folder)]


def table(results: Sequence[tuple[Case, bool]]) -> str:
    """Class by source, as `found/planted`, in Markdown; the last row counts clean programs that were reported."""
    lines = ["| class | " + " | ".join(SOURCES) + " | found | missed |", "|---|" + "---|" * (len(SOURCES) + 2)]

    def row(name: str, chosen: Sequence[tuple[Case, bool]]) -> str:
        cells = []
        for source in SOURCES:
            here = [found for case, found in chosen if case.source == source]
            cells.append(f"{sum(here)}/{len(here)}" if here else "")
        found = sum(found for _, found in chosen)
        return f"| {name} | " + " | ".join(cells) + f" | {found}/{len(chosen)} | {len(chosen) - found} |"

    for name in CLASSES:
        lines.append(row(name, [(case, found) for case, found in results if case.bug == name]))
    lines.append(row("all bugs", [(case, found) for case, found in results if case.bug is not None]))
    clean = [(case, found) for case, found in results if case.bug is None]
    lines.append(row("clean programs reported", clean).rsplit("|", 2)[0] + "| |")
    return "\n".join(lines)
