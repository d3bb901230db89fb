"""How long MSCCLang programs take from their first statement to their XML.

    python benches/dsl_msccl.py [RANKS…]

Prints, per number of ranks, the best of three runs of a ring all-reduce in milliseconds: statements, lowering and text.
"""

from __future__ import annotations

import sys
import time

from ahbm.dsl.msccl import Buffer, MSCCLProgram, chunk
from ahbm.dsl.msccl.collectives import AllReduce
from ahbm.dsl.msccl.topologies import fully_connected


def ring(ranks: int) -> tuple[float, float, int]:
    """Milliseconds of the statements and of the lowering, and characters of the text."""
    start = time.perf_counter()
    with MSCCLProgram("ring", fully_connected(ranks), AllReduce(ranks, ranks, True), 1) as program:
        for index in range(ranks):
            c = chunk((index + 1) % ranks, Buffer.input, index)
            for hop in range(2, ranks + 1):
                c = chunk((index + hop) % ranks, Buffer.input, index).reduce(c)
            for hop in range(1, ranks):
                c = c.copy((index + hop) % ranks, Buffer.input, index)
    written = time.perf_counter()
    text = program.generate_xml()
    return (written - start) * 1e3, (time.perf_counter() - written) * 1e3, len(text)


def main() -> None:
    """Prints the table."""
    print(f"{'ranks':>6} {'statements ms':>14} {'lowering ms':>12} {'total ms':>9} {'MB':>6}")
    for ranks in [int(word) for word in sys.argv[1:]] or [8, 16, 32, 64, 128, 256]:
        said, lowered, size = min((ring(ranks) for _ in range(3)), key=lambda row: row[0] + row[1])
        print(f"{ranks:>6} {said:>14.1f} {lowered:>12.1f} {said + lowered:>9.1f} {size / 1e6:>6.1f}")


if __name__ == "__main__":
    main()
