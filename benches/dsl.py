"""Programs of other languages, from the first statement to the plan: ours, and what their own compilers took.

    python benches/dsl.py [RANKS ...]

The program is a ring all-reduce with one channel and one instance; plans are checked as far as they are by default.
Recorded figures are the best of three runs on two shared cores, imports not counted.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from ahbm.dsl import msccl as lang
from ahbm.dsl import mscclpp as pp
from ahbm.dsl.judgement import RIGHT
from ahbm.dsl.msccl.collectives import AllReduce
from ahbm.dsl.msccl.topologies import fully_connected
from ahbm.errors import ProgramWarning


@dataclass(frozen=True)
class Language:
    """A language: its ring all-reduce, what its own compiler took (ms by ranks), and what it may take here (ms)."""

    name: str
    ring: Callable[[int], object]
    upstream_ms: dict[int, float]
    limit_ms: dict[int, float]


def mscclpp_ring(n: int) -> None:
    """Lowers a ring of n ranks with n chunks and one thread block each."""
    with pp.CollectiveProgram("ring", pp.AllReduce(n, 1, True), n) as program:
        scratch = [pp.Buffer(rank, n) for rank in range(n)]
        up = [pp.MemoryChannel((rank + 1) % n, rank) for rank in range(n)]
        down = [pp.MemoryChannel((rank - 1) % n, rank) for rank in range(n)]
        for step in range(n - 1):
            for rank in range(n):
                k = (rank - step) % n
                data = pp.Rank(rank).get_input_buffer()
                up[rank].put(scratch[(rank + 1) % n][k : k + 1], data[k : k + 1], tb=0)
                up[rank].signal(tb=0, data_sync=pp.SyncType.before)
            for rank in range(n):
                k = (rank - 1 - step) % n
                down[rank].wait(tb=0, data_sync=pp.SyncType.after)
                data = pp.Rank(rank).get_input_buffer()
                pp.Rank(rank).reduce(data[k : k + 1], [scratch[rank][k : k + 1]], tb=0)
        for step in range(n - 1):
            for rank in range(n):
                k = (rank + 1 - step) % n
                far = pp.Rank((rank + 1) % n).get_input_buffer()
                up[rank].put(far[k : k + 1], pp.Rank(rank).get_input_buffer()[k : k + 1], tb=0)
                up[rank].signal(tb=0, data_sync=pp.SyncType.before)
            for rank in range(n):
                down[rank].wait(tb=0, data_sync=pp.SyncType.after)
        program.to_json()


def mscclang_ring(n: int) -> None:
    """Lowers a ring of n ranks with n chunks; the language places the thread blocks."""
    with lang.MSCCLProgram("ring", fully_connected(n), AllReduce(n, n, True), 1) as program:
        for index in range(n):
            moving = lang.chunk((index + 1) % n, lang.Buffer.input, index)
            for hop in range(2, n + 1):
                moving = lang.chunk((index + hop) % n, lang.Buffer.input, index).reduce(moving)
            for hop in range(1, n):
                moving = moving.copy((index + hop) % n, lang.Buffer.input, index)
        program.generate_xml()


LANGUAGES = (
    Language(
        "MSCCLang",
        mscclang_ring,
        {8: 29, 16: 78, 32: 377, 64: 1_454, 128: 9_527, 256: 80_398},
        {128: 250, 256: 1_000},
    ),
    Language(
        "MSCCL++ DSL",
        mscclpp_ring,
        {8: 55, 16: 198, 32: 852, 64: 6_121, 128: 41_498, 256: 200_000},
        {128: 1_000, 256: 4_500},
    ),
)


def measure(ring: Callable[[int], object], ranks: int) -> float:
    """The best of three, ms."""
    best = float("inf")
    for _ in range(3):
        RIGHT.clear()  # a plan is checked once
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ProgramWarning)
            begin = time.perf_counter()
            ring(ranks)
            best = min(best, time.perf_counter() - begin)
    return best * 1e3


def main(*arguments: str) -> int:
    """Prints a table; the number of figures over their limits."""
    over = 0
    for language in LANGUAGES:
        for ranks in [int(argument) for argument in arguments] or list(language.upstream_ms):
            took, theirs = measure(language.ring, ranks), language.upstream_ms.get(ranks)
            limit = language.limit_ms.get(ranks, float("inf"))
            over += took > limit
            known = f"own compiler {theirs:>9,.0f} ms, {theirs / took:5.0f} times as long" if theirs else ""
            message = f"  over the limit of {limit:,.0f} ms" if took > limit else ""
            print(f"{language.name:<12} {ranks:>4} ranks {took:>9,.1f} ms   {known}{message}")
    return over


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
