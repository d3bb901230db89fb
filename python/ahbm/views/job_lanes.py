"""A job's picture: of every rank what it computes, what of its communication is exposed, and its calls below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ahbm.base.collectives import COLLECTIVES
from ahbm.views import colors, workbench
from ahbm.views.lanes import JOINED, Ints, Slices, Tracks, merged, outside
from ahbm.views.words import time
from ahbm.views.workbench import Data, Lane, Texts

if TYPE_CHECKING:
    from ahbm.job.replay import JobReport
    from ahbm.runs.explanation import Explanation

GROUPS = {
    "compute": "#1aa37f",
    "host": "#a39414",
    "memory": "#d99a1c",
    "exposed communication": "#e0692a",
    "waiting for other ranks": "#7d6bb3",
}
"""Of a rank's own lane."""
MESSAGES = "#6fb7e0"


def of_job(report: JobReport, explanation: Explanation | None, title: str) -> dict[str, Any]:
    """The picture of a job. Raises BudgetError (AHBM-B122) for a job too long to show."""
    tracks = Tracks.of(report.replayed.tracks())
    latency = round(1000 * report.latency_ns)
    # By the position among all collectives: the same on every page.
    hues = [colors.SERIES[at % len(colors.SERIES)] for at in range(len(COLLECTIVES))]
    calls = dict(zip(COLLECTIVES, hues, strict=True)) | {"message": MESSAGES}
    data, texts = Data(title, latency, [*GROUPS.items(), *calls.items()]), Texts()
    names = [name for name, _ in data.groups]

    by_rank: dict[int, dict[str, list[int]]] = {}
    for track in np.unique(tracks.track).tolist():
        groups = tracks.groups(track)
        if len(groups) == 2:
            by_rank.setdefault(int(groups[0].removeprefix("rank ")), {}).setdefault(groups[1], []).append(track)

    arrived = np.zeros(int(tracks.message[tracks.part == JOINED].max(initial=-1)) + 1, np.int64)
    joined = tracks.part == JOINED
    np.maximum.at(arrived, tracks.message[joined], tracks.start[joined])
    collective = np.full(len(arrived), names.index("message"))
    for call, launch in enumerate(report.performed.order):
        if launch < len(collective) and report.calls[call].collective in names:
            collective[launch] = names.index(report.calls[call].collective)

    order = np.lexsort((tracks.start, tracks.track))
    bounds = np.searchsorted(tracks.track[order], np.arange(len(tracks.tracks) + 1))
    texts_of = texts.numbers(tracks, tracks.name, tracks.origin)

    def slices(track: int, lane: int, group: Ints | int) -> tuple[Slices, Ints]:
        here = order[bounds[track] : bounds[track + 1]]
        of = np.broadcast_to(group, here.shape) if isinstance(group, int) else group[here]
        lanes = np.full(len(here), lane)
        return Slices(lanes, tracks.start[here], tracks.end[here], of, texts_of[here]), here

    by_call = np.full(len(tracks.start), names.index("message"))
    by_call[joined] = collective[tracks.message[joined]]
    on_path = {stretch.rank for stretch in report.path}
    data.lanes.append(Lane("critical path", "path", path=True))
    if len(by_rank) < len(report.ranks):
        data.notes.append(
            f"{len(by_rank):,} of {len(report.ranks):,} ranks; each of the others does what one of these does"
        )
    ordered = sorted(by_rank, key=lambda rank: (rank not in on_path, rank))
    found: list[Slices] = []
    lane_of: dict[int, int] = {}
    own: dict[int, int] = {}
    for rank in ordered:
        parent = own[rank] = len(data.lanes)
        data.lanes.append(Lane(f"rank {rank}", "rank", path=rank in on_path))
        busy: list[Slices] = []
        communicated: list[tuple[Slices, Ints]] = []
        for name, rows in by_rank[rank].items():
            kind = name.partition(" (")[0]
            for track in rows:
                if kind in ("computing", "host", "memory"):
                    group = names.index("compute" if kind == "computing" else kind)
                    part, _ = slices(track, parent, group)
                    for earlier in busy:
                        part = outside(part, earlier)
                    busy.append(part)
                    if kind != "computing":
                        lane_of[track] = len(data.lanes)
                        data.lanes.append(Lane(name, "engine", parent))
                        found.append(slices(track, lane_of[track], group)[0])
                else:
                    lane_of[track] = len(data.lanes)
                    data.lanes.append(Lane(name, "call", parent, rank in on_path))
                    part, here = slices(track, lane_of[track], by_call)
                    found.append(part)
                    communicated.append((part, here))
        occupied = Slices.joined(busy) if busy else Slices(*(np.zeros(0, np.int64) for _ in range(5)))
        found.append(occupied)
        if communicated:
            total = round(1000 * report.ranks[rank].total_ns)
            found.append(_exposed(occupied, communicated, arrived, tracks.message, (parent, total), names))
    whole = Slices.joined(found)
    data.bars = merged(whole, workbench.MOST_BARS)
    data.messages = _calls(tracks, whole, data, lane_of)
    _path(report, data, texts, own, names)
    if explanation is not None:
        workbench.add_links(data, explanation, explanation.machine)
    data.texts = list(texts.found)
    return data.to_json()


def _exposed(
    busy: Slices, parts: list[tuple[Slices, Ints]], arrived: Ints, messages: Ints, at: tuple[int, int], names: list[str]
) -> Slices:
    """The time of a rank in which it does not compute, until it has ended, by the call that ends it: before the last
    rank had arrived at that, it is waiting for that rank.
    """
    lane, total = at
    ends = np.concatenate([[0], busy.end])
    starts = np.concatenate([busy.start, [max(total, int(ends[-1]))]])
    gaps = np.flatnonzero(starts > ends)
    left, right = ends[gaps], starts[gaps]
    call_ends, call_texts = (np.concatenate([getattr(part, name) for part, _ in parts]) for name in ("end", "text"))
    numbers = messages[np.concatenate([here for _, here in parts])]
    order = np.argsort(call_ends, kind="stable")
    of = order[np.maximum(np.searchsorted(call_ends[order], right, side="right") - 1, 0)]
    there = arrived[np.minimum(numbers[of], len(arrived) - 1)] if len(arrived) else np.zeros(len(of), np.int64)
    middle = np.clip(there, left, right)
    lanes = np.full(len(left), lane)

    def side(start: Ints, end: Ints, name: str) -> Slices:
        kept = end > start
        return Slices(lanes, start, end, np.full(len(start), names.index(name)), call_texts[of]).take(kept)

    return Slices.joined([side(left, middle, "waiting for other ranks"), side(middle, right, "exposed communication")])


def _calls(tracks: Tracks, whole: Slices, data: Data, lane_of: dict[int, int]) -> dict[str, list[int]]:
    """From the rank that came last to a call to each of the others, as arrows."""
    joined = np.flatnonzero(tracks.part == JOINED)
    lanes = np.array([lane_of.get(track, -1) for track in tracks.track[joined].tolist()], np.int64)
    joined, lanes = joined[lanes >= 0], lanes[lanes >= 0]
    empty: dict[str, list[int]] = {name: [] for name in workbench.MESSAGE}
    if not len(joined) or data.bars is None:
        return empty
    wide = int(whole.end.max()) + 1
    bars = data.bars.of[np.searchsorted(whole.lane * wide + whole.start, lanes * wide + tracks.start[joined])]
    order = np.lexsort((tracks.start[joined], tracks.message[joined]))
    joined, bars = joined[order], bars[order]
    message = tracks.message[joined]
    last = np.append(message[1:] != message[:-1], True)
    source = np.flatnonzero(last)[np.cumsum(np.concatenate([[0], last[:-1].astype(np.int64)]))]
    pairs = np.unique(np.stack([bars[source], bars])[:, ~last], axis=1)
    start, end, count = data.bars.slices.start, data.bars.slices.end, pairs.shape[1]
    # A message that was sent before its receiver came: it leads on to that.
    gone = end[pairs[1]] < start[pairs[0]]
    pairs[:, gone] = pairs[::-1, gone]
    sent = start[pairs[0]]
    return empty | {
        "from": pairs[0].tolist(),
        "to": pairs[1].tolist(),
        "sent": sent.tolist(),
        "took": (end[pairs[1]] - sent).tolist(),
        "count": [1] * count,
        "links": [0] * count,
    }


def _path(report: JobReport, data: Data, texts: Texts, own: dict[int, int], names: list[str]) -> None:
    """The stretches of the critical path: what is computed, and which collective is waited for."""
    stretches = report.path
    group = []
    for stretch in stretches:
        name = stretch.what if stretch.call is None else report.calls[stretch.call].collective
        group.append(names.index(name if name in names else "message"))
    starts = np.array([round(1000 * stretch.start_ns) for stretch in stretches], np.int64)
    ends = np.array([round(1000 * stretch.end_ns) for stretch in stretches], np.int64)
    zeros = np.zeros(len(starts), np.int64)
    drawn = merged(Slices(zeros, starts, ends, np.array(group, np.int64), np.arange(len(starts))), workbench.MOST_PATH)
    if drawn.shortest:
        data.notes.append(f"stretches of the critical path shorter than {time(drawn.shortest)} are merged")
    at = drawn.slices.text.tolist()
    data.path = {
        "start": drawn.slices.start.tolist(),
        "length": (drawn.slices.end - drawn.slices.start).tolist(),
        "lane": [own.get(stretches[index].rank, -1) for index in at],
        "group": drawn.slices.group.tolist(),
        "text": [texts.number(stretches[index].node, stretches[index].origin) for index in at],
    }
