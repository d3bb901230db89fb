"""What a library does with collectives that no table shows: NCCL's algorithms and constants, at the launch and the
steps that the tables of another collective tell.

An all-reduce tells the launch, the step of small arrays and the bandwidth of its links. It does not tell what a ring in
Simple takes where switches reduce, nor how sends and receives in a group overlap: there, the constants of the library's
own cost model hold. Sources: NVIDIA/nccl, src/graph/tuning.cc (steps of protocols, bandwidths of LL), by the packaged
`nccl_model.yaml`; NVIDIA/nccl-tests, issues 130, 212 and 267 (what rings reach of NVLink, and all-to-all of the links).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import Any

import numpy as np

from ahbm.base import packaged
from ahbm.calibrate import accelerators, coefficients, constants, templates, written
from ahbm.calibrate.laws import Law, Rows
from ahbm.calibrate.tables import Table
from ahbm.calibrate.templates import Template
from ahbm.selectors.files import read

ONE_WAY = {"all_gather": "ring_all_gather", "reduce_scatter": "ring_reduce_scatter"}
"""Collectives whose ring goes round once, and its algorithm."""
GROUPED, PAIRWISE = "grouped_all_to_all", "pairwise_all_to_all"
SMALL = 1 << 13
"""Bytes at which all-reduce's latency is that of other collectives: smaller ones of it may use fewer threads."""
RING_SHARE = {"hopper": 0.82, "blackwell": 0.75}
"""What rings reach of NVLink, of accelerators whose switches reduce, so that their all-reduce does not tell it: 370 of
450 GB/s, and 675 of 900."""
NIC_SHARE = 0.94
"""What rings between nodes reach of the network interfaces: 188 of 200 GB/s, 376 of 400."""
PLAIN_SHARE = 0.78
"""What they reach of the links of others: 232 of 300 GB/s."""
GROUP_STEPS = 0.65
"""What the group of sends and receives of an all-to-all takes of what the steps of a small all-reduce do."""
GROUP_SHARE, MESH_SHARE = 0.93, 0.8
"""What an all-to-all reaches of what a ring does, through a switch, and over a mesh of links."""


GENERATIONS = {
    "volta": ("V100",),
    "ampere": ("A100", "A800"),
    "hopper": ("H100", "H800", "H200", "GH200"),
    "blackwell": ("B200", "B300", "GB200", "GB300"),
}
"""In NCCL's model, with what the names of their accelerators begin with."""


def generation(accelerator: str) -> str | None:
    """The generation of an accelerator in NCCL's model; None for one that it does not have, or that is not known."""
    facts = accelerators.known(accelerator)
    name = "" if facts is None else facts.name
    return next((of for of, names in GENERATIONS.items() if name.startswith(names)), None)


class Others:
    """Protocols of the collectives that the tables of an all-reduce say nothing of; of an all-gather or reduce-scatter,
    those of sends and receives in a group."""

    def __init__(self, declared: Mapping[str, Any], law: Law, table: Table, rows: Rows) -> None:
        """declared: the machine of the law; rows: those of the table."""
        self._sips = declared["system"]["sips"]
        self._law, self._table = law, table
        self._once = table.collective in ONE_WAY
        self._launch = float(declared["launch"]["overhead_ns"]) / 1000
        self._model = read(packaged.NCCL_MODEL)
        self._generation = generation(table.accelerator)
        small = rows.at(np.array([np.abs(rows.n - SMALL).argmin()]))
        of = law.protocols[int(law.used(small)[0])]
        self._floor = float(law.us(small)[0] - of.wire_us(small, small.volume[0])[0])
        # A tree sends the whole array on, and a ring a rank's share. What a ramp adds to bytes is no bandwidth of a
        # ring's, and counts.
        small = rows.at(np.array([np.abs(rows.n - SMALL / table.ranks).argmin()]))
        of = replace(law.protocols[int(law.used(small)[0])], ramp_bytes=0.0)
        self._tree = float(law.us(small)[0] - of.wire_us(small, small.volume[0])[0])
        # A bandwidth that grows with the size is not reached at the rows.
        last = rows.at(np.array([rows.n.argmax()]))
        wire = law.protocols[int(law.used(last)[0])].wire_us(last, 1.0) * last.us / law.us(last)
        self._most = float((last.n / (1000 * wire))[0])

    def protocols(self, collectives: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The section `protocols` of all_gather, reduce_scatter and all_to_all, as far as these are asked for."""
        rings = [algorithm for name, algorithm in ONE_WAY.items() if name in collectives and not self._once]
        found: dict[str, dict[str, Any]] = {}
        if rings and self._generation is not None:
            for name, (us, gbs) in self._ring().items():
                found[f"ring_{name}"] = self._keys(us, gbs, rings)
        if "all_to_all" in collectives:
            found["p2p"] = self._grouped()
        return found

    def _keys(self, us: float, gbs: float, algorithms: Sequence[str]) -> dict[str, Any]:
        """A protocol with which a small call of a ring takes so long, launch included."""
        step = max(us - self._launch, 0.0) / (self._table.ranks - 1)
        return {"step_ns": round(1000 * step, 3), "max_gbs": _rounded(gbs), "algorithms": list(algorithms)}

    def _grouped(self) -> dict[str, Any]:
        """The protocol of sends and receives in a group: all of them take one step, each over the interface of its
        rank."""
        mesh = self._sips.get("topology") == "fully_connected"
        both_ways = (self._floor - self._launch) * (2 if self._once else 1)
        step = max(GROUP_STEPS * both_ways, self._once_us() - self._launch)
        keys: dict[str, Any] = {"step_ns": round(1000 * step, 3)}
        keys["max_gbs"] = _rounded((MESH_SHARE if mesh else GROUP_SHARE) * self._inside_gbs())
        if self._table.nodes > 1:
            keys["nic_gbs"] = _rounded(self._ring_gbs() / int(self._sips["nodes"]["size"]))
        return keys | {"algorithms": [GROUPED]}

    def _ring(self) -> dict[str, tuple[float, float]]:
        """Of a ring that goes round once: us of a small call, and GB/s, by protocol."""
        table, model = self._table, self._model
        inside, between = (model["step_us"][link]["ring"] for link in ("nvlink", "network"))
        base = model["base_us"]["ring"]
        steps, crossings = _around(table)
        once = self._once_us()
        if table.nodes == 1:
            ll_gbs = float(model["generations"][self._generation]["ll_gbs"])
            slow = max(once, self._launch + steps * inside["simple"])
        else:
            processor = model["processors"][model["processor"]]
            overhead = float(processor["net_overhead_us"])
            ll_gbs = float(processor["ll_gbs"][min(table.nodes, 3) - 2])
            slow = once + base["simple"] - base["ll"] + crossings * (between["simple"] - between["ll"])
            slow += steps * (max(inside["simple"], 3 * overhead) - max(inside["ll"], overhead))
        return {"ll": (once, min(ll_gbs, self._ring_gbs())), "simple": (slow, self._ring_gbs())}

    def _once_us(self) -> float:
        """Time of a small call whose ring goes round once, in LL."""
        table = self._table
        if self._once:
            return self._floor
        if table.nodes == 1 or self._generation is None:
            return self._launch + (self._floor - self._launch) / 2
        # Between nodes, a small all-reduce goes over trees: what is not theirs inside of nodes is the network's.
        nccl, model = constants.steps(), self._model
        each = table.ranks // table.nodes
        network = (self._tree - nccl.launch - 2 * (each - 1) * nccl.inside) / (2 * log2(table.nodes))
        # A step of a ring between nodes is shorter than one of a tree.
        network = max(network * nccl.ring / nccl.tree, nccl.ring)
        overhead = float(model["processors"][model["processor"]]["net_overhead_us"])
        inside, base = float(model["step_us"]["nvlink"]["ring"]["ll"]), float(model["base_us"]["ring"]["ll"])
        steps, crossings = _around(table)
        return base + steps * max(inside, overhead) + crossings * network

    def _ring_gbs(self) -> float:
        """Bandwidth of a ring in Simple."""
        if self._table.nodes > 1:
            nodes = self._sips["nodes"]
            return min(self._most, NIC_SHARE * float(nodes["nic_gbs"]) * int(nodes["size"]))
        return self._inside_gbs()

    def _inside_gbs(self) -> float:
        """That of a ring inside of a node: no more than links carry, where the table tells it."""
        facts = accelerators.known(self._table.accelerator)
        if facts is None:
            return self._most
        share = RING_SHARE.get(self._generation or "", PLAIN_SHARE)
        most = share * facts.link_gbs
        return min(self._most, most) if self._table.nodes == 1 else most


def _around(table: Table) -> tuple[int, int]:
    """Steps inside of nodes and between them of a ring that goes round once: most ranks' shares pass every link
    between nodes, and all but one of the others."""
    return table.ranks - 1 - table.nodes * (table.nodes > 1), table.nodes * (table.nodes > 1)


def _rounded(gbs: float) -> float:
    return float(f"{gbs:.7g}")


def others(
    template: Template, declared: Mapping[str, Any], law: Law, tables: Sequence[Table], known: coefficients.Coefficients
) -> dict[str, dict[str, Any]]:
    """The section `protocols` of what the template's library runs for collectives that no table shows, where the tables
    are of collectives that go round a ring, on one number of ranks; {} elsewhere. declared: the machine of the law."""
    measured = {table.collective for table in tables}
    shown = [table for name in ("all_reduce", *ONE_WAY) for table in tables if table.collective == name]
    if len({(table.ranks, table.nodes) for table in tables}) > 1 or not shown:
        return {}
    table = max(shown, key=lambda each: (each.collective == shown[0].collective, len(each.rows)))
    own = template.tree.get("library") or {}
    others = (name for name in (*ONE_WAY, "all_to_all") if name not in measured)
    asked = [name for name in others if own.get(name) == list(templates.ALGORITHMS[name])]
    found = Others(declared, law, table, coefficients.rows([table], known)).protocols(asked)
    return {name: keys | written.wires(declared) for name, keys in found.items()}


def without_protocol(declared: dict[str, Any], tables: Sequence[Table]) -> None:
    """Lets a library send to one rank after the other where neither a protocol nor a table is of sends in a group: one
    step for all of them would be too quick."""
    own = declared.get("library") or {}
    shown = "p2p" in declared["protocols"] or any(table.collective == "all_to_all" for table in tables)
    if not shown and own.get("all_to_all") == [GROUPED]:
        declared["library"] = {**own, "all_to_all": [PAIRWISE]}
