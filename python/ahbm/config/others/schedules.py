"""Schedules of TACOS as the networks that they were made for: every link with its latency and bandwidth."""

from __future__ import annotations

import csv
from collections.abc import Mapping

from ahbm.base import foreign
from ahbm.config.others.described import MOST_CHARACTERS, MOST_ELEMENTS, Described, custom, edge, number, whole, wrong
from ahbm.config.others.dimensions import GB

COLUMNS = ("SrcID", "DestID", "Latency (ns)", "Bandwidth (GB/s)")


def tacos(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    del asked
    lines = text.splitlines()
    if len(text) > MOST_CHARACTERS * 16 or len(lines) > MOST_ELEMENTS:
        raise wrong("the schedule is longer than a network needs", origin)
    count, edges, is_link = 0, [], False
    for at, line in enumerate(lines, 1):
        if len(line) > MOST_CHARACTERS:
            raise wrong("a line is too long", origin, line=at)
        cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        if cells[:1] == ["NPUs Count"]:
            count = whole((cells[1:] or [""])[0], "NPUs Count", origin, 1)
        elif tuple(cells[:4]) == COLUMNS:
            is_link = True
        elif is_link and len(cells) >= 4:
            start, end = (whole(cell, "a link's end", origin, 0, max(0, count - 1)) for cell in cells[:2])
            gbs = number(cells[3], "Bandwidth (GB/s)", origin, 1e-9, 1e9) * GB
            edges.append(edge(start, end, gbs, number(cells[2], "Latency (ns)", origin, 0, 1e9)))
    if not count or not edges:
        raise wrong(f"NPUs Count, or links under {','.join(COLUMNS)}, are missing", origin)
    assumed = ["its GB/s are of 2^30 bytes", "NPUs whose inside costs nothing", "links without a line are none"]
    return Described(foreign.TACOS.what, "npu_ring_8", custom(count, 0, edges), assumed)
