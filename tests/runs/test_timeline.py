"""Timeline files, read back by a reader of this file's own: nothing overlaps, slices nest, flows match one to one."""

from __future__ import annotations

import itertools
import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.errors import ConfigError
from ahbm.runs.measure import prepare


@dataclass(frozen=True)
class Seen:
    """A slice: times in the file's ns, and exactly."""

    track: str
    name: str
    start: int
    end: int
    start_ps: int
    end_ps: int
    depth: int
    args: tuple[tuple[str, Any], ...]
    flow_out: int | None = None
    flow_in: int | None = None


@dataclass
class View:
    """What a reader makes of a file."""

    slices: list[Seen] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        match key & 7:
            case 0:
                value, at = varint(data, at)
            case 1:
                (value,), at = struct.unpack_from("<Q", data, at), at + 8
            case 2:
                size, at = varint(data, at)
                value, at = data[at : at + size], at + size
            case wire:
                raise AssertionError(f"wire type {wire}")
        yield key >> 3, value


def message(data: bytes) -> dict[int, list[Any]]:
    out: dict[int, list[Any]] = defaultdict(list)
    for number, value in fields(data):
        out[number].append(value)
    return out


class Stack:
    """Begins and ends in a file's order to slices, as readers pair them."""

    def __init__(self) -> None:
        self.open: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.view = View()

    def begin(self, track: str, ns: int, name: str, args: dict[str, Any], **flow: int) -> None:
        here = self.open[track]
        here.append({"track": track, "name": name, "start": ns, "args": args, "depth": len(here), **flow})

    def end(self, track: str, ns: int) -> None:
        found = self.open[track].pop()
        args = found.pop("args")
        exact = {"start_ps": args.pop("start_ps", found["start"] * 1000), "end_ps": args.pop("end_ps", ns * 1000)}
        self.view.slices.append(Seen(**found, end=ns, args=tuple(sorted(args.items())), **exact))


def perfetto(data: bytes) -> View:
    """The slices and counters of a Perfetto trace; numbers are the fields of its published schema."""
    stack, tracks, counters, last = Stack(), dict[int, str](), dict[int, str](), 0
    names, keys, texts = dict[int, str](), dict[int, str](), dict[int, str]()
    for packet in (message(value) for number, value in fields(data) if number == 1):
        assert packet[10] == [1] and packet[13] in ([2], [3])
        for interned in map(message, packet[12]):
            for into, number in ((names, 2), (keys, 3), (texts, 29)):
                for entry in map(message, interned[number]):
                    into[entry[1][0]] = entry[2][0].decode()
        for track in map(message, packet[60]):
            path = track[2][0].decode()
            if track[5]:
                path = f"{tracks[track[5][0]]} / {path}"
            assert path not in tracks.values()
            tracks[track[1][0]] = path
            if track[8]:
                counters[track[1][0]] = path
        for event in map(message, packet[11]):
            (kind,), (on,), (ns,) = event[9], event[11], packet[8]
            if kind == 4:
                stack.view.counters[counters[on]].append((ns, event[30][0]))
                continue
            assert ns >= last and on not in counters
            last = ns
            if kind == 2:
                stack.end(tracks[on], ns)
                continue
            assert kind == 1
            args = {}
            for note in map(message, event[4]):
                key = keys[note[1][0]] if note[1] else note[10][0].decode()
                args[key] = texts[note[17][0]] if note[17] else note[3][0] if note[3] else note[6][0].decode()
            flow = {name: event[number][0] for name, number in (("flow_out", 47), ("flow_in", 48)) if event[number]}
            stack.begin(tracks[on], ns, names[event[10][0]], args, **flow)
    assert not any(stack.open.values())
    return stack.view


def chrome(data: bytes) -> View:
    """The slices and counters of a trace-event file."""
    stack, processes, threads = Stack(), dict[int, str](), dict[tuple[int, int], str]()
    for event in json.loads(data)["traceEvents"]:
        at = (event["pid"], event.get("tid", 0))
        ns = round(event.get("ts", 0) * 1000)
        match event["ph"], event.get("name"):
            case "M", "process_name":
                processes[at[0]] = event["args"]["name"]
            case "M", "thread_name":
                process, thread = processes[at[0]], event["args"]["name"]
                threads[at] = process if process == thread else f"{process} / {thread}"
            case "M", _:
                pass
            case "B", name:
                stack.begin(threads[at], ns, name, event["args"])
            case "E", _:
                stack.end(threads[at], ns)
            case "s" | "f" as phase, _:
                begun = stack.open[threads[at]][-1]
                assert begun["start"] == ns
                begun["flow_out" if phase == "s" else "flow_in"] = event["id"]
            case "C", name:
                (value,) = event["args"].values()
                stack.view.counters[f"{processes[at[0]]} / {name}"].append((ns, value))
            case other:
                raise AssertionError(other)
    assert not any(stack.open.values())
    return stack.view


def faults(view: View) -> list[str]:
    """What is wrong with a view; nothing may overlap or stick out, and every flow has one source and one target."""
    found = []
    tracks = defaultdict(list)
    for seen in view.slices:
        tracks[seen.track].append(seen)
        if not seen.start_ps <= seen.end_ps or (seen.start, seen.end) != (seen.start_ps // 1000, seen.end_ps // 1000):
            found.append(f"times of {seen}")
    for track, slices in tracks.items():
        outer = sorted((s for s in slices if s.depth == 0), key=lambda s: (s.start_ps, s.end_ps))
        inner = sorted((s for s in slices if s.depth == 1), key=lambda s: (s.start_ps, s.end_ps))
        if len(outer) + len(inner) < len(slices):
            found.append(f"deep slices on {track}")
        for row in (outer, inner):
            found += [f"{a} overlaps {b}" for a, b in itertools.pairwise(row) if b.start_ps < a.end_ps]
        at = 0
        for s in inner:
            while at < len(outer) and outer[at].end_ps < s.end_ps:
                at += 1
            if at == len(outer) or s.start_ps < outer[at].start_ps:
                found.append(f"{s} sticks out")
    sources = {s.flow_out: s for s in view.slices if s.flow_out is not None}
    targets = {s.flow_in: s for s in view.slices if s.flow_in is not None}
    if len(sources) + len(targets) != sum((s.flow_out or s.flow_in) is not None for s in view.slices):
        found.append("a flow is used twice")
    if sources.keys() != targets.keys():
        found.append(f"flows without an end: {sources.keys() ^ targets.keys()}")
    else:
        found += [f"flow {n} ends early" for n, s in sources.items() if targets[n].start_ps < s.start_ps]
    for name, points in view.counters.items():
        if any(b[0] <= a[0] or b[1] == a[1] for a, b in itertools.pairwise(points)):
            found.append(f"{name} stands still")
        if points[0][0] != 0 or points[-1][1] != 0 or min(value for _, value in points) < 0:
            found.append(f"{name} is not balanced")
    return found


def both(tmp_path: Path, collective: str, **arguments: Any) -> tuple[View, View, Any]:
    """A run as a Perfetto file and as a Chrome file, and its report."""
    report = ahbm.run(collective, topology="ring_1d", data=False, **arguments)
    report.write_timeline(tmp_path / "a.pftrace")
    report.write_timeline(tmp_path / "a.json")
    return perfetto((tmp_path / "a.pftrace").read_bytes()), chrome((tmp_path / "a.json").read_bytes()), report


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cut_through", "flit", "analytic"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all", "broadcast"])
def test_both_formats_tell_the_same_and_nothing_overlaps(collective: str, model: str, tmp_path: Path) -> None:
    overrides = {"system.sips.count": 4, "system.network_model": model}
    a, b, report = both(tmp_path, collective, bytes_per_rank=8192, overrides=overrides)
    assert faults(a) == faults(b) == []
    assert a.slices == b.slices
    # Chrome's counters stand in the process, whatever their group.
    flat = {f"{name.split(' / ')[0]} / {name.rsplit(' / ', 1)[-1]}": points for name, points in a.counters.items()}
    assert flat == b.counters and len(flat) == len(a.counters)
    assert sum(s.flow_out is not None for s in a.slices) == report.messages > 0
    run = next(s for s in a.slices if s.track == "run")
    facts = dict(run.args)
    assert run.end_ps == round(report.latency_ns * 1000) == max(s.end_ps for s in a.slices if " / agent " in s.track)
    assert facts["timeline_hash"] == report.timeline_hash and facts["program_hash"] == report.program_hash
    assert (facts["machine_hash"], facts["ahbm"]) == (report.machine_hash, report.version)
    kinds = {s.track.rsplit(" / ", 1)[-1].split()[0] for s in a.slices}
    assert {"run", "agent", "DMA"} <= kinds
    assert any("links" in s.track for s in a.slices) == (model != "analytic")
    assert any("bytes on their way" in name for name in a.counters)


def test_links_are_as_busy_as_their_explanation_says(tmp_path: Path) -> None:
    report = ahbm.run("all_reduce", topology="ring_1d", bytes_per_rank=4096, data=False)
    why, count = report.explain(), report.write_timeline(tmp_path / "a.pftrace")
    view = perfetto((tmp_path / "a.pftrace").read_bytes())
    assert len(view.slices) == count and faults(view) == []
    busy: dict[str, int] = defaultdict(int)
    for s in view.slices:
        if " / links / " in s.track:
            busy[s.track.rsplit(" / ", 1)[-1]] += s.end_ps - s.start_ps
    assert busy == {link.name: link.busy_ps for link in why.links if link.busy_ps}
    for name, points in view.counters.items():
        if "links busy" in name:
            group = name.replace(name.rsplit(" / ", 1)[-1], "links / ")
            on = [s for s in view.slices if s.track.startswith(group)]
            area = sum(value * (end - start) for (start, value), (end, _) in itertools.pairwise(points))
            assert area == sum(s.end_ps // 1000 - s.start_ps // 1000 for s in on) > 0
            links = {s.track for s in on}
            assert name.endswith(f"of {len(links)}") and max(value for _, value in points) <= len(links)
    assert sum("links busy" in name for name in view.counters) == len(
        {s.track.rsplit(" / ", 1)[0] for s in view.slices if " / links / " in s.track}
    )
    agents = [s for s in view.slices if " / agent " in s.track and (s.depth == 1 or s.name == "idle after its end")]
    assert sum(s.end_ps - s.start_ps for s in agents) == sum(why.agents_by_category.values())
    assert {s.name for s in agents} >= {"dispatch", "DMA", "waiting for message", "slot I/O"}
    assert any("allreduce.py:" in str(dict(s.args).get("origin")) for s in view.slices)


def test_posted_receives_have_tracks_of_their_own(tmp_path: Path) -> None:
    module = tmp_path / "posted.py"
    module.write_text(
        "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):\n    return (n_elem,)\n"
        "def kernel(t_ptr, n_elem, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):\n"
        "    mine = tl.load(t_ptr, shape=(n_elem,), dtype='f16')\n"
        "    futures = [tl.recv_async(dir='global_W', shape=(n_elem,), dtype='f16') for _ in range(3)]\n"
        "    for _ in range(3):\n        tl.send(dir='global_E', src=mine)\n"
        "    for future in futures:\n        mine = mine + tl.wait(future)\n"
        "    tl.store(t_ptr, mine)\n"
    )
    a, b, report = both(tmp_path, "all_reduce", algorithm=module, bytes_per_rank=4096)
    assert faults(a) == faults(b) == []
    posted = [s for s in a.slices if "posted receives global_W" in s.track]
    assert len(posted) == report.messages == sum(s.flow_out is not None for s in a.slices)


def test_equal_runs_are_equal_files(tmp_path: Path) -> None:
    for name in ("a.pftrace", "b.pftrace", "a.json", "b.json"):
        ahbm.run("all_gather", topology="ring_1d", bytes_per_rank=4096, data=False).write_timeline(tmp_path / name)
    for ending in ("pftrace", "json"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_the_checker_sees_what_is_wrong(tmp_path: Path) -> None:
    """Each kind of fault, planted into a good view."""
    good, _, _ = both(tmp_path, "all_reduce", bytes_per_rank=4096)
    assert faults(good) == []

    def planted(of: Seen, **change: Any) -> list[str]:
        changed = replace(of, **change)
        return faults(View([changed if s is of else s for s in good.slices], good.counters))

    link = [s for s in good.slices if "links / sip0->sip1" in s.track]
    later = link[0].end_ps + 1000
    assert link[1].start_ps >= link[0].end_ps
    overlap = planted(link[1], start_ps=link[0].start_ps, start=link[0].start)
    assert any("overlaps" in fault for fault in overlap)
    inner = next(s for s in good.slices if s.depth == 1)
    far = max(s.end_ps for s in good.slices) + 1000
    assert any("sticks out" in fault for fault in planted(inner, end_ps=far, end=far // 1000))
    source = next(s for s in good.slices if s.flow_out is not None)
    assert any("without an end" in fault for fault in planted(source, flow_out=None))
    assert any("times" in fault for fault in planted(link[0], end_ps=later))
    name, points = next(iter(good.counters.items()))
    broken = View(good.slices, defaultdict(list, {name: points[:-1]}))
    assert any("balanced" in fault for fault in faults(broken))


def test_the_command_and_the_plan(tmp_path: Path) -> None:
    from support.plans import FOUR, TOPOLOGY, ring

    plan, out = tmp_path / "ring.xml", tmp_path / "out.pftrace"
    plan.write_text(ring(4))
    four = [part for key, value in FOUR.items() for part in ("--set", f"{key}={value}")]
    arguments = ["run", str(plan), "--size", "64K", "-t", TOPOLOGY, *four, "--json"]
    result = CliRunner().invoke(app, [*arguments, "--trace", str(out)])
    assert result.exit_code == 0, result.output
    view = perfetto(out.read_bytes())
    assert faults(view) == []
    assert sum(s.flow_in is not None for s in view.slices) == json.loads(result.output)["messages"]
    wrong = CliRunner().invoke(app, [*arguments, "--trace", "out.txt"]).exception
    assert isinstance(wrong, ConfigError) and wrong.code == "AHBM-C149"
    script = CliRunner().invoke(app, ["run", "--trace", str(out), "script.py"]).exception
    assert isinstance(script, ConfigError) and script.code == "AHBM-C146"
    with pytest.raises(ConfigError, match="AHBM-C148"):
        ahbm.run("all_reduce", topology="ring_1d", bytes_per_rank=0).write_timeline(out)


def test_what_cannot_be_shown(tmp_path: Path) -> None:
    outcome = prepare("all_reduce", None, "ring_1d", bytes_per_rank=4096).compiled()
    assert outcome.program is not None
    with pytest.raises(ahbm.AhbmError, match="AHBM-V123"):
        outcome.program.simulate().write(tmp_path / "a.json")
    with pytest.raises(ahbm.AhbmError, match="AHBM-F102"):
        ahbm.run("all_reduce", topology="ring_1d", bytes_per_rank=4096).write_timeline(tmp_path / "none" / "a.json")
