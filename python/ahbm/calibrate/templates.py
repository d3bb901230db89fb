"""Templates: the machine that the head of a table speaks of, before it is fitted, and its library's algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

import yaml

from ahbm._core import Machine
from ahbm.base import packaged
from ahbm.base.load import load_text
from ahbm.calibrate import constants
from ahbm.calibrate.accelerators import Accelerator, known, named, names
from ahbm.calibrate.tables import Table
from ahbm.errors import ConfigError

ALGORITHMS = {
    "all_reduce": ("ring_allreduce",),
    "all_gather": ("ring_all_gather",),
    "reduce_scatter": ("ring_reduce_scatter",),
    "all_to_all": ("grouped_all_to_all",),
    "broadcast": ("binomial_broadcast",),
    "reduce": ("binomial_reduce",),
}
"""What a template's library runs, by collective."""
AMONG_NODES = {"all_reduce": ("double_binary_tree_allreduce", "ring_allreduce")}
"""What it runs where tables of several numbers of nodes tell its algorithms apart: small arrays, and large ones."""
PROTOCOLS = 3
"""Those of small arrays, as NCCL has them; a call of a large one has the step and the bandwidth of two of these."""
UNSTATED = {"unknown": True}
"""The section `pe.roofline` of a machine of an accelerator that nobody has told us of: a job does not compute on it."""
USUAL = known("A100")
"""Whose links, interfaces and memory the machine of such an accelerator starts from: its bandwidths follow from its
tables."""


@dataclass(frozen=True)
class Template:
    """A machine to fit."""

    name: str
    tree: Mapping[str, Any]
    """As `topology.yaml` declares it, without protocols."""
    size: int | None = None
    """Ranks of a node, where there can be several."""
    launch_ns: float | None = None
    """Of every collective, where the template says so."""
    steps_ns: Sequence[float] = field(default=())
    """Of the template's protocols, in the order of their steps."""
    several: bool = False
    """Whether several numbers of nodes tell algorithms apart."""
    ranges: Sequence[Mapping[str, Any]] = ()
    """The sizes that its protocols were fitted to, where it was itself."""
    alone_too: bool = False
    """Whether a single node is among several numbers of them: inside it, no interface says what bytes take."""

    def algorithms(self, collective: str) -> Sequence[str | None]:
        """Those whose times are told apart, one for each of the protocols that it may go with; None is what the
        emulator chooses among its own."""
        named = (self.tree.get("library") or {}).get(collective)
        if not self.several or named != list(AMONG_NODES.get(collective, ())):
            return [None]
        small, large = named
        return [small] * PROTOCOLS + [large]

    def machine(self, ranks: int, link_gbs: float | None = None, nic_gbs: float | None = None) -> dict[str, Any]:
        """The tree for so many ranks, whose links carry at least `link_gbs`, and whose interfaces at least `nic_gbs`,
        where these are given."""
        tree: dict[str, Any] = deepcopy(dict(self.tree))
        sips = tree["system"]["sips"]
        sips["count"] = ranks
        if link_gbs is not None:
            link = sips["link"] = dict(sips.get("link") or {})
            link["bandwidth_gbs"] = max(float(link.get("bandwidth_gbs", 128)), link_gbs)
            if self.size is not None:
                nic_gbs = link_gbs / self.size
        if nic_gbs is not None:
            nodes = sips["nodes"] = dict(sips.get("nodes") or {})
            own = float(nodes.setdefault("nic_gbs", 50.0))
            # More than the interfaces carry is what switches on the way reduce.
            if nic_gbs > own:
                nodes["striped_gain"] = max(float(nodes.get("striped_gain", 1)), ceil(1e6 * nic_gbs / own) / 1e6)
        return tree

    def among(self, tables: Sequence[Table]) -> Template:
        """The template for tables of several numbers of nodes whose library has several algorithms: these are told
        apart, and the launch is its own, or NCCL's, and no more than half of the least time."""
        nodes = {table.nodes for table in tables}
        if self.size is None or len(nodes) < 2:
            return self
        found = replace(self, several=1 not in nodes, alone_too=1 in nodes)
        if all(len(found.algorithms(table.collective)) < 2 for table in tables):
            return found
        least = min(row.us for table in tables for row in table.rows)
        launch = min(constants.steps().launch if self.launch_ns is None else self.launch_ns / 1000, least / 2)
        return replace(found, tree={**self.tree, "launch": {"overhead_ns": round(1000 * launch, 3)}})


def of(tables: Sequence[Table], accelerator: str | None = None, nic_gbs: float | None = None) -> Template:
    """The template that the heads of tables ask for.

    accelerator: it, whatever the heads say; nic_gbs: GB/s of its share of the network interfaces of its node, where
    these are others than usual. Raises ConfigError (AHBM-C195) for heads that contradict, and for an accelerator that
    is not known.
    """
    first = tables[0]
    across = [table for table in tables if table.nodes > 1]
    sizes = {table.ranks // table.nodes for table in across} or {max(table.ranks for table in tables)}
    said = known(first.accelerator) if accelerator is None else named(accelerator)
    facts = said or USUAL
    assert facts is not None, "the usual one is known"
    if len({table.accelerator for table in tables}) > 1 or (len(sizes) > 1 and facts.domain is None):
        machines = ", ".join(f"{table.name}: {table.ranks // table.nodes} x {table.accelerator}" for table in tables)
        raise ConfigError(
            "AHBM-C195",
            f"the tables are of different machines ({machines})",
            hint="calibrate each of them alone, or name a template with -t",
        )
    size = facts.domain or max(sizes)
    alone = all(table.ranks <= size for table in tables)
    tree = _tree(facts, size, alone, nic_gbs)
    if said is None:
        tree["pe"]["roofline"] = dict(UNSTATED)
        tree.pop("compute", None)
    if len({table.nodes for table in across}) > 1 and len(across) == len(tables):
        tree["library"] |= {collective: list(algorithms) for collective, algorithms in AMONG_NODES.items()}
    return Template(first.accelerator or "unknown", tree, None if alone else size)


def declared(path: str | Path) -> dict[str, Any]:
    """The tree of a `topology.yaml`, or of a packaged machine.

    Raises ConfigError (AHBM-C195), and TopologyError for what is no machine.
    """
    name = str(path)
    place = packaged.TOPOLOGIES / f"{name}.yaml" if name in packaged.names(packaged.TOPOLOGIES, ".yaml") else Path(path)
    try:
        text = load_text(place, 1 << 20)
    except OSError as error:
        raise ConfigError("AHBM-C195", f"template {name} cannot be read: {error}") from error
    # What is no machine, or a bomb of aliases, goes no further.
    Machine.from_yaml(text, name, [])
    return yaml.safe_load(text) or {}


def read(path: str | Path, whole: bool = False) -> Template:
    """The template in a `topology.yaml`, or of a packaged machine; `whole`: with its launch and protocols. Raises as
    `declared`."""
    name, tree = str(path), declared(path)
    if not isinstance((tree.get("system") or {}).get("sips"), dict):
        raise ConfigError("AHBM-C195", f"template {name} has no system.sips", hint="give a topology.yaml")
    ranges = (tree.get("calibration") or {}).get("ranges") or ()
    tree = {key: value for key, value in tree.items() if key not in ("protocol", "calibration")}
    protocols, launch = tree.get("protocols") or {}, tree.get("launch") or {}
    if not whole:
        tree = {key: value for key, value in tree.items() if key not in ("protocols", "launch")}
    sips = tree["system"]["sips"]
    size = int((sips.get("nodes") or {}).get("size", 8)) if sips.get("topology") == "nodes" else None
    steps = sorted(float(each.get("step_ns", 0)) for each in protocols.values() if isinstance(each, dict))
    overhead = launch.get("overhead_ns") if isinstance(launch, dict) else None
    return Template(name, tree, size, None if overhead is None else float(overhead), steps, ranges=ranges)


def alone(facts: Accelerator) -> dict[str, Any]:
    """Eight accelerators of one node, by their data sheet alone."""
    return _tree(facts, 8, True, None)


def computing(tree: Mapping[str, Any], accelerator: str) -> dict[str, Any]:
    """The tree of a machine that computes as an accelerator. Raises ConfigError (AHBM-C195) for one that is not
    known."""
    facts = named(accelerator)
    rest = {key: value for key, value in tree.items() if key != "compute"}
    return {**rest, "pe": {**(tree.get("pe") or {}), "roofline": facts.roofline()}, **_compute(facts)}


def _compute(facts: Accelerator) -> dict[str, Any]:
    section = facts.compute()
    return {} if section is None else {"compute": section}


def unstated(tree: Mapping[str, Any], accelerator: str) -> list[str]:
    """The note on a machine that does not say what it computes at; none for one that does."""
    if not ((tree.get("pe") or {}).get("roofline") or {}).get("unknown"):
        return []
    whose = f"of {accelerator}" if accelerator else "of the accelerator, which the table does not name,"
    return [
        f"no data sheet {whose} is known: jobs do not compute on this machine. --accelerator names one of "
        f"{', '.join(names())}, or pe.roofline states peak_tflops and memory_gbs"
    ]


def _tree(facts: Accelerator, size: int, alone: bool, nic_gbs: float | None) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((packaged.TOPOLOGIES / "npu_fully_connected_8.yaml").read_text("utf-8"))
    # What a library's messages wait for is in its protocols; the links have bandwidths alone.
    link = {"latency_ns": 0, "bandwidth_gbs": facts.link_gbs}
    if not alone:
        nodes = {
            "size": size,
            "switch_ns": 0,
            "nic_latency_ns": 0,
            "nic_gbs": nic_gbs or facts.nic_gbs,
            "striped": True,
        }
        sips: dict[str, Any] = {"count": size, "topology": "nodes", "link": link, "nodes": nodes}
    elif facts.mesh:
        # A ring over a mesh has channels in all directions: the links of an accelerator together.
        sips = {"count": size, "topology": "fully_connected", "link": link}
    else:
        sips = {"count": size, "topology": "switch", "link": link, "switch": {"latency_ns": 0}}
    # Messages are short where many ranks share an array: what they pipeline in is shorter.
    tree["system"] = {"flit_bytes": 16, "sips": sips}
    tree["cube"]["memory_map"] = {"hbm_total_gb": facts.memory_gb}
    # One engine hands over what a rank sends: bandwidths are those of all of its channels together.
    tree["pe"]["dma"] = {"setup_ns": 0}
    # Slots are in the accelerator's memory.
    tree["pe"]["tcm"]["mb"] = facts.memory_gb * 1024
    tree["pe"]["roofline"] = facts.roofline()
    tree |= _compute(facts)
    tree["library"] = {collective: list(algorithms) for collective, algorithms in ALGORITHMS.items()}
    return tree
