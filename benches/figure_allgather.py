"""All-gather bandwidth against chunk size, 1 KiB to 1 GiB, on an 8 x 8 and a 4 x 4 x 4 mesh: links of 50 GiB/s, 500 ns.

`python benches/figure_allgather.py -o DIR` writes allgather.csv and, with altair and vl-convert-python (the extra
`report`), allgather.svg and allgather.png. Bandwidth is NPUs times chunk over completion time; the bound is that of the
certificate, latency included. `ring` goes one way round in the order of the ranks' cycle, `direct` sends every chunk to
every NPU on its own.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ahbm.synthesis import synthesize

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
METHODS = {"synthesized": "greedy", "ring": "one_way_ring", "direct": "direct"}
FIELDS = ("network", "algorithm", "chunk_bytes", "gbs")
NPUS = 64
TICKS = {1 << 10: "1 Ki", 1 << 15: "32 Ki", 1 << 20: "1 Mi", 1 << 25: "32 Mi", 1 << 30: "1 Gi"}


def rows() -> Iterator[dict[str, Any]]:
    for network, shape in NETWORKS.items():
        machine = {**shape, "system.sips.count": NPUS, "system.sips.link.bandwidth_gbs": GIBPS}
        for chunk in (1 << power for power in range(10, 31)):
            for name, method in METHODS.items():
                found = synthesize(
                    "all_gather", topology="npu_ring_8", overrides=machine, chunk_bytes=chunk, method=method
                )
                total = NPUS * chunk / 1000
                yield dict(zip(FIELDS, (network, name, chunk, round(total / found.time_us, 4)), strict=True))
                if method == "greedy":
                    yield dict(zip(FIELDS, (network, "bound", chunk, round(total / found.bound_us, 4)), strict=True))


def draw(table: list[dict[str, Any]], folder: Path) -> None:
    import altair as alt

    order = ["bound", *METHODS]
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
    table = list(rows())
    with (folder / "allgather.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, FIELDS)
        writer.writeheader()
        writer.writerows(table)
    for row in table:
        if row["chunk_bytes"] == 1 << 30:
            print(f"{row['network']:20} {row['algorithm']:12} {row['gbs']:8.2f} GB/s at 1 GiB")
    draw(table, folder)


if __name__ == "__main__":
    main()
