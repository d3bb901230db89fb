"""ASTRA-sim's set-ups on machines of this project: the same network and job, algorithms that move every message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import yaml

from ahbm._core import AstraSetup, Machine
from ahbm.base import packaged
from ahbm.base.load import load_text
from ahbm.config.reading import PLAIN
from ahbm.config.topology import load_machine
from ahbm.errors import UnsupportedError
from ahbm.job.astra import FILE_BYTES, AstraFiles
from ahbm.job.reading import How, read
from ahbm.job.replay import JobReport
from ahbm.job.replay import replay as replay_job
from ahbm.ranks.setup import Setup
from ahbm.runs import plans

GB = 2**30 / 10**9
"""ASTRA-sim's GB/s in GB/s of 10^9 bytes."""
PACKAGED = {"Ring": "npu_ring_8", "Switch": "npu_switch_8", "FullyConnected": "npu_fully_connected_8"}
"""The machine of NPUs whose inside costs nothing, by the shape of its network."""

Dimension = tuple[str, int, float, float]
"""Shape, NPUs, GB/s of 2^30 bytes, latency in ns."""


def machine(dimensions: Sequence[Dimension], origin: str, roofline: tuple[float, float] | None = None) -> Machine:
    """The machine of a network file: one NPU per rank, dimension 0 varying fastest, bandwidths in GB/s of 10^9 bytes.
    roofline: TFLOPS and GB/s of an NPU, which give computations that only state operations and bytes their time.

    Raises UnsupportedError (AHBM-U235) for a switch among several dimensions, TopologyError for a machine too big.
    """
    costs = {} if roofline is None else dict(zip(("peak_tflops", "memory_gbs"), roofline, strict=True))
    if len(dimensions) == 1:
        ((shape, npus, bandwidth, latency),) = dimensions
        link = {"link.latency_ns": latency, "link.bandwidth_gbs": bandwidth * GB}
        inside = {"switch.latency_ns": 0} if shape == "Switch" else {}
        keys = {"count": npus, **link, **inside}
        inner = {f"pe.roofline.{key}": value for key, value in costs.items()}
        return load_machine(PACKAGED[shape], {f"system.sips.{key}": value for key, value in keys.items()} | inner)
    if any(shape == "Switch" for shape, *_ in dimensions):
        raise UnsupportedError(
            "AHBM-U235",
            f"{origin}: a Switch among several dimensions",
            hint="a machine has one switch, or rings and full connections of several dimensions; --parity has all",
        )
    text: dict[str, Any] = yaml.safe_load(load_text(packaged.TOPOLOGIES / f"{PACKAGED['Ring']}.yaml"))
    count = prod(npus for _, npus, *_ in dimensions)
    text["system"] = {"sips": {"count": count, "topology": "custom", "edges": list(_edges(dimensions))}}
    if costs:
        text["pe"]["roofline"] = costs
    return Machine.from_yaml(yaml.safe_dump(text), origin)


def _edges(dimensions: Sequence[Dimension]) -> Iterator[dict[str, object]]:
    """The links between two NPUs that differ in one dimension, each once, both ways."""
    strides = [prod(npus for _, npus, *_ in dimensions[:at]) for at in range(len(dimensions))]
    for place in product(*(range(npus) for _, npus, *_ in dimensions)):
        rank = sum(at * stride for at, stride in zip(place, strides, strict=True))
        for at, stride, (shape, npus, bandwidth, latency) in zip(place, strides, dimensions, strict=True):
            further = range(at + 1, npus) if shape == "FullyConnected" else [(at + 1) % npus]
            if shape == "Ring" and npus == 2 and at == 1:
                continue
            for other in further:
                link = {"bandwidth_gbs": bandwidth * GB, "latency_ns": latency}
                yield {"from": rank, "to": rank + (other - at) * stride, **link}


def replay(files: AstraFiles, setup: AstraSetup, limits: Sequence[tuple[str, int]] = ()) -> JobReport:
    """The set-up's job on its machine, every collective by the algorithm that `ahbm.distributed` would choose; one
    computation and one communication of a rank at a time.

    Raises as `machine` and `ahbm.open`.
    """
    how = How(
        groups=files.groups if files.has_groups else None,
        lanes="astra",
        quickest=True,
        reading=replace(PLAIN, limits=(("file_bytes", FILE_BYTES), *limits)),
    )
    # Whole activations are messages, too long for the slots of a small memory.
    overrides = {"defaults.buffer_kind": "hbm"}
    network = Setup(machine(setup.dimensions, str(files.network), setup.roofline), overrides=overrides)
    target = f"{files.workload}.0.et"
    job = read(target, how).on_network([npus for _, npus, *_ in setup.dimensions])
    return replay_job(job, plans.label(target), network, how)
