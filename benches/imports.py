"""Imports: reading, lowering, checking and converting a ring all-reduce, in processor time.

`--ranks` is the size of the MSCCL-IR ring; the execution plan is the ring of `--plan-ranks`, about 30 MB for 190.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ahbm._core import convert_plan, read_plan
from ahbm.config.topology import load_machine

T = TypeVar("T")


def ring(ranks: int) -> str:
    """The fused ring all-reduce in MSCCL-IR."""
    kinds = ["s", *["rrs"] * (ranks - 2), "rrcs", *["rcs"] * (ranks - 2), "r"]
    lines = [
        f'<algo name="ring" proto="Simple" nchannels="1" nchunksperloop="{ranks}" ngpus="{ranks}" coll="allreduce" '
        'inplace="1" outofplace="0" minBytes="0" maxBytes="0">'
    ]
    for rank in range(ranks):
        lines.append(f'<gpu id="{rank}" i_chunks="{ranks}" o_chunks="{ranks}" s_chunks="0">')
        lines.append(f'<tb id="0" send="{(rank + 1) % ranks}" recv="{(rank - 1) % ranks}" chan="0">')
        for at, kind in enumerate(kinds):
            chunk = (rank - at) % ranks
            lines.append(
                f'<step s="{at}" type="{kind}" srcbuf="i" srcoff="{chunk}" dstbuf="i" dstoff="{chunk}" cnt="1" '
                'depid="-1" deps="-1" hasdep="0"/>'
            )
        lines.append("</tb></gpu>")
    return "\n".join([*lines, "</algo>"])


def best(work: Callable[[], T], repeat: int) -> tuple[T, float]:
    """The result, and the least processor time in milliseconds."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return result, 1000 * min(times)


def report(path: Path, ranks: int, repeat: int) -> None:
    """Prints what reading and checking the plan at `path` takes."""
    machine = load_machine("npu_ring_8", {"system.sips.count": ranks})
    name = f"ring of {ranks}, {path.suffix} of {path.stat().st_size / 1e6:.1f} MB"
    _, ms = best(lambda: read_plan(str(path)).lower(machine, nbytes=ranks * 1024 * 2, dtype="f16"), repeat)
    print(f"{name}: read, lower, lint {ms:.0f} ms")
    (verdict, *_), ms = best(lambda: read_plan(str(path)).check(), repeat)
    print(f"{name}: read, check {ms:.0f} ms, {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=128)
    parser.add_argument("--plan-ranks", type=int, default=190)
    parser.add_argument("--trace-ranks", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for ranks in {options.ranks, options.plan_ranks, options.trace_ranks}:
            (folder / f"{ranks}.xml").write_text(ring(ranks), encoding="utf-8")
        report(folder / f"{options.ranks}.xml", options.ranks, options.repeat)
        plan, trace = folder / "plan.json", folder / "trace.et"
        _, ms = best(lambda: convert_plan(folder / f"{options.plan_ranks}.xml", plan), 1)
        print(f"ring of {options.plan_ranks}, .xml to .json: {ms:.0f} ms")
        report(plan, options.plan_ranks, options.repeat)
        files, ms = best(lambda: convert_plan(folder / f"{options.trace_ranks}.xml", trace), options.repeat)
        size = sum(file.stat().st_size for file in files)
        print(f"ring of {options.trace_ranks}, .xml to .et of {size / 1e6:.1f} MB: {ms:.0f} ms")


if __name__ == "__main__":
    main()
