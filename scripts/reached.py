"""Writes the table of docs/reached.md: how near packaged algorithms get to the bound of every packaged machine.

`python scripts/reached.py` writes it, `--check MACHINE ...` compares the rows of some machines and writes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import ahbm
from ahbm.base import packaged
from ahbm.choice.configured import candidates
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError
from ahbm.source.synthesis import synthesize

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reached.md"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
BYTES = 64 << 20
"""Of one rank's whole array."""
FEW = 16
"""Ranks up to which every algorithm runs; among more of them, the configured candidates alone."""
SCHEDULED = 64
"""Ranks up to which `auto` makes the schedule; for more, the method that is best on grids."""


def best(emulator: Emulator, topology: str, collective: str) -> tuple[float, str]:
    """The greatest share of the bound in percent, and by what."""
    ranks = emulator.machine.sips
    names = emulator.algorithms(collective) if ranks <= FEW else candidates(emulator, collective, BYTES, ranks)
    found = [(0.0, "-")]
    for name in names:
        try:
            report = ahbm.run(collective, name, topology, bytes_per_rank=BYTES, data=False)
        except AhbmError:
            continue
        found.append((report.percent_of_bound or 0.0, name))
    for method in () if emulator.machine.protocols else _methods(collective, ranks):
        try:
            made = synthesize(collective, topology=topology, size=BYTES, method=method)
        except AhbmError:
            continue
        bound_us = made.engines_bound[0] if made.engines_bound else made.bound_us
        # A schedule runs in its time where links have DMA channels of their own.
        plain = made.matches and made.engines_bound is None
        time_us = made.time_us if plain else made.run(data=False).time_ps / 1e6
        found.append((100 * bound_us / time_us, f"synth {made.schedule.method}"))
    return max(found, key=lambda one: one[0])


def _methods(collective: str, ranks: int) -> tuple[str, ...]:
    """The methods that are tried: `auto` tries the exact ones up to 32 ranks only."""
    if ranks > SCHEDULED:
        return ("trees",) if collective == "all_reduce" else ("dimensions",)
    return ("auto", "arborescences") if collective == "broadcast" else ("auto",)


def row(topology: str) -> str:
    """The line of a machine."""
    emulator = Emulator.load(topology, packaged.CCL)  # whatever folder this runs in
    cells = [best(emulator, topology, collective) for collective in COLLECTIVES]
    return f"| `{topology}` | " + " | ".join(f"{percent:.0f} {name}" for percent, name in cells) + " |"


def main(arguments: list[str]) -> int:
    """Exit code: 1 where a row differs."""
    text = PAGE.read_text(encoding="utf-8")
    if arguments[:1] == ["--check"]:
        differing = [line for name in arguments[1:] if (line := row(name)) not in text.splitlines()]
        print("\n".join(differing) or "as on the page")
        return int(bool(differing))
    machines = sorted(path.stem for path in packaged.TOPOLOGIES.glob("*.yaml"))
    head = f"| machine | {' | '.join(COLLECTIVES)} |\n|{'---|' * (len(COLLECTIVES) + 1)}\n"
    rows = []
    for name in machines:
        rows.append(row(name))
        print(rows[-1], flush=True)
    start, end = text.index("| machine |"), text.index("\n\n", text.index("| machine |"))
    PAGE.write_text(text[:start] + head + "\n".join(rows) + text[end:], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
