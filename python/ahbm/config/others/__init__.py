"""Machines as files of other tools describe them, read as machines of this one.

A reader says what the file states, as keys of `system.sips`; everything else is that of a base machine: the file's own
kind of default, or the one that the user names. What was assumed is told with every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from ahbm.base import foreign
from ahbm.config.others import astra_network, nccl_graph, nccl_topology, rocm, schedules, simgrid, smi, synthesizers
from ahbm.config.others.described import Described

Reader = Callable[[str, str, Mapping[str, object]], Described]
_READERS: dict[str, Reader] = {
    foreign.NCCL_GRAPHS.what: nccl_graph.read,
    foreign.NCCL_TOPOLOGY.what: nccl_topology.read,
    foreign.SMI.what: smi.read,
    foreign.ROCM.what: rocm.read,
    foreign.ASTRA_NETWORK.what: astra_network.read,
    foreign.SIMGRID.what: simgrid.read,
    foreign.TACCL.what: synthesizers.taccl,
    foreign.TECCL.what: synthesizers.teccl,
    foreign.TACOS.what: schedules.tacos,
}
CALIBRATED = ("calibration",)
"""Sections that do not hold for another network than that of their machine."""


def read(text: str, origin: str, found: foreign.Known, asked: Mapping[str, object]) -> Described:
    """The machine that a file describes. asked: what the user sets, by dotted keys, where the file leaves it open.

    Raises TopologyError: AHBM-T104 for a file that is wrong or describes no such machine, T106 for one that lacks what
    was asked for.
    """
    return _READERS[found.what](text, origin, asked)


def joined(described: Described, base: Mapping[str, Any], named: str) -> str:
    """A topology.yaml of the file's network on everything else of a base machine, which is called `named`."""
    tree = {key: value for key, value in base.items() if key not in CALIBRATED}
    system = {key: value for key, value in (tree.get("system") or {}).items() if key != "sips"}
    tree["system"] = {**system, "sips": described.sips}
    lost = [f"the calibration of {named} does not hold for this network: the error is not known"]
    tree["assumed"] = [
        f"{described.what}: {'; '.join(described.assumed)}",
        f"what the file does not say is that of {named} (base)",
        *(lost if "calibration" in base else []),
    ]
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120)
