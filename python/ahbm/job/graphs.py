"""Algorithm graphs for the collectives of a job (`--collective_algorithm`): which calls run which file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from os.path import isfile
from pathlib import Path
from typing import Any

from ahbm._core import JobCall, Plan, Workload, plan_files, trace_sort
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.load import load_text
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.reading import PLAIN
from ahbm.dsl.script import Script
from ahbm.errors import ConfigError
from ahbm.runs import plans
from ahbm.source.plan import assigned_of, read, runs

KINDS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
}
"""The collectives for which a system file of ASTRA-sim may name a graph, by their names there."""


@dataclass(frozen=True)
class Graph:
    """A file that performs the calls of a collective among as many ranks as it has."""

    collective: str
    file: str
    ranks: int
    stated: bool
    """Whether the collective was stated, not read from the file."""
    plan: Plan = field(compare=False, repr=False)
    """What the file says; of a graph of sizes that says what it performs, with chunks."""

    @staticmethod
    def of(text: str) -> Graph:
        """`FILE`, or `COLLECTIVE=FILE`. Raises ConfigError (AHBM-C146) for a collective that there is not, (AHBM-C115)
        for another than the file performs, and as reading the file."""
        name, equals, file = text.partition("=")
        if not equals:
            name, file = "", text
        elif name not in COLLECTIVES:
            hint = did_you_mean(name, COLLECTIVES) or "COLLECTIVE=FILE, such as all_reduce=ring.et"
            raise ConfigError("AHBM-C146", f"--collective_algorithm {text}: there is no collective {name}", hint=hint)
        source = plans.source_of(file)
        if isinstance(source, Script):
            return _of(name, file, source)
        stamps = tuple(
            (stat.st_mtime_ns, stat.st_size) for stat in (part.stat() for part in plan_files(source) if isfile(part))
        )
        return _read(name, file, stamps)


@lru_cache(maxsize=16)
def _read(name: str, file: str, _: tuple[tuple[int, int], ...]) -> Graph:
    return _of(name, file, file)


def _of(name: str, file: str, source: str | Script) -> Graph:
    plan = read(source, PLAIN)
    moves = None if isinstance(source, Script) else assigned_of(plan, source)
    open_ = moves is not None and plan.collective == "custom"
    if name and open_:
        return Graph(name, file, plan.ranks, True, plan)
    performs = runs(plan, source, moves)
    if name and name != performs.collective:
        hint = f"--collective_algorithm {performs.collective}={file}"
        raise ConfigError("AHBM-C115", f"{file} performs {performs.collective}, not {name}", hint=hint)
    return Graph(performs.collective, file, plan.ranks, False, performs)


def overrides_of(asked: Sequence[str]) -> dict[str, object]:
    """Overrides of ccl.yaml by which calls run the graphs, each in the size of the call.

    Raises ConfigError (AHBM-C146) for two graphs for the same calls, and as `Graph.of`.
    """
    graphs = [Graph.of(text) for text in asked]
    found: dict[str, object] = {}
    rules: dict[str, list[dict[str, object]]] = {}
    names: dict[str, str] = {}
    for graph in graphs:
        of_collective = rules.setdefault(graph.collective, [])
        if any(rule["ranks"] == graph.ranks for rule in of_collective):
            what = f"two graphs for {graph.collective} of {graph.ranks} ranks"
            raise ConfigError("AHBM-C146", f"--collective_algorithm {graph.file}: {what}", hint="give one of them")
        name = plans.label(graph.file)
        if names.setdefault(name, graph.file) != graph.file or name in COLLECTIVES:
            name = f"{name}_{graph.collective}_{graph.ranks}"
        how = plans.Options(collective=graph.collective if graph.stated else None)
        found |= plans.settings_of(plans.source_of(graph.file), name, how, None)
        # A rule for calls of jobs leaves what all others run by.
        of_collective.append({"ranks": graph.ranks, "group": "*", "algorithm": name})
    return found | {f"collectives.{collective}": listed for collective, listed in rules.items()}


def idle(asked: Sequence[str], calls: Iterable[JobCall]) -> Iterator[str]:
    """Notes on graphs that perform no call of a job."""
    made = {(call.collective, len(call.ranks)) for call in calls}
    for graph in map(Graph.of, asked):
        if (graph.collective, graph.ranks) not in made:
            yield f"{graph.file} performs no call: the job has no {graph.collective} of {graph.ranks} ranks"


@contextmanager
def system_file(system: str | Path, asked: Sequence[str], sizes: dict[str, set[int]]) -> Iterator[Path]:
    """A system file of ASTRA-sim that names the graphs; without any, the one that is there.

    sizes: bytes of the job's calls by collective, which a file without sizes of its own is written for.
    Raises ConfigError (AHBM-C190) for a collective for which ASTRA-sim takes no graph, for a second one of a kind, and
    where calls of several sizes leave open which one a file is for; and as `Graph.of`.
    """
    if not asked:
        yield Path(system)
        return
    text: dict[str, Any] = json.loads(load_text(system))
    with tempfile.TemporaryDirectory() as folder:
        for graph in map(Graph.of, asked):
            kind = KINDS.get(graph.collective)
            if kind is None:
                what = f"ASTRA-sim takes no graph for {graph.collective}"
                raise ConfigError("AHBM-C190", f"--collective_algorithm {graph.file}: {what}", hint=", ".join(KINDS))
            key = f"{kind}-implementation-custom"
            prefix = Path(folder, graph.collective)
            if str(text.get(key, [""])[0]).startswith(folder):
                what = f"ASTRA-sim takes one graph for all calls of {graph.collective}"
                raise ConfigError("AHBM-C190", f"--collective_algorithm {graph.file}: {what}")
            _write(graph, prefix, sizes.get(graph.collective, set()))
            text[key] = [str(prefix)]
        for key, value in text.items():
            if key.endswith("-custom") and value and not Path(first := _first(value)).is_absolute():
                text[key] = [str(found(first, Path(system)).absolute()).removesuffix(".0.et")]
        written = Path(folder, Path(system).name)
        written.write_text(json.dumps(text))
        yield written


def _first(value: Any) -> str:
    return value if isinstance(value, str) else str(value[0])


def _write(graph: Graph, prefix: Path, sizes: set[int]) -> None:
    """The trace of a graph, as the public simulator reads it."""
    if not graph.file.endswith(".py") and trace_sort(graph.file) in ("algorithm", "either"):
        Workload.read(graph.file).write(prefix)
        return
    if len(sizes) > 1:
        what = f"calls of {graph.collective} have {len(sizes)} sizes, and a graph states one"
        hint = "ahbm convert FILE PREFIX.et --size writes it for one; without --parity it runs in all of them"
        raise ConfigError("AHBM-C190", f"--collective_algorithm {graph.file}: {what}", hint=hint)
    graph.plan.save(f"{prefix}.et", nbytes=next(iter(sizes), None))


def found(prefix: str, system: Path) -> Path:
    """The first file of an algorithm graph: below the working folder, else below a folder above the system file."""
    folders = [Path(), *system.parents]
    base = next((folder for folder in folders if isfile(f"{folder / prefix}.0.et")), Path())
    return Path(f"{base / prefix}.0.et")
