"""The data that the viewer draws: lanes by rank, messages, links over time; by `data/schemas/picture.schema.json`.

Times are in ps from launch. What is too short to be seen alone is merged with its neighbours, and `note` says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ahbm._core import categories
from ahbm.views import colors, maps
from ahbm.views.lanes import CARRIED, FRAMES, NONE, READ, SENT, Bars, Ints, Slices, Tracks, merged, shares
from ahbm.views.words import time

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.runs.explanation import Explanation

CONTRACT = 1
"""Version of the contract: another number where a viewer of before would draw something else."""
MOST_BARS = 14_000
"""Of all lanes together, about."""
MOST_PATH = 3_000
MOST_LANES = 2_500
"""Lanes of PEs, links and engines; of more those on the critical path, and all are in the shares of their ranks."""
MOST_RANKS = 1_200
"""Lanes of ranks beside those of the critical path; more ranks share lanes."""
MOST_LINKS = 12_000
"""Links with a heat of their own; of more, those on the critical path first, then those that were waited for most."""
MOST_LOADS = 100_000
"""Numbers of the heat of links, about."""
FEWEST_FRAMES, MOST_FRAMES = 8, 96
FEWEST_SHARES, MOST_SHARES = 24, 10_000
"""Parts of the run of a lane of shares, and of all such lanes together, about."""

WAITS = {name: color for name, color in colors.CATEGORIES.items() if name.startswith(("waiting", "idle"))}
READS = "#6fb7e0"
"""Of receives, whose waits have colours of their own here."""
LABELS = {"delay": "compute", "recv": "receive", "math": "reduce", "idle after its end": "finished"}
"""Of groups, in words of the field."""
CLASSES = {
    "compute": ("math", "delay"),
    "memory": ("load", "store", "copy"),
    "communicate": ("send", "recv", "signal", "wait", "barrier"),
    "wait": tuple(name for name in WAITS if name.startswith("waiting")),
}
"""The parts of a lane of shares, each of groups; the rest of the time nothing runs."""
CLASS_COLORS = {"compute": "#1aa37f", "memory": "#d99a1c", "communicate": "#2f87c8", "wait": "#7d6bb3"}
_AGENT = re.compile(r"agent (\d+)$")


@dataclass
class Lane:
    """A row of the picture."""

    name: str
    kind: str
    """path, rank, sends, pe, link, engine, queue or call."""
    parent: int = -1
    """Its lane above; -1 for none."""
    path: bool = False
    """On the critical path."""
    shares: list[list[int]] | None = None
    """Of a lane that stands for several: per part of `CLASSES` percent of the time in equal parts of the run."""


@dataclass
class Data:
    """A picture while it is made."""

    title: str
    latency: int
    groups: list[tuple[str, str]]
    lanes: list[Lane] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    bars: Bars | None = None
    messages: dict[str, list[int]] = field(default_factory=dict)
    path: dict[str, list[int]] = field(default_factory=dict)
    links: list[dict[str, Any]] = field(default_factory=list)
    heat: dict[str, Any] = field(default_factory=lambda: {"frames": 0, "load": []})
    maps: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As the contract says."""
        assert self.bars is not None
        slices = self.bars.slices
        counts = np.bincount(slices.lane, minlength=len(self.lanes))
        firsts = np.zeros(len(slices), bool)
        firsts[(np.cumsum(counts) - counts)[counts > 0]] = True
        starts = np.where(firsts, slices.start, np.diff(slices.start, prepend=0))
        if self.bars.shortest:
            self.notes.append(f"bars shorter than {time(self.bars.shortest)} are merged with their neighbours")
        return {
            "contract": CONTRACT,
            "title": self.title,
            "note": "; ".join(self.notes),
            "latency": self.latency,
            "groups": [[LABELS.get(name, name), color] for name, color in self.groups],
            "classes": [[name, color] for name, color in CLASS_COLORS.items()],
            "lanes": {
                "name": [lane.name for lane in self.lanes],
                "kind": [lane.kind for lane in self.lanes],
                "parent": [lane.parent for lane in self.lanes],
                "path": [int(lane.path) for lane in self.lanes],
                "shares": {str(at): lane.shares for at, lane in enumerate(self.lanes) if lane.shares is not None},
            },
            "bars": {
                "lanes": counts.tolist(),
                "start": starts.tolist(),
                "length": (slices.end - slices.start).tolist(),
                "group": slices.group.tolist(),
                "text": slices.text.tolist(),
                "count": self.bars.count.tolist() if self.bars.shortest else [],
            },
            "texts": [list(text) for text in self.texts],
            "messages": self.messages or {name: [] for name in MESSAGE},
            "path": self.path or {name: [] for name in PATH},
            "links": self.links,
            "heat": self.heat,
            "maps": self.maps,
        }


MESSAGE = ("from", "to", "sent", "took", "count", "links", "link")
PATH = ("start", "length", "lane", "group", "text")


class Texts:
    """Each pair of an operation and its line once."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], int] = {}

    def number(self, what: str, origin: str) -> int:
        """Of a text."""
        return self.found.setdefault((what, origin), len(self.found))

    def numbers(self, tracks: Tracks, name: Ints, origin: Ints) -> Ints:
        """Of columns of names and origins, which are few."""
        keys = name * (NONE + 1) + origin
        unique, of = np.unique(keys, return_inverse=True)
        numbers = [
            self.number(
                tracks.names[key // (NONE + 1)],
                "" if key % (NONE + 1) == NONE else tracks.origins[key % (NONE + 1)],
            )
            for key in unique.tolist()
        ]
        found: Ints = np.array(numbers, np.int64)[of]
        return found


def of_run(explanation: Explanation, machine: Machine | None, title: str, most: int = MOST_BARS) -> dict[str, Any]:
    """The picture of a run. Raises BudgetError (AHBM-B122) for a run too long to show."""
    tracks = Tracks.of(explanation.tracks())
    groups = [*(colors.KINDS | {"recv": READS}).items(), *WAITS.items()]
    data, texts = Data(title, explanation.latency_ps, groups), Texts()
    names = [name for name, _ in groups]
    n = len(tracks.start)
    every = np.arange(n)
    operation = np.maximum.accumulate(np.where(tracks.depth == 0, every, 0))
    parents = np.zeros(n, bool)
    parents[operation[tracks.depth == 1]] = True
    leaf = ((tracks.depth == 1) | ~parents) & (tracks.track != tracks.track[0])
    # What takes no time is shown where it is an end of a message; the first piece of an operation follows it.
    sends = (tracks.part == SENT) & (~parents)
    sends[1:] |= (tracks.part[:-1] == SENT) & parents[:-1]
    leaf &= (tracks.end > tracks.start) | (tracks.part == READ) | sends
    leaves = np.flatnonzero(leaf)

    kinds = np.array([names.index(colors.kind(name)) for name in tracks.names], np.int64)
    waits = np.full(len(tracks.names), -1)
    for number, name in enumerate(categories()):
        if name in WAITS:
            waits[number] = names.index(name)
    said = tracks.name[leaves]
    group = np.where(waits[said] >= 0, waits[said], kinds[tracks.name[operation[leaves]]])

    lanes = _Lanes(data, tracks, explanation)
    lane = lanes.of[tracks.track[leaves]]
    kept = lane >= 0
    leaves, group, lane = leaves[kept], group[kept], lane[kept]
    order = np.lexsort((tracks.start[leaves], lane))
    leaves, group, lane = leaves[order], group[order], lane[order]
    # Pieces of one operation that are of one group are one slice.
    op = operation[leaves]
    same = (op[1:] == op[:-1]) & (group[1:] == group[:-1]) & (lane[1:] == lane[:-1])
    same &= tracks.end[leaves[:-1]] == tracks.start[leaves[1:]]
    firsts = np.flatnonzero(np.concatenate([[True], ~same])) if len(leaves) else np.zeros(0, np.int64)
    slice_of = np.cumsum(np.concatenate([[0], (~same).astype(np.int64)])) if len(leaves) else firsts
    lasts = np.append(firsts[1:], len(leaves)) - 1
    text = texts.numbers(tracks, tracks.name[op[firsts]], tracks.origin[op[firsts]])
    slices = Slices(lane[firsts], tracks.start[leaves[firsts]], tracks.end[leaves[lasts]], group[firsts], text)
    lanes.count_shares(slices)
    lane = lanes.settle()[slices.lane]
    shown = np.flatnonzero(lane >= 0)
    data.bars = merged(replace(slices, lane=lane).take(shown), most)

    bar_of_slice, bar_of = np.full(len(slices), -1), np.full(n, -1)
    bar_of_slice[shown] = data.bars.of
    bar_of[leaves] = bar_of_slice[slice_of]
    data.messages = _messages(tracks, bar_of, lanes.of)
    data.path = _path(explanation, data, texts, lanes)
    add_links(data, explanation, machine)
    data.texts = list(texts.found)
    data.notes[:0] = lanes.notes
    return data.to_json()


class _Lanes:
    """The lanes of a run: of every rank what its kernel does and what it sends; below them PEs, links and engines."""

    def __init__(self, data: Data, tracks: Tracks, explanation: Explanation) -> None:
        self.data, self.notes = data, list[str]()
        self.of = np.full(len(tracks.tracks), -1)
        self.of_agent: dict[int, int] = {}
        self._members: dict[int, list[int]] = {}
        used = np.unique(tracks.track).tolist()
        ranks = explanation.rank_of_agents
        on_path = set(np.unique(explanation.path[2]).tolist())
        path_links = {link.name for link in explanation.links if link.path_ps}
        found: dict[str, list[tuple[str, str, int, int]]] = {}
        for track in used:
            groups = tracks.groups(track)
            kind, name, agent = _described(groups)
            if kind == "":
                continue
            owner = f"rank {ranks[agent]}" if agent >= 0 else groups[0].replace("SIP", "rank")
            found.setdefault(owner if groups[0] != "launches" else "launches", []).append((kind, name, track, agent))

        def critical(members: list[tuple[str, str, int, int]]) -> bool:
            return any(agent in on_path or name in path_links for _, name, _, agent in members)

        data.lanes.append(Lane("critical path", "path", path=True))
        order = sorted(found, key=lambda owner: (not critical(found[owner]), _natural(owner)))
        crowded = sum(len(found[owner]) for owner in order) > MOST_LANES
        if crowded:
            self.notes.append("PEs, links and engines beside the critical path stand in the lanes of their ranks only")
        alone = {owner for owner in order if critical(found[owner])}
        others = [owner for owner in order if owner not in alone]
        a_lane = -(-len(others) // MOST_RANKS) if others else 1
        if a_lane > 1:
            self.notes.append(f"{a_lane} ranks beside the critical path share a lane")
        for owner in order:
            members = found[owner]
            if owner in alone or a_lane == 1:
                self._rank(owner, members, on_path, path_links, crowded)
        for at in range(0, len(others) if a_lane > 1 else 0, a_lane):
            some = others[at : at + a_lane]
            lane = self._lane(f"{some[0]} to {some[-1].removeprefix('rank ')}", "rank")
            for owner in some:
                for kind, _, track, agent in found[owner]:
                    if kind == "pe":
                        self._members.setdefault(lane, []).append(self._hidden(track, agent))

    def _lane(self, name: str, kind: str, parent: int = -1, path: bool = False) -> int:
        self.data.lanes.append(Lane(name, kind, parent, path))
        return len(self.data.lanes) - 1

    def _hidden(self, track: int, agent: int = -1) -> int:
        """A lane that only counts in the shares of another: it gets no row, and its bars none."""
        lane = self._lane("", "hidden")
        self.of[track] = lane
        if agent >= 0:
            self.of_agent[agent] = lane
        return lane

    def _rank(
        self,
        owner: str,
        members: list[tuple[str, str, int, int]],
        on_path: set[int],
        path_links: set[str],
        crowded: bool,
    ) -> None:
        pes = [member for member in members if member[0] == "pe"]
        links = [member for member in members if member[0] == "link"]
        outward = [member for member in links if "->" in member[1]]
        rank = self._lane(
            owner, "rank", path=any(agent in on_path or name in path_links for _, name, _, agent in members)
        )
        if len(pes) == 1:
            ((_, _, track, agent),) = pes
            self.of[track], self.of_agent[agent] = rank, rank
            pes = []
        sends = -1
        if len(outward) == 1:
            (_, name, track, _), outward_path = outward[0], outward[0][1] in path_links
            sends = self._lane(f"sends {name[name.index('->') :].replace('sip', '')}", "sends", rank, outward_path)
            self.of[track] = sends
            links.remove(outward[0])
        elif outward:
            sends = self._lane(f"sends, {len(outward)} links", "sends", rank, any(m[1] in path_links for m in outward))
        for kind, name, track, agent in [*pes, *links, *(m for m in members if m[0] not in ("pe", "link"))]:
            critical = agent in on_path or name in path_links
            lane = self._hidden(track, agent) if crowded and not critical else self._lane(name, kind, rank, critical)
            self.of[track] = lane
            if agent >= 0:
                self.of_agent[agent] = lane
            if kind == "pe":
                self._members.setdefault(rank, []).append(lane)
            elif sends >= 0 and "->" in name:
                self._members.setdefault(sends, []).append(lane)

    def count_shares(self, slices: Slices) -> None:
        """The shares of lanes that stand for several; then hidden lanes go."""
        frames = max(FEWEST_SHARES, min(FRAMES, MOST_SHARES // max(len(self._members), 1)))
        names = [name for name, _ in self.data.groups]
        classes = [[names.index(name) for name in groups] for groups in CLASSES.values()]
        frame = max(self.data.latency / frames, 1e-9)
        owner = np.full(len(self.data.lanes), -1)
        for lane, members in self._members.items():
            owner[members] = lane
        owners = owner[slices.lane]
        for lane, members in self._members.items():
            here = np.flatnonzero(owners == lane) if len(self._members) < 64 else _range(owners, lane, self)
            group = slices.group[here]
            found = []
            for groups in classes:
                of_class = here[np.isin(group, groups)]
                part = shares(slices.start[of_class], slices.end[of_class], self.data.latency, frames)
                found.append(np.minimum(np.round(100 * part / frame / len(members)), 100).astype(int).tolist())
            self.data.lanes[lane].shares = found

    def settle(self) -> Ints:
        """Takes the hidden lanes away. Returns the number of each lane from now on, -1 for these."""
        kept = [at for at, lane in enumerate(self.data.lanes) if lane.kind != "hidden"]
        number = np.full(len(self.data.lanes) + 1, -1)
        number[kept] = np.arange(len(kept))
        self.data.lanes[:] = [self.data.lanes[at] for at in kept]
        for lane in self.data.lanes:
            lane.parent = int(number[lane.parent])
        self.of = number[self.of]
        self.of_agent = {agent: int(number[lane]) for agent, lane in self.of_agent.items()}
        return number


def _range(owners: Ints, lane: int, cache: Any) -> Ints:
    """As `flatnonzero(owners == lane)`, with one sort for all lanes."""
    if not hasattr(cache, "sorted_owners"):
        cache.sorted_owners = np.argsort(owners, kind="stable")
        cache.owners_in_order = owners[cache.sorted_owners]
    first, last = np.searchsorted(cache.owners_in_order, [lane, lane + 1])
    found: Ints = cache.sorted_owners[first:last]
    return found


def _described(groups: Sequence[str]) -> tuple[str, str, int]:
    """Kind, name and agent of a track; "" for the run itself."""
    last = groups[-1]
    agent = _AGENT.match(last)
    if agent is not None:
        place = ", ".join(groups[1:-1]) or groups[0]
        return "pe", place if last == "agent 0" or len(groups) > 2 else last, int(agent[1])
    if len(groups) == 1:
        return "", last, -1
    if groups[-2] == "links":
        return "link", last, -1
    if last.startswith(("DMA", "math")):
        return "engine", f"{last}, {', '.join(groups[1:-1])}", -1
    return "queue", f"{last.partition(' ')[2].partition(' ')[2] or last}, {', '.join(groups[1:-1])}", -1


def _natural(name: str) -> tuple[str, int]:
    word, _, number = name.partition(" ")
    return word, int(number) if number.isdigit() else -1


def _messages(tracks: Tracks, bar_of: Ints, lane_of: Ints) -> dict[str, list[int]]:
    """Every message between two bars, those between the same two as one: with the links that they crossed."""
    sends, reads = np.flatnonzero(tracks.part == SENT), np.flatnonzero(tracks.part == READ)
    if not len(sends) or not len(reads):
        return {name: [] for name in MESSAGE}
    most = int(tracks.message[sends].max()) + 1
    sent, read = np.full(most, -1), np.full(most, -1)
    sent[tracks.message[sends]] = sends
    known = reads[tracks.message[reads] < most]
    read[tracks.message[known]] = known
    both = np.flatnonzero((sent >= 0) & (read >= 0))
    # A send is its operation: the first bar in it.
    pieces = np.flatnonzero(bar_of >= 0)
    at = np.minimum(np.searchsorted(pieces, sent[both]), len(pieces) - 1)
    source, target = bar_of[pieces[at]], bar_of[read[both]]
    here = (source >= 0) & (target >= 0)
    both, source, target = both[here], source[here], target[here]
    left, arrived = tracks.end[sent[both]], tracks.start[read[both]]
    pairs, firsts, of, counts = np.unique(
        source * (len(bar_of) + 1) + target, return_index=True, return_inverse=True, return_counts=True
    )
    began, ended = np.full(len(pairs), np.iinfo(np.int64).max), np.zeros(len(pairs), np.int64)
    np.minimum.at(began, of, left)
    np.maximum.at(ended, of, arrived)
    number = np.full(most, -1)
    number[both] = of
    carried = np.flatnonzero((tracks.part == CARRIED) & (tracks.message < most))
    links = _is_link(tracks)[tracks.track[carried]]
    carried = carried[links]
    pair, lane = number[tracks.message[carried]], lane_of[tracks.track[carried]]
    good = (pair >= 0) & (lane >= 0)
    crossed = np.unique(pair[good] * len(lane_of) * 4 + lane[good])
    pair, lane = crossed // (len(lane_of) * 4), crossed % (len(lane_of) * 4)
    return {
        "from": source[firsts].tolist(),
        "to": target[firsts].tolist(),
        "sent": began.tolist(),
        "took": (ended - began).tolist(),
        "count": counts.tolist(),
        "links": np.bincount(pair, minlength=len(pairs)).tolist(),
        "link": lane.tolist(),
    }


def _is_link(tracks: Tracks) -> Any:
    return np.array(
        [parent is not None and tracks.tracks[parent][0] == "links" for _, parent in tracks.tracks], dtype=bool
    )


def _path(explanation: Explanation, data: Data, texts: Texts, lanes: _Lanes) -> dict[str, list[int]]:
    """The critical path by what it was spent on: categories, which are groups of their own behind the others."""
    starts, ends, agents, ops, category = explanation.path
    first = len(data.groups)
    data.groups += list(colors.CATEGORIES.items())
    number = np.array([list(colors.CATEGORIES).index(name) for name in categories()], np.int64)
    whole = Slices(np.zeros(len(starts), np.int64), starts, ends, first + number[category], np.arange(len(starts)))
    drawn = merged(whole, MOST_PATH)
    at = drawn.slices.text
    if drawn.shortest:
        data.notes.append(f"stretches of the critical path shorter than {time(drawn.shortest)} are merged")
    words = [explanation.operation(*where) for where in zip(agents[at].tolist(), ops[at].tolist(), strict=True)]
    return {
        "start": drawn.slices.start.tolist(),
        "length": (drawn.slices.end - drawn.slices.start).tolist(),
        "lane": [lanes.of_agent.get(agent, -1) for agent in agents[at].tolist()],
        "group": drawn.slices.group.tolist(),
        "text": [texts.number(*pair) for pair in words],
    }


def add_links(data: Data, explanation: Explanation, machine: Machine | None) -> None:
    """Every link that was used, the critical path's first; how busy each is over time; and where they are."""
    found = sorted(explanation.links, key=lambda link: (-link.path_ps, -link.waited_ps, -link.busy_ps))
    kept = max(MOST_LINKS, sum(link.path_ps > 0 for link in found))
    found, left = found[:kept], found[kept:]
    if left:
        most = (
            f"waited for {time(max(link.waited_ps for link in left))}, busy {time(max(link.busy_ps for link in left))}"
        )
        data.notes.append(f"{len(left):,} links off the critical path (each at most {most}) have no heat of their own")
    data.links = [
        {
            "name": link.name,
            "busy": link.busy_ps,
            "messages": link.crossed,
            "waits": link.waits,
            "waited": link.waited_ps,
            "path": link.path_ps,
        }
        for link in found
    ]
    if not found or not data.latency:
        return
    frames = max(FEWEST_FRAMES, min(MOST_FRAMES, MOST_LOADS // len(found)))
    load, part = explanation.link_load(frames), data.latency / frames
    percent = [[min(round(100 * ps / part), 100) for ps in load.get(link.name, ())] for link in found]
    data.heat = {"frames": frames, "load": percent}
    if machine is not None:
        data.maps = maps.of_links(machine, [link.name for link in found])
