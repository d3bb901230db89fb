"""The measurements that the example tuner plugin's `optimize_config.py` makes a configuration of.

Columns: `collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff,cost_metric,bandwidth_gbps,
latency_us`; the least cost of a size wins. That script joins sizes in five fixed ranges; here each size is a range of
its own. Source: `plugins/tuner/example/scripts` of NCCL.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ahbm.base.rules import ANY, Rule, Rules, Span, merged, spans
from ahbm.choose.formats.format import (
    Format,
    Read,
    collective_of,
    first_rows,
    malformed,
    number,
    passed_over,
    unwritable,
)
from ahbm.choose.names import ALGORITHMS, NCCL, PROTOCOLS
from ahbm.choose.rules import MAX_RULES, bounded

COLUMNS = (
    "collective",
    "size_bytes",
    "algorithm",
    "protocol",
    "channels",
    "nodes",
    "ranks",
    "pipeOps",
    "regBuff",
    "cost_metric",
    "bandwidth_gbps",
    "latency_us",
)


@dataclass(frozen=True)
class Measured:
    """One row."""

    collective: str
    nbytes: int
    algorithm: str
    """NCCL's name."""
    protocol: str
    channels: int
    ranks: int
    latency_us: float
    nodes: int = 1
    line: int = 0
    cost: float | None = None
    """The latency without another."""


def text(measured: Sequence[Measured]) -> str:
    """The file of measurements; bandwidths are bytes of one rank's array by time, in 1e9 B/s."""
    lines = [",".join(COLUMNS)]
    for row in measured:
        name = NCCL.collectives[row.collective]
        bandwidth = row.nbytes / row.latency_us / 1000 if row.latency_us else 0.0
        lines.append(
            f"{name},{row.nbytes},{row.algorithm},{row.protocol},{row.channels},{row.nodes},{row.ranks},-1,-1,"
            f"{row.latency_us:.6f},{bandwidth:.6f},{row.latency_us:.6f}"
        )
    return "\n".join(lines) + "\n"


def rows(content: str, origin: str) -> Iterator[Measured]:
    """The rows of a file. Raises FormatError (AHBM-F190)."""
    header: list[str] | None = None
    for line, row in enumerate(content.split("\n"), 1):
        if not row.strip() or row.startswith("#"):
            continue
        fields = [part.strip() for part in row.split(",")]
        if header is None:
            if missing := [name for name in COLUMNS[:10] if name not in fields]:
                raise malformed(origin, line, f"no column {', '.join(missing)}", ",".join(COLUMNS))
            header = fields
            continue
        if len(fields) != len(header):
            raise malformed(origin, line, f"a line of {len(fields)} fields below a head of {len(header)}")
        yield _measured(dict(zip(header, fields, strict=True)), origin, line)


def _measured(row: Mapping[str, str], origin: str, line: int) -> Measured:
    collective = collective_of(NCCL, row["collective"])
    if collective is None or row["algorithm"] not in ALGORITHMS or row["protocol"] not in PROTOCOLS:
        message = ", ".join(row[key][:40] for key in ("collective", "algorithm", "protocol"))
        raise malformed(origin, line, f"{message}: a collective, algorithm or protocol that NCCL does not have")
    try:
        cost = float(row["cost_metric"])
    except ValueError:
        cost = math.nan
    if not math.isfinite(cost) or cost < 0:
        raise malformed(origin, line, f"cost_metric is {row['cost_metric'][:40]!r}, which is no number from 0 on")
    size, nodes, ranks = (number(row[key], origin, line, key) for key in ("size_bytes", "nodes", "ranks"))
    if not nodes or not ranks:
        raise malformed(origin, line, "no nodes or no ranks")
    channels = -1 if row["channels"] == "-1" else number(row["channels"], origin, line, "channels")
    return Measured(
        collective, size, row["algorithm"], row["protocol"], channels, ranks, cost, nodes, line=line, cost=cost
    )


def read(content: str, origin: str) -> Read:
    """The winners of the sizes, each from the border with the size below (their geometric mean) to that above."""
    groups: dict[tuple[str, int, int], dict[int, Measured]] = {}
    for at, row in enumerate(rows(content, origin)):
        if at >= 64 * MAX_RULES:
            raise malformed(origin, row.line, f"more than {64 * MAX_RULES} measurements")
        sizes = groups.setdefault((row.collective, row.ranks, row.nodes), {})
        if row.nbytes not in sizes or (row.cost or 0) < (sizes[row.nbytes].cost or 0):
            sizes[row.nbytes] = row
    rules = bounded(merged(_winners(groups)), origin)
    return Read(FORMAT.name, NCCL, rules, tuple(passed_over(NCCL, rules, origin)[1]))


def _winners(groups: Mapping[tuple[str, int, int], Mapping[int, Measured]]) -> Iterator[Rule]:
    for (collective, ranks, nodes), sizes in groups.items():
        ordered = sorted(sizes)
        for size, span in zip(ordered, spans(ordered, ranks), strict=True):
            won = sizes[size]
            yield Rule(
                collective,
                won.algorithm,
                span,
                Span(ranks, ranks),
                Span(nodes, nodes),
                protocol=won.protocol,
                channels=None if won.channels < 1 else won.channels,
                line=won.line,
            )


def write(rules: Rules, notes: Sequence[str] = ()) -> str:
    """Raises UnsupportedError (AHBM-U292): rules are no measurements; `text` writes those."""
    raise unwritable("a sweep of NCCL's tuner", next(iter(rules), Rule("all_reduce", "ring", ANY)), "rules")


FORMAT = Format("nccl-sweep", NCCL, "nccl_sweep.csv", lambda text: "size_bytes" in first_rows(text), read, write)
