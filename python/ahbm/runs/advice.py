"""Changes of the machine, and lines at no cost, that would make a run shorter, simulated again; and bounds from the
critical path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from ahbm.base.yaml_source import did_you_mean, scalar_text
from ahbm.config.protocols import ALIKE, LINK_GBS, NIC_GBS, RELATIVE, forced, in_steps
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm._core import Machine, Program

MOST_RUNS = 12
"""Changes that are simulated for one list of advice."""
MOST_LINES = 5
"""Lines that are simulated at no cost: those that the critical path spends the most time on."""
BUDGET = 3_000_000
"""Engine events and operations that these runs may have together; about a second."""
SINGLE_LINKS = 3
"""Links that are tried alone: those that the critical path spends the most time on."""
MOST = 5
"""Pieces of advice that are told."""
SIMULATED = "simulated again"
SHARE = "its share of the path"

SIPS, CUBES, CHIPLETS, INSIDE = "between SIPs", "between cubes", "between cubes and I/O chiplets", "inside cubes"
HBM, SRAM, REDUCER = "of the HBM", "of the SRAM", "of the switch's reducer"

CHOOSE, _SEED = "system.sips.routes.choose", "system.sips.routes.seed"
_FABRIC = "system.sips.nodes.fabric."

_UNITS = {"ps": 1e-3, "GB/s": 1.0}
_UNLIMITED = float(2**63)
_BYTES = ("link serialisation", "link contention")
_LATENCY = ("wire latency", "credit")


@dataclass(frozen=True)
class Advice:
    """A change, and the time that it saves."""

    what: str
    gain_ps: int
    """ps that it saves, negative where the run takes longer; of a bound the most that it can save."""
    way: str
    """`SIMULATED`: the same program ran on the changed machine, or without the costs of the line. `SHARE`: a bound, the
    time of the critical path that it concerns. A bound holds as long as messages take shared links and engines in the
    same order."""
    latency_ps: int | None = None
    """The latency with the change; None for a bound."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """The overrides that make the change; empty where it concerns one link or line."""
    line: str = ""
    """The line whose operations cost nothing; empty for everything else."""
    algorithm: str = ""
    """The algorithm that ran instead; empty where the program stayed as it is."""
    command: str = ""
    """The command line that shows it; empty where none does."""
    asked: bool = False
    """Whether the reader asked for it: it is told whatever it saves."""


@dataclass(frozen=True)
class Lever:
    """A change of the machine that may help."""

    what: str
    keys: tuple[str, ...]
    """The parameters that it changes; patterns."""
    value: str
    categories: tuple[str, ...]
    """The categories that it can shorten, of the path's time on no link."""
    links: str = ""
    """The class of links whose time it can shorten."""

    def changes(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """The overrides for a machine; those alone that change something."""
        if self.keys == (CHOOSE,):
            hashed = parameters.get(CHOOSE, "ecmp") == "ecmp" and any(key.startswith(_FABRIC) for key in parameters)
            return {CHOOSE: self.value, **({_SEED: "null"} if _SEED in parameters else {})} if hashed else {}
        found, switch = {}, parameters["system.sips.topology"] == "switch"
        for key, old in parameters.items():
            if not switch and key.startswith("system.sips.switch."):
                continue
            if any(fnmatchcase(key, pattern) for pattern in self.keys):
                new = resolved(self.value, old)
                if new != (resolved("1x", old) if RELATIVE.fullmatch(self.value) else old):
                    found[key] = new
        return found


def _quicker(links: str, *keys: str) -> Lever:
    """Bytes on these links; a credit is some bytes too."""
    return Lever(f"twice the bandwidth of all links {links}", keys, "2x", (*_BYTES, "credit"), links)


OF_SIPS = (
    LINK_GBS,
    "system.sips.links.*.bandwidth_gbs",
    "system.sips.edges.*.bandwidth_gbs",
    NIC_GBS,
    "system.sips.nodes.fabric.bandwidth_gbs",
)
"""The bandwidths of links between SIPs; patterns."""

LEVERS = (
    _quicker(SIPS, *OF_SIPS),
    _quicker(CUBES, "cube.ucie.bandwidth_gbs"),
    _quicker(CHIPLETS, "sip.io.bandwidth_gbs"),
    _quicker(INSIDE, "cube.noc.link_gbs", "pe.noc_port_gbs", "pe.noc_port_in_gbs"),
    _quicker(HBM, "pe.hbm.pc_bandwidth_gbs"),
    _quicker(SRAM, "cube.sram.bandwidth_gbs"),
    _quicker(REDUCER, "system.sips.switch.reduce_gbs"),
    Lever(
        "no latency between SIPs",
        (
            "system.sips.link.latency_ns",
            *("system.sips.links.*.latency_ns", "system.sips.edges.*.latency_ns", "system.sips.switch.latency_ns"),
        ),
        "0x",
        _LATENCY,
    ),
    Lever(
        "no latency inside SIPs",
        ("cube.ucie.*_ns", "sip.io.*t*_ns", "cube.noc.router_ns", "cube.noc.pitch_mm", "pe.hbm.access_ns"),
        "0x",
        _LATENCY,
    ),
    Lever("ways by the place of the destination instead of a hash", (CHOOSE,), "rails", _BYTES, SIPS),
    Lever("DMA without set-up", ("pe.dma.setup_ns",), "0x", ("DMA",)),
    Lever("receives that do not wait for their credit", ("ipcq.credit.blocks_receiver",), "false", ("credit",)),
    Lever("no dispatch", ("pe.dispatch_ns",), "0x", ("dispatch",)),
    Lever("sends and receives without management of queues", ("ipcq.send_ns", "ipcq.recv_ns"), "0x", ("slot I/O",)),
    Lever("math engines of twice the speed", ("pe.math.f16_per_ns", "pe.gemm.macs_per_ns"), "2x", ("math",)),
)


def link_class(name: str) -> str:
    """The class of a link, by its name."""
    if name.endswith(".reducer"):
        return REDUCER
    if "->" in name:
        return SIPS
    end = name.rpartition(".")[2]
    for start, kind in (("ucie", CUBES), ("io_", CHIPLETS), ("hbm_", HBM), ("sram_", SRAM)):
        if end.startswith(start):
            return kind
    return INSIDE


def resolved(value: object, now: str | None) -> str:
    """The text of an override: `value` itself, or, of "2x" or "×2", so many times the parameter `now`.

    `now`: as `Machine.parameters` has it. Raises ConfigError (AHBM-C146) for a factor of what is no number.
    """  # noqa: RUF002
    text = scalar_text(value)
    match = RELATIVE.fullmatch(text)
    if match is None:
        return text
    unit = next((unit for unit in _UNITS if now is not None and now.endswith(unit)), "")
    try:
        number = float((now or "").removesuffix(unit)) * _UNITS.get(unit, 1.0)
    except ValueError as error:
        raise ConfigError("AHBM-C146", f"{text} of {now}: that is no number", hint="give the new value") from error
    if number >= _UNLIMITED:
        return ".inf"
    return f"{number * float(match[1] or match[2]):.12f}".rstrip("0").rstrip(".")


class Advisor:
    """Simulates the program of an explained run on changed machines."""

    def __init__(self, program: Program, latency_ps: int, cost: int) -> None:
        """`cost`: engine events and operations of the run."""
        self._program = program
        self._machine: Machine = program.machine
        self._parameters = dict(self._machine.parameters)
        self._latency_ps = latency_ps
        self._cost = max(cost, 1)

    def what_if(self, changes: Mapping[str, object]) -> Advice:
        """The same program on the changed machine; raises as `Explanation.what_if`."""
        changes = in_steps(self._machine, changes)

        def found(parameters: Mapping[str, str]) -> dict[str, str]:
            of = {}
            for key, value in changes.items():
                now = parameters.get(key)
                if now is None and RELATIVE.fullmatch(scalar_text(value)):
                    hint = did_you_mean(key, parameters)
                    raise ConfigError("AHBM-C107", f"{key}: the machine has no such parameter to scale", hint=hint)
                of[key] = resolved(value, now)
            return of

        what = ", ".join(f"{key}={value}" for key, value in found(self._parameters).items())
        return replace(self._changed(found, what), asked=True)

    def _changed(self, changes: Callable[[Mapping[str, str]], dict[str, str]], what: str) -> Advice:
        """The same program under the overrides that are the `changes` of a machine of these parameters. Calls find
        their protocols on the changed machine, with the bandwidths of their size."""
        found, own = changes(self._parameters), self._machine.protocol
        machine = self._machine.changed(list(found.items()))
        if machine.protocol is not None and machine.protocol != own:
            for name, nbytes, _ in self._program.protocols(ALIKE):
                if nbytes and name != machine.protocol:
                    forced(machine, machine.protocol, nbytes)
        return self._again(self._program.on(machine), what, found)

    def twice(self, number: int, name: str) -> Advice:
        """Twice the bandwidth of one link, by number and name."""
        return self._again(self._program.on(self._machine, [number]), f"twice the bandwidth of {name} alone", {})

    def instant(self, number: int, name: str) -> Advice:
        """One link without latency, by number and name."""
        return self._again(self._program.on(self._machine, (), [number]), f"no latency of {name} alone", {})

    def without(self, number: int, line: str) -> Advice:
        """A line whose operations cost nothing, by number and name: only their waits take time."""
        latency_ps = self._program.latency_without([number])
        return Advice(f"{line} at no cost", self._latency_ps - latency_ps, SIMULATED, latency_ps, line=line)

    def advise(
        self,
        unlinked: Mapping[str, int],
        links: list[tuple[int, str, int]],
        lines: list[tuple[int, str, int]],
        budget: int | None,
    ) -> list[Advice]:
        """The changes and lines that concern at least 1 % of the path: the simulated ones first, changes before lines,
        the best first.

        unlinked: ps of the path on no link, by category. links and lines: number, name and ps of the path, the largest
        first; the number of a line without a source is -1. budget: engine events and operations of all runs; None does
        not limit them.
        """
        # Bound, change in words, how it is made, the overrides that make it.
        tried: list[tuple[int, str, Callable[[], Advice], dict[str, str]]] = []
        levers = [(lever.what, lever.changes, _bound(lever, unlinked, links)) for lever in self._levers()]
        for what, changes, bound in [*levers, ("a machine without faults", _faults, self._latency_ps)]:
            if found := changes(self._parameters):
                tried.append((bound, what, partial(self._changed, changes, what), found))
        on_wires = sum(unlinked.get(name, 0) for name in _LATENCY)
        for number, name, ps in links[:SINGLE_LINKS]:
            tried.append(((ps + 1) // 2, f"twice the bandwidth of {name} alone", partial(self.twice, number, name), {}))
            tried.append((on_wires, f"no latency of {name} alone", partial(self.instant, number, name), {}))
        tried = sorted((entry for entry in tried if 100 * entry[0] >= self._latency_ps), key=lambda entry: -entry[0])
        lines = [line for line in lines if 100 * line[2] >= self._latency_ps]
        left = MOST_RUNS + MOST_LINES if budget is None else budget // self._cost
        runs = min(MOST_RUNS, left, len(tried))
        alone = [line for line in lines if line[0] >= 0][: min(MOST_LINES, left - runs)]
        simulated = [make() for _, _, make, _ in tried[:runs]]
        without = [self.without(number, name) for number, name, _ in alone]
        bounds = [Advice(what, bound, SHARE, None, changes) for bound, what, _, changes in tried[runs:]]
        of_lines = [Advice(f"{n} at no cost", ps, SHARE, line=n) for at, n, ps in lines if (at, n, ps) not in alone]
        return [entry for entries in (simulated, without, bounds, of_lines) for entry in sorted(entries, key=_best)]

    def _again(self, program: Program, what: str, changes: Mapping[str, str]) -> Advice:
        latency_ps = program.simulate(record=False).latency_ps
        return Advice(what, self._latency_ps - latency_ps, SIMULATED, latency_ps, changes)

    def _levers(self) -> Iterator[Lever]:
        yield from LEVERS
        for name in limiting(self._program):
            what = f"twice the bandwidth of protocol {name}"
            keys = of_protocol(name)
            yield replace(_quicker(SIPS, *keys), what=what)
            yield replace(_quicker(SIPS, *keys, *OF_SIPS), what=f"{what} and of all links {SIPS}")
        for tier in self._program.tiers:
            keys = f"ipcq.tiers.{tier}.bandwidth_gbs", f"ipcq.tiers.{tier}.bank_bandwidth_gbs"
            yield Lever(f"twice the bandwidth of queue slots in {tier}", keys, "2x", ("slot I/O",))
            yield Lever(f"no set-up of queue slots in {tier}", (f"ipcq.tiers.{tier}.setup_ns",), "0x", ("slot I/O",))


def of_protocol(name: str) -> tuple[str, ...]:
    """The bandwidths of a protocol."""
    return tuple(f"protocols.{name}.{key}" for key in ("max_gbs", "nic_gbs", "channel_gbs"))


def limiting(program: Program) -> list[str]:
    """The protocols of a program's calls that carry less than the links between SIPs have."""
    return list(dict.fromkeys(name for name, _, caps in program.protocols(ALIKE) if any(caps)))


def _faults(parameters: Mapping[str, str]) -> dict[str, str]:
    """The overrides that take the faults away."""
    kinds = ("links", "stragglers")
    found = {f"faults.{kind}": "[]" for kind in kinds if any(key.startswith(f"faults.{kind}.") for key in parameters)}
    return found | Lever("", ("faults.jitter.*_ns",), "0x", ()).changes(parameters)


def _bound(lever: Lever, unlinked: Mapping[str, int], links: list[tuple[int, str, int]]) -> int:
    """ps of the path that the change can save at most."""
    concerned = sum(unlinked.get(name, 0) for name in lever.categories)
    if lever.links:
        on_links = sum(ps for _, name, ps in links if link_class(name) == lever.links)
        # The analytic model has bytes on no link. Without any bytes a credit alone is no reason.
        concerned = concerned + on_links if on_links + sum(unlinked.get(name, 0) for name in _BYTES) else 0
    return (concerned + 1) // 2 if lever.value == "2x" else concerned


def _best(advice: Advice) -> int:
    return -advice.gain_ps


def best_of(advice: Sequence[Advice]) -> list[Advice]:
    """What is said to a reader who did not ask for more: what was simulated and saves time, the best first, and no more
    than `MOST`."""
    found = [entry for entry in advice if entry.way == SIMULATED and not entry.line and not entry.asked]
    return sorted((entry for entry in found if entry.gain_ps > 0), key=_best)[:MOST]
