"""All-gather bandwidth against chunk size, 1 KiB to 1 GiB, on an 8 x 8 and a 4 x 4 x 4 mesh: links of 50 GiB/s, 500 ns.

`python benches/figure_allgather.py -o DIR` writes allgather.csv and, with altair and vl-convert-python (the extra
`report`), allgather.svg and allgather.png. Bandwidth is NPUs times chunk over completion time; the bound is that of the
certificate, latency included. `ring` goes one way round a cycle of neighbours where there is one, `direct` sends every
chunk to every NPU on its own, over balanced ways. Two baselines know less of the network: `direct, XY` is a plan whose
messages take the emulator's routes, column by column and then row by row; `ring, in step` goes round in the order of
the ranks, stored and forwarded, and every step waits for the longest way.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ahbm.runs import plans
from ahbm.source.synth import WHOLE
from ahbm.source.synthesis import synthesize

GIBPS = 53.687_091_2
NETWORKS = {
    "2-D mesh 8 x 8": {"system.sips.topology": "mesh_2d_no_wrap", "system.sips.w": 8, "system.sips.h": 8},
    "3-D mesh 4 x 4 x 4": {
        "system.sips.topology": "mesh_3d",
        "system.sips.w": 4,
        "system.sips.h": 4,
        "system.sips.d": 4,
    },
}
LATENCY_NS = 500
METHODS = {"synthesized": "greedy", "ring": "one_way_ring", "direct": "direct"}
BASELINES = ("direct, XY", "ring, in step")
FIELDS = ("network", "algorithm", "chunk_bytes", "gbs")
NPUS = 64
POWERS = range(10, 31)
"""Of 2: the sizes of a chunk."""
TICKS = {1 << 10: "1 Ki", 1 << 15: "32 Ki", 1 << 20: "1 Mi", 1 << 25: "32 Mi", 1 << 30: "1 Gi"}


def direct_plan() -> str:
    """An MSCCL file: rank r has a thread block for each distance k, to r + k and from r - k."""

    def step(number: int, kind: str, chunk: int) -> str:
        place = f'srcbuf="o" srcoff="{chunk}" dstbuf="o" dstoff="{chunk}" cnt="1"'
        return f'<step s="{number}" type="{kind}" {place} depid="-1" deps="-1" hasdep="0"/>'

    gpus = []
    for rank in range(NPUS):
        blocks = []
        for distance in range(1, NPUS):
            to, source = (rank + distance) % NPUS, (rank - distance) % NPUS
            steps = step(0, "s", rank) + step(1, "r", source)
            blocks.append(f'<tb id="{distance - 1}" send="{to}" recv="{source}" chan="0">{steps}</tb>')
        gpus.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="{NPUS}" s_chunks="0">{"".join(blocks)}</gpu>')
    head = f'name="direct" nchunksperloop="{NPUS}" nchannels="1" proto="Simple" ngpus="{NPUS}" coll="allgather"'
    return f'<algo {head} inplace="1" outofplace="0" minBytes="0" maxBytes="0">{"".join(gpus)}</algo>'


def baselines(machine: dict[str, Any], extents: list[int], chunk: int, plan: Path) -> Iterator[tuple[str, float]]:
    """Name and ns of what knows less of the network."""
    report = plans.run(
        plan,
        "npu_ring_8",
        plans.Options(slots=None, slice_bytes=WHOLE),
        bytes_per_rank=NPUS * chunk,
        overrides={**machine, "defaults.buffer_kind": "hbm", "cube.memory_map.hbm_total_gb": 256},
        data=False,
    )
    yield BASELINES[0], report.latency_ns
    longest = sum(extent - 1 for extent in extents)
    yield BASELINES[1], (NPUS - 1) * longest * (chunk / GIBPS + LATENCY_NS)


def rows(plan: Path) -> Iterator[dict[str, Any]]:
    for network, shape in NETWORKS.items():
        machine = {
            **shape,
            "system.sips.count": NPUS,
            "system.sips.link.bandwidth_gbs": GIBPS,
            "system.sips.link.latency_ns": LATENCY_NS,
        }
        extents = [value for value in shape.values() if isinstance(value, int)]
        for chunk in (1 << power for power in POWERS):
            for name, method in METHODS.items():
                found = synthesize(
                    "all_gather", topology="npu_ring_8", overrides=machine, chunk_bytes=chunk, method=method
                )
                total = NPUS * chunk / 1000
                yield dict(zip(FIELDS, (network, name, chunk, round(total / found.time_us, 4)), strict=True))
                if method == "greedy":
                    yield dict(zip(FIELDS, (network, "bound", chunk, round(total / found.bound_us, 4)), strict=True))
            for name, ns in baselines(machine, extents, chunk, plan):
                yield dict(zip(FIELDS, (network, name, chunk, round(NPUS * chunk / ns, 4)), strict=True))


def draw(table: list[dict[str, Any]], folder: Path) -> None:
    import altair as alt

    order = ["bound", *METHODS, *BASELINES]
    names = f"{json.dumps(TICKS)}[datum.value]"
    chart = (
        alt.Chart(alt.Data(values=table))
        .mark_line(point={"size": 18})
        .encode(
            x=alt.X("chunk_bytes:Q", title="chunk (B)")
            .scale(type="log", base=2)
            .axis(values=list(TICKS), labelExpr=names),
            y=alt.Y("gbs:Q", title="all-gather bandwidth (GB/s)").scale(type="log"),
            color=alt.Color("algorithm:N", sort=order, title=None),
            strokeDash=alt.condition("datum.algorithm == 'bound'", alt.value([5, 4]), alt.value([1, 0])),
        )
        .properties(width=380, height=300)
        .facet(column=alt.Column("network:N", title=None))
    )
    chart.save(folder / "allgather.svg")
    chart.save(folder / "allgather.png", scale_factor=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the files")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        plan = Path(scratch) / "direct.xml"
        plan.write_text(direct_plan(), encoding="utf-8")
        table = list(rows(plan))
    with (folder / "allgather.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, FIELDS)
        writer.writeheader()
        writer.writerows(table)
    for row in table:
        if row["chunk_bytes"] == 1 << POWERS[-1]:
            print(f"{row['network']:20} {row['algorithm']:13} {row['gbs']:8.2f} GB/s at {row['chunk_bytes']:,} B")
    draw(table, folder)


if __name__ == "__main__":
    main()
