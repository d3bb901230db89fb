"""Time of one choice from Python: the native selectors, NCCL's model, and what a rank's call costs with a selector.

    python benches/selecting.py

Nanoseconds of processor time for each choice: the median and the largest of 21 rounds. `cargo bench -p ahbm-selection`
has those of the native code alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ahbm.selectors import Call, CostTable, NcclModel, Range, Ranges, Static, Tree
from ahbm.selectors.asking import Instance
from ahbm.selectors.protocol import UNKNOWN, Comm

CALLS = 20_000
ROUNDS = 21
DEPTH = 8
NAMES = ("ring_allreduce", "tree_allreduce")


def tree() -> Tree:
    """255 questions, of the size, the ranks and a fact about the machine in turn."""
    inner, count = (1 << DEPTH) - 1, (2 << DEPTH) - 1
    return Tree(
        ["log2_bytes", "ranks", 12.0],
        NAMES,
        feature=[at % 3 if at < inner else -2 for at in range(count)],
        threshold=[float(at * 7 % 30) for at in range(count)],
        left=[2 * at + 1 if at < inner else -1 for at in range(count)],
        right=[2 * at + 2 if at < inner else -1 for at in range(count)],
        value=[at % 2 for at in range(count)],
    )


def ladder() -> Ranges:
    """64 ranges."""
    return Ranges(
        [Range("all_reduce", NAMES[at % 2], min_bytes=at << 16, max_bytes=(at + 1 << 16) - 1) for at in range(64)]
    )


def nanoseconds(work: Callable[[Call], object]) -> tuple[float, float]:
    """Median and maximum over the rounds, for each call."""
    calls = [Call("all_reduce", n * 7919 % (4 << 20), 2 + n % 63) for n in range(CALLS)]
    took = []
    for _ in range(ROUNDS):
        begin = time.process_time_ns()
        for call in calls:
            work(call)
        took.append((time.process_time_ns() - begin) / CALLS)
    return sorted(took)[ROUNDS // 2], max(took)


def main() -> None:
    table = CostTable(NAMES, [UNKNOWN] * 2)
    model, always, learnt, rules = NcclModel({"bus_gbs": 370.0}), Static({"all_reduce": NAMES[0]}), tree(), ladder()
    instance = Instance(learnt, Comm(8))
    rows: dict[str, Callable[[Call], object]] = {
        "loop alone": lambda call: None,
        "static": lambda call: always.get_coll_info(call, table),
        "tree of 255 questions": lambda call: learnt.get_coll_info(call, table),
        "64 ranges": lambda call: rules.get_coll_info(call, table),
        "NCCL's model": lambda call: model.get_coll_info(call, table.copy()),
        "tree, asked by a rank": lambda call: instance.ask(call, table.copy()),
    }
    for name, work in rows.items():
        median, most = nanoseconds(work)
        print(f"{name:<24} {median:>9,.0f} ns  at most {most:>9,.0f} ns")


if __name__ == "__main__":
    main()
