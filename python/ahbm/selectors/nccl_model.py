"""NCCL's own cost model as a selector: latency + bytes / bandwidth for each algorithm and protocol, the least is taken.

Source of every formula: NVIDIA/nccl, src/graph/tuning.cc at 5067397c and of NCCL 2.28.3 (`ncclTopoTuneModel`,
`ncclTopoGetAlgoTime`), src/enqueue.cc (channels and threads of small calls). The constants are a file:
`ahbm/data/nccl_model.yaml`. `refusal` says what NCCL cannot run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, cached_property
from math import inf
from pathlib import Path
from typing import Any

from ahbm._core import Machine
from ahbm.base import packaged
from ahbm.config.protocols import LINK_GBS, NIC_GBS, permits
from ahbm.core.choice import SELECTOR, Choice
from ahbm.errors import ConfigError
from ahbm.selectors.files import digest, read
from ahbm.selectors.protocol import BaseSelector, Call, Comm, CostTable

PROTOCOLS = ("ll", "ll128", "simple")
WARP = 32
MOST = 640
"""Threads that a channel can have."""
SIMPLE_ONLY = ("collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
BETWEEN_NODES = ("collnet_direct", "collnet_chain", "nvls_tree")
ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Times that a ring goes round but for one step; other collectives pass along it once."""


def refusal(algorithm: str, protocol: str | None, nodes: float, each: float) -> str | None:
    """What NCCL has instead of an algorithm in a protocol among ranks on so many nodes at most, on each so many at
    least; None where it has the algorithm. A protocol that is None is any."""
    if algorithm in SIMPLE_ONLY and protocol not in (None, "simple"):
        return f"{algorithm} in simple alone, not in {protocol}"
    if algorithm in BETWEEN_NODES and nodes <= 1:
        return f"{algorithm} between nodes alone, not in one"
    if algorithm == "pat" and each > 1:
        return "pat for one rank on each node alone, not for several"
    return None


class NcclModel(BaseSelector):
    """Chooses as NCCL does without a tuner: the estimate decides, nothing is emulated."""

    name = "nccl"
    pure = True

    def __init__(self, constants: str | Path | Mapping[str, Any] | None = None) -> None:
        """constants: a file like `ahbm/data/nccl_model.yaml`, or what differs from it. Raises ConfigError (C181)."""
        own = constants if isinstance(constants, Mapping) else read(constants) if constants else {}
        known = read(packaged.NCCL_MODEL)
        if unknown := sorted(own.keys() - known.keys()):
            raise ConfigError("AHBM-C181", f"no constants of NCCL's model: {', '.join(map(str, unknown))}")
        # Who says what stands for NCCL's algorithms says all of it.
        self._constants = {**known, **({"stand_ins": {}} if "algorithms" in own else {}), **own}
        self._bus_gbs = self._constants["bus_gbs"]
        self._machine: Machine | None = None
        self._checked()

    @classmethod
    def of(cls, machine: Machine) -> NcclModel | None:
        """The model of NCCL on a machine of an accelerator that NCCL knows; None for another.

        The bandwidth is what NCCL reckons with: that of NVLink by its own constants, no more than the machine's link
        has, and between nodes no more than their network interfaces. CollNet is there where the machine says that the
        network reduces, NVLS where a switch joins the accelerators.
        """
        known = read(packaged.NCCL_MODEL)
        name = (machine.sheet[0] or "").upper()
        generation = next((which for part, which in known["accelerators"].items() if part in name), None)
        if generation is None:
            return None
        facts = dict(machine.parameters)
        bus = min(float(known["generations"][generation]["nvlink_gbs"]), _gbs(facts[LINK_GBS]))
        if NIC_GBS in facts and machine.node_size < machine.sips:
            bus = min(bus, machine.node_size * _gbs(facts[NIC_GBS]))
        missing: tuple[str, ...] = () if machine.topology in ("switch", "nodes") else ("nvls",)
        if facts.get("system.sips.nodes.spine_reduces") != "true":
            missing += ("collnet",)
        base = {name: us for name, us in known["base_us"].items() if not name.startswith(missing)}
        return cls({"generation": generation, "bus_gbs": bus, "base_us": base})

    def own(self, collective: str, nbytes: int, ranks: int, nodes: int) -> tuple[str, str] | None:
        """The algorithm and the protocol that NCCL takes where nobody tells it; None where it has none."""
        call = Call(collective, nbytes, ranks, nodes)
        found = {name: self.best(name, call) for name in self._constants["base_us"]}
        name = min(found, key=lambda each: found[each][0])
        return (name, found[name][1]) if found[name][0] < inf else None

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the constants."""
        return digest(json.dumps(self._constants, sort_keys=True))

    def init(self, comm: Comm) -> None:
        """See `Selector`. Where the constants state no bandwidth, that of the machine's SIP link holds."""
        self._machine = None if comm.emulator is None else comm.emulator.machine
        if self._bus_gbs is None:
            if comm.emulator is None:
                raise ConfigError("AHBM-C181", "NCCL's model has neither a bus_gbs nor a machine")
            stated = dict(comm.emulator.machine.parameters)["system.sips.link.bandwidth_gbs"]
            self._bus_gbs = float(stated.removesuffix("GB/s"))

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | None:
        """See `Selector`. Writes its estimates into the table."""
        chosen, least = None, inf
        candidates = self._candidates(table)
        for at, name in enumerate(table.algorithms):
            if name not in candidates:
                continue
            us, protocol = self.best(candidates[name], call)
            table.us[at] = us
            if us < least:
                chosen, least = (name, protocol), us
        if chosen is None:
            return None
        channels, threads = self.size(candidates[chosen[0]], chosen[1], call)
        own = chosen[1] if self._has(chosen[1], call) else None
        return Choice(SELECTOR, chosen[0], protocol=own, channels=channels, threads=threads)

    def _has(self, protocol: str, call: Call) -> bool:
        """Whether the machine's library has a protocol for a call; else the machine takes one of its own."""
        machine = self._machine
        names = [] if machine is None else [protocol.name for protocol in machine.protocols]
        if machine is None or not names:
            return True
        return protocol in names and permits(machine, protocol, call.nbytes, call.ranks)

    def _candidates(self, table: CostTable) -> dict[str, str]:
        """By name, the algorithm of NCCL that each candidate is, or stands for where no candidate is that one."""
        own = {name: what for name, what in self._constants["algorithms"].items() if table.allows(name)}
        others = {name: what for name, what in self._constants["stand_ins"].items() if table.allows(name)}
        return {name: what for name, what in others.items() if what not in own.values()} | own

    def best(self, algorithm: str, call: Call) -> tuple[float, str]:
        """The least time in us of an algorithm of NCCL for a call, and its protocol; infinite where it has none."""
        times = [(self.time_us(algorithm, protocol, call), protocol) for protocol in PROTOCOLS]
        return min(times, key=lambda time: time[0])

    def time_us(self, algorithm: str, protocol: str, call: Call) -> float:
        """The model's time of a call in us: `latency + bytes / (1000 * bandwidth)`; infinite for what NCCL does not."""
        if call.ranks < 2 or protocol not in self._constants["base_us"].get(algorithm, {}):
            return inf
        gbs = self.bandwidth_gbs(algorithm, protocol, call)
        if gbs <= 0:
            return inf
        correction = self._constants["tree_correction"][protocol]
        if algorithm == "tree" and 0 <= (at := (call.nbytes >> 6).bit_length() - 1) < len(correction):
            gbs *= correction[at]
        latency = self.latency_us(algorithm, protocol, call)
        over_nodes = algorithm == "ring" and protocol == "simple" and call.nodes > 1 and call.collective == "all_reduce"
        share = self._constants["channels"] * call.ranks * self._constants["ring_plateau_bytes"]
        if over_nodes and call.nbytes >= share:
            latency *= self._constants["generations"][self._constants["generation"]]["ring_plateau"]
        return latency + call.nbytes / (1000 * gbs)

    def bandwidth_gbs(self, algorithm: str, protocol: str, call: Call) -> float:
        """The model's bandwidth of a call in GB/s of its size, before corrections; 0 for what NCCL does not do."""
        if refusal(algorithm, protocol, call.nodes, call.ranks / call.nodes):
            return 0.0
        facts, channels = self._constants["generations"][self._constants["generation"]], self._constants["channels"]
        column = min(call.nodes, 3) - 1
        # The processors of nodes decide between them, the GPUs inside of one.
        ll_gbs = facts["ll_gbs"] if column == 0 else self._processor["ll_gbs"][column - 1]
        reduces = call.collective == "all_reduce"
        bus = float(self._bus_gbs)
        if algorithm == "ring":
            if protocol == "ll":
                bus = min(ll_gbs, bus / 2)
            elif protocol == "ll128":
                bus = min(bus * 0.92, channels * facts["channel_ring_ll128_gbs"][column])
            return float(bus * call.ranks / _steps(call.collective, call.ranks))
        if algorithm == "tree" and reduces:
            bus = min(bus * 0.92, channels * facts["channel_tree_gbs"][column])
            if protocol == "ll":
                bus = min(bus / 3.8, ll_gbs)
            elif protocol == "ll128":
                share = 7 / 9 if call.nodes == 1 else 120 / 128
                bus = min(bus * share, channels * facts["channel_tree_ll128_gbs"][column])
            return float(bus / 2)
        if algorithm == "nvls" or (algorithm == "nvls_tree" and reduces):
            local = call.ranks / call.nodes
            inside = bus * facts["nvls_efficiency"] * (channels - 1) / channels
            # An all-reduce goes up and down at once.
            inside *= 2 if reduces else (local - 1) / local
            if algorithm == "nvls_tree":
                between = bus * (2 if call.nodes == 2 else 1)
                bus = min(inside, between, channels * facts["channel_nvls_tree_gbs"][column])
            else:
                bus = min(inside, bus)
            return float(bus * call.ranks / _steps(call.collective, call.ranks) if reduces else bus)
        if algorithm.startswith("collnet") and reduces:
            if algorithm == "collnet_direct":
                # Full speed needs an interface for each rank; NCCL takes half of what is missing.
                each = call.ranks / call.nodes / channels
                bus *= facts["collnet_direct_efficiency"] / (each - (each - 1) / 2)
            return float(bus / 2)
        if algorithm == "pat" and call.collective in ("all_gather", "reduce_scatter"):
            return float(bus * 0.75)
        return 0.0

    def latency_us(self, algorithm: str, protocol: str, call: Call) -> float:
        """The model's latency of a call in us, without the plateau of rings."""
        constants, nodes, ranks = self._constants, call.nodes, call.ranks
        base = constants["base_us"][algorithm][protocol]
        intra = constants["step_us"][constants["link"]][algorithm][protocol]
        network = constants["step_us"]["network"]
        # Nothing hides the network from ranks that are alone on their nodes.
        inter = network["tree" if ranks == nodes else algorithm][protocol]
        if algorithm == "ring":
            if call.collective not in ROUNDS:
                return float(base + (intra if nodes == 1 else network["ring"][protocol]))
            if nodes > 1:
                intra = max(intra, self._processor["net_overhead_us"] * (3 if protocol == "simple" else 1))
            steps, between = _steps(call.collective, ranks), ROUNDS[call.collective] * (nodes - 1)
            return float(base + (steps - between) * intra + between * inter)
        if algorithm == "tree":
            return float(base + 2 * ((ranks // nodes - 1) * intra + (nodes.bit_length() - 1) * inter))
        if algorithm == "collnet_direct":
            others = ranks // nodes - 1
            return float(base + 2 * (min(1, others) * intra + others * constants["collnet_rank_us"]) + inter)
        if algorithm == "collnet_chain":
            return float(base + 2 * (ranks // nodes - 1) * intra + inter)
        if algorithm == "nvls_tree":
            return float(base + intra + 2 * (nodes.bit_length() - 1) * inter)
        if algorithm == "pat":
            each, step = constants["pat_rank_us"], inter / constants["pat_steps_at_once"]
            return float(base + (nodes.bit_length() - 1) * step + ranks * each)
        return float(base + intra + (inter if nodes > 1 else 0.0))

    def size(self, algorithm: str, protocol: str, call: Call) -> tuple[int, int]:
        """Channels and threads of each: of rings, and channels of all but NVLS, fewer while a thread had less than the
        threshold to do."""
        if algorithm in ("nvls", "nvls_tree"):
            return self._constants["channels"], MOST
        channels, threads = self._constants["channels"], self._constants["threads"][protocol]
        threshold = self._constants["thread_threshold_bytes"][protocol]
        if algorithm == "ring" and protocol == "ll":
            threshold *= call.ranks
        while call.nbytes < channels * threads * threshold and channels >= 2:
            channels -= 1
        if algorithm != "ring":
            return channels, MOST
        while call.nbytes < channels * threads * threshold and threads % (4 * WARP) == 0:
            threads //= 2
        return channels, max(threads, 3 * WARP)

    @property
    def _processor(self) -> Mapping[str, Any]:
        """What depends on the processors of nodes."""
        found: Mapping[str, Any] = self._constants["processors"][self._constants["processor"]]
        return found

    def _checked(self) -> None:
        """Raises ConfigError (AHBM-C181) for constants that the formulas cannot use."""
        try:
            self._bus_gbs = 1.0 if self._bus_gbs is None else float(self._bus_gbs)
            algorithms = {*self._constants["algorithms"].values(), *self._constants["stand_ins"].values()}
            for algorithm in sorted(algorithms | set(self._constants["base_us"])):
                for collective in ("all_reduce", "all_gather", "broadcast"):
                    for nodes in (1, 2, 4):
                        call = Call(collective, 1 << 20, 8 * nodes, nodes)
                        us, protocol = self.best(algorithm, call)
                        if not us > 0:
                            raise ValueError(f"{algorithm} takes {us} us")
                        self.size(algorithm, protocol, call)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
            raise ConfigError(
                "AHBM-C181",
                f"the constants of NCCL's model do not fit: {type(error).__name__}: {error}",
                hint=f"begin with a copy of {packaged.NCCL_MODEL.name}, which the package has in ahbm/data",
            ) from error
        self._bus_gbs = self._constants["bus_gbs"]


@cache
def generations() -> tuple[NcclModel, ...]:
    """The model on one node of each generation of accelerators."""
    known = read(packaged.NCCL_MODEL)
    base = {name: us for name, us in known["base_us"].items() if not name.startswith("collnet")}
    return tuple(
        NcclModel({"generation": name, "bus_gbs": facts["nvlink_gbs"], "base_us": base})
        for name, facts in known["generations"].items()
    )


def _gbs(text: str) -> float:
    return float(text.removesuffix("GB/s"))


def _steps(collective: str, ranks: int) -> int:
    """Steps of a ring."""
    return ROUNDS[collective] * (ranks - 1) if collective in ROUNDS else ranks
