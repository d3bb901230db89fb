"""Networks of dimensions, as ASTRA-sim has them: every NPU is joined with those that differ in one dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

GB = 2**30 / 10**9
"""ASTRA-sim's GB/s in GB/s of 10^9 bytes."""
PACKAGED = {"Ring": "npu_ring_8", "Switch": "npu_switch_8", "FullyConnected": "npu_fully_connected_8"}
"""The machine of NPUs whose inside costs nothing, by the shape of its network."""
NETWORK = {"Ring": "ring_1d", "Switch": "switch", "FullyConnected": "fully_connected"}
"""Networks here by the shape of their one dimension."""
MESH = "Mesh"
"""A ring without its last link, which ASTRA-sim's analytical networks do not have."""
Dimension = tuple[str, int, float, float]
"""Shape, NPUs, GB/s of 2^30 bytes, latency in ns."""


def switches(dimensions: Sequence[Dimension]) -> int:
    """Switches of all dimensions: one for each set of NPUs that differ in nothing else."""
    count = prod(npus for _, npus, *_ in dimensions)
    return sum(count // npus for shape, npus, *_ in dimensions if shape == "Switch")


def edges(dimensions: Sequence[Dimension]) -> Iterator[dict[str, object]]:
    """The links between two NPUs that differ in one dimension, or of an NPU to the switch of a dimension, each once,
    both ways. Switches have the numbers behind those of NPUs."""
    strides = [prod(npus for _, npus, *_ in dimensions[:at]) for at in range(len(dimensions))]
    for place in product(*(range(npus) for _, npus, *_ in dimensions)):
        rank = sum(at * stride for at, stride in zip(place, strides, strict=True))
        first = prod(npus for _, npus, *_ in dimensions)
        for at, stride, (shape, npus, bandwidth, latency) in zip(place, strides, dimensions, strict=True):
            if shape == "Switch":
                # Its number among those of the dimension: that of the NPU without the dimension's digit.
                own = rank // (stride * npus) * stride + rank % stride
                yield {"from": rank, "to": first + own, "bandwidth_gbs": bandwidth * GB, "latency_ns": latency}
                first += prod(npus for _, npus, *_ in dimensions) // npus
                continue
            further = range(at + 1, npus) if shape == "FullyConnected" else [(at + 1) % npus]
            if at == npus - 1 and (shape == MESH or (shape == "Ring" and npus == 2)):
                continue
            for other in further:
                link = {"bandwidth_gbs": bandwidth * GB, "latency_ns": latency}
                yield {"from": rank, "to": rank + (other - at) * stride, **link}
