"""Lists and tables in words, for everything that prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import floor, log10

NOT_TIGHTEST = "perhaps not the tightest"
"""What is said of a bound where a tighter one may exist."""

IDLE = "changes nothing"
"""End of a note on a choice without effect."""


_COUNTERS = re.compile(r"\b(waiting for|wait|signal) counter\b")


def in_words(text: str) -> str:
    """A category, a kind of step or an operation in words of the field; JSON keeps the names of the core.

    >>> in_words("delay 18112848 ps"), in_words("wait counter, delay"), in_words("waiting for counter")
    ('compute 18,112.848 ns', 'wait event, compute', 'waiting for event')
    """
    text = re.sub(r"\bdelay ([0-9]+) ps\b", lambda found: f"compute {int(found[1]) / 1000:,.3f} ns", text)
    return _COUNTERS.sub(r"\1 event", re.sub(r"\bdelay\b", "compute", text))


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


_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_POWERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def lasts(ns: float) -> str:
    """So many nanoseconds, in three digits and the unit that fits.

    >>> lasts(318_000_000), lasts(10_804), lasts(0.063)
    ('318 ms', '10.8 us', '0.0630 ns')
    """
    return _scaled(ns, _UNITS) if ns else "0 ns"


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """A number but 0 in three digits, in the unit that fits: the last one where all others are too large."""
    size, unit = next((one for one in units if abs(value) >= 0.9995 * one[0]), units[-1])
    scaled = float(f"{value / size:.2e}")
    return f"{scaled:,.{max(2 - floor(log10(abs(scaled))), 0)}f} {unit}".rstrip()


def number(value: float) -> str:
    """A large number in three digits.

    >>> number(1_650_000), number(269_012), number(38.4)
    ('1.65 M', '269 k', '38.4')
    """
    return _scaled(value, _POWERS) if value else "0"


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
