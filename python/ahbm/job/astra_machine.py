"""ASTRA-sim's set-ups on machines of this project: the same network and job, algorithms that move every message."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import yaml

from ahbm._core import AstraSetup, JobCall, Machine
from ahbm.base import packaged
from ahbm.base.load import load_text
from ahbm.config.ccl import are_of, entry_overrides
from ahbm.config.others.described import custom
from ahbm.config.others.dimensions import GB, MESH, PACKAGED, Dimension, edges, switches
from ahbm.config.reading import PLAIN
from ahbm.config.topology import load_machine
from ahbm.job.astra import FILE_BYTES, AstraFiles
from ahbm.job.graphs import found as graph_file
from ahbm.job.graphs import idle as idle_graphs
from ahbm.job.graphs import overrides_of
from ahbm.job.preparation import request_of
from ahbm.job.reading import How, read
from ahbm.job.replay import JobReport
from ahbm.job.replay import replay as replay_job
from ahbm.ranks.setup import Setup
from ahbm.runs import plans


def machine(dimensions: Sequence[Dimension], origin: str, roofline: tuple[float, float] | None = None) -> Machine:
    """The machine of a network file: one NPU per rank, dimension 0 varying fastest, bandwidths in GB/s of 10^9 bytes.
    roofline: TFLOPS and GB/s of an NPU, which give computations that only state operations and bytes their time.

    Raises TopologyError for a machine too big.
    """
    costs = {} if roofline is None else dict(zip(("peak_tflops", "memory_gbs"), roofline, strict=True))
    if len(dimensions) == 1 and dimensions[0][0] != MESH:
        ((shape, npus, bandwidth, latency),) = dimensions
        link = {"link.latency_ns": latency, "link.bandwidth_gbs": bandwidth * GB}
        inside = {"switch.latency_ns": 0} if shape == "Switch" else {}
        keys = {"count": npus, **link, **inside}
        inner = {f"pe.roofline.{key}": value for key, value in costs.items()}
        return load_machine(PACKAGED[shape], {f"system.sips.{key}": value for key, value in keys.items()} | inner)
    text: dict[str, Any] = yaml.safe_load(load_text(packaged.TOPOLOGIES / f"{PACKAGED['Ring']}.yaml"))
    count = prod(npus for _, npus, *_ in dimensions)
    text["system"] = {"sips": custom(count, switches(dimensions), edges(dimensions))}
    if costs:
        text["pe"]["roofline"] = costs
    return Machine.from_yaml(yaml.safe_dump(text), origin)


def read_setup(files: AstraFiles, limits: Sequence[tuple[str, int]] = ()) -> AstraSetup:
    """The set-up, whose network may have dimensions that are meshes, which stand there as rings. Raises as
    `AstraFiles.read`."""
    text = yaml.safe_load(load_text(files.network))
    shapes = text.get("topology") if isinstance(text, dict) else None
    if not isinstance(shapes, list) or MESH not in shapes:
        return files.read(limits)
    with tempfile.TemporaryDirectory() as folder:
        network = Path(folder, Path(files.network).name)
        rings = ["Ring" if shape == MESH else shape for shape in shapes]
        network.write_text(yaml.safe_dump({**text, "topology": rings}))
        return replace(files, network=network).read(limits)


def _dimensions(files: AstraFiles, setup: AstraSetup) -> list[Dimension]:
    """Those of a network file, meshes as such."""
    shapes = yaml.safe_load(load_text(files.network))["topology"]
    return [
        (MESH if stated == MESH else one[0], *one[1:]) for stated, one in zip(shapes, setup.dimensions, strict=True)
    ]


IMPLEMENTATIONS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
}
"""The kinds of collectives of a system file by their names there."""
NO_MEMORY = "NO_MEMORY_EXPANSION"
FOLLOWED = ("peak-perf", "local-mem-bw", "roofline-enabled")
"""Keys of a system file that the machine has."""


def replay(
    files: AstraFiles, setup: AstraSetup, limits: Sequence[tuple[str, int]] = (), idle: Iterable[str] = ()
) -> JobReport:
    """The set-up's job on its machine, one computation and one communication of a rank at a time. Collectives for whose
    kind the system file names an algorithm graph run it where it has as many ranks as they; all others are performed
    by what `ahbm.distributed` would choose. Notes of the report say which keys of the system file change nothing.

    idle: options that were given and change nothing; a note says so.
    Raises as `machine` and `ahbm.open`, and FormatError for algorithm graphs that are none.
    """
    how = How(
        groups=files.groups if files.has_groups else None,
        lanes="astra",
        reading=replace(PLAIN, limits=(("file_bytes", FILE_BYTES), *limits)),
    )
    job = read(f"{files.workload}.0.et", how).on_network([npus for _, npus, *_ in setup.dimensions])
    system: dict[str, Any] = json.loads(load_text(files.system))
    graphs, left = _graphs(files, system, job.calls, how)
    # Whole activations are messages, too long for the slots of a small memory.
    overrides = {"defaults.buffer_kind": "hbm", **graphs, **overrides_of(files.graphs)}
    network = Setup(machine(_dimensions(files, setup), str(files.network), setup.roofline), overrides=overrides)
    report = replay_job(job, plans.label(f"{files.workload}.0.et"), network, how)
    keys = [key for key in system if key not in FOLLOWED and not key.endswith("-custom")]
    memory = yaml.safe_load(load_text(files.memory))["memory-type"]
    without = [
        *idle,
        *([f"{', '.join(keys)} of {files.system}"] if keys else []),
        *([f"{memory} of {files.memory}"] if memory != NO_MEMORY else []),
    ]
    notes = [f"no effect without --parity: {', '.join(without)}"] if without else []
    unused = idle_graphs(files.graphs, job.calls)
    performed = replace(report.performed, notes=(*report.performed.notes, *left, *unused, *notes))
    return replace(report, performed=performed)


def _graphs(
    files: AstraFiles, system: dict[str, Any], calls: Sequence[JobCall], how: How
) -> tuple[dict[str, object], list[str]]:
    """Overrides of ccl.yaml by which calls run the algorithm graphs of a system file, and notes on calls that do not.

    A graph runs with the sizes that it states, whatever the size of the call, as in ASTRA-sim.
    """
    overrides: dict[str, object] = {}
    notes = []
    for key, collective in IMPLEMENTATIONS.items():
        found = system.get(f"{key}-implementation-custom")
        if not found:
            continue
        (prefix,) = [found] if isinstance(found, str) else found
        path = graph_file(prefix, Path(files.system))
        ranks = how.reading.read(path).ranks
        own = [call for call in calls if call.collective == collective]
        rules = []
        sizes = sorted({request_of(call, how).nbytes for call in own if len(call.ranks) == ranks})
        for nbytes in sizes:
            name = plans.label(path)
            if len(sizes) > 1 or are_of(name, overrides):
                name = f"{name}_{collective}_{nbytes}"
            entry = {"plan": str(path.absolute()), "collective": collective, "stated_bytes": nbytes}
            overrides |= entry_overrides(name, entry)
            rules.append({"ranks": ranks, "max_bytes": nbytes, "group": "*", "algorithm": name})
        if rules:
            overrides[f"collectives.{collective}"] = rules
        others = Counter(len(call.ranks) for call in own if len(call.ranks) != ranks)
        message = ", ".join(f"{count:,} of {size} ranks" for size, count in sorted(others.items()))
        if message or not own:
            what = f"{collective} calls that do not run it: {message}" if message else f"the job calls no {collective}"
            notes.append(f"{path} is an algorithm graph of {ranks} ranks; {what}")
    return overrides, notes
