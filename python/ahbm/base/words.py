"""Lists and tables in words, for everything that prints."""

from __future__ import annotations

import re
from collections.abc import Sequence

NOT_TIGHTEST = "perhaps not the tightest"
"""What is said of a bound where a tighter one may exist."""

IDLE = "changes nothing"
"""End of a note on a choice without effect."""


def span(ranks: list[int]) -> str:
    """Ascending ranks in few words: `rank 3`, `ranks 0-2, 5`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def slug(name: str, nameless: str) -> str:
    """A name as part of a file's name; `nameless` where nothing of it is left."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:80].strip("._") or nameless


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells as lines: the first and the last column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = []
    for line in lines:
        cells = [
            cell.ljust(width) if at in (0, len(line) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.append("  ".join(cells).rstrip())
    return out
