"""Which ranks have links. Programs ask for nothing else of a topology; `ahbm` takes its machine from elsewhere."""

from ahbm.dsl.msccl.topologies.amd import amd4, amd8
from ahbm.dsl.msccl.topologies.distributed import distributed_fully_connected, distributed_hub_and_spoke
from ahbm.dsl.msccl.topologies.generic import fully_connected, hub_and_spoke, line, ring, star
from ahbm.dsl.msccl.topologies.nvidia import dgx1, dgx_a100, nvlink_only
from ahbm.dsl.msccl.topologies.topology import Topology
from ahbm.dsl.msccl.topologies.transformations import binarize_topology, reverse_topology

__all__ = [
    "Topology",
    "amd4",
    "amd8",
    "binarize_topology",
    "dgx1",
    "dgx_a100",
    "distributed_fully_connected",
    "distributed_hub_and_spoke",
    "fully_connected",
    "hub_and_spoke",
    "line",
    "nvlink_only",
    "reverse_topology",
    "ring",
    "star",
]
