"""Protocols of a communication library: the machine that a call of some size finds with each."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import inf, sqrt
from typing import NamedTuple

from ahbm._core import Machine
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.settings import Settings
from ahbm.errors import ConfigError

LINK_GBS, NIC_GBS = "system.sips.link.bandwidth_gbs", "system.sips.nodes.nic_gbs"
LINK_NS, NIC_NS = "system.sips.link.latency_ns", "system.sips.nodes.nic_latency_ns"
_NODES = "system.sips.nodes."
RELATIVE = re.compile(r"[x×](\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)[x×]", re.ASCII)  # noqa: RUF001
"""A factor of a parameter: "2x", or "x2"."""
STRIPES, GAIN = f"{_NODES}stripes", f"{_NODES}striped_gain"
BEYOND = 2
"""How far from the rows that a protocol was fitted to its numbers still say something, as a factor of the size:
errors are known at rows that were held back, whose neighbours have twice and half their size."""
PAIRWISE = ("gather", "scatter", "send_recv")
"""Collectives of messages from one rank to another, each over the interfaces of these two."""
ALL_TO_ALL = "all_to_all"

Range = tuple[int, int | None]
"""Least and most; None for no most."""


class Protocol(NamedTuple):
    """A protocol of `topology.yaml`: what it does to links between SIPs, and the sizes that the library uses it for."""

    name: str
    efficiency: float
    """Share of a link's bandwidth that payload gets."""
    max_gbs: float
    """Most payload that a link carries, in GB/s."""
    nic_gbs: float | None
    """Most payload that a network interface carries, in GB/s; None: the way of a message carries as much as a link."""
    ramp_bytes: int
    """Bytes of one rank's array at which half of the bandwidth is reached."""
    ramp_exponent: float
    """The power with which the share of the bandwidth grows."""
    bytes: Range
    """Bytes of one rank's array that it is used for."""
    chunk_bytes: Range
    """Bytes of one rank's array by the number of ranks that it is used for."""
    slots: int | None
    """Messages a queue holds; None as the algorithm says."""
    channels: tuple[int, float, int] | None
    """Most channels of a call, GB/s of each, and least bytes of one rank's array for each; None: it has none."""
    algorithms: Sequence[str]
    """Those that it is used with; empty for all."""
    wires: tuple[float | None, float | None]
    """GB/s of the links, and of the network interfaces, that its bandwidths were measured with; None: they hold over
    all."""

    def is_for(self, nbytes: int, ranks: int) -> bool:
        """Whether the library uses it for `nbytes` bytes of one rank's array among `ranks` ranks."""
        sizes = (nbytes, self.bytes), (nbytes // ranks, self.chunk_bytes)
        return all(least <= size and (most is None or size <= most) for size, (least, most) in sizes)

    def share(self, nbytes: float) -> float:
        """The part of the bandwidth that `nbytes` bytes of one rank's array get."""
        ramp = self.ramp_bytes / nbytes
        return 1 / (1 + (sqrt(ramp) if self.ramp_exponent == 0.5 else ramp**self.ramp_exponent))

    @property
    def by_size(self) -> bool:
        """Whether bandwidths depend on the size."""
        return bool(self.ramp_bytes or self.channels)

    def on(self, nbytes: int) -> tuple[tuple[str, str], ...]:
        """The overrides of the machine on which a call of `nbytes` bytes of one rank's array runs with it.

        n bytes get 1 / (1 + (ramp_bytes / n)^ramp_exponent) of the bandwidth. With 1/2, they take
        n / b + sqrt(ramp_bytes · n) / b: the time over a pipeline whose chunks are as long as is best. Other powers are
        those of libraries that use more channels for more bytes, as `channels` says with numbers.
        """
        found = [("protocol", self.name)]
        if self.by_size and nbytes:
            share = self.share(nbytes) if self.ramp_bytes else 1.0
            if share < 1:
                found.append((f"protocols.{self.name}.share", repr(share)))
            bandwidths = {"efficiency": self.efficiency, "max_gbs": self.max_gbs, "nic_gbs": self.nic_gbs}
            if self.channels:
                most, bandwidths["channel_gbs"], least = self.channels
                used = min(most, max(1, nbytes // least)) if least else most
                found.append((f"protocols.{self.name}.channels", str(used)))
            for key, value in bandwidths.items():
                if value not in (None, inf):
                    found.append((f"protocols.{self.name}.{key}", repr(value * share)))
        return tuple(found)

    def applied(self, settings: Settings) -> Settings:
        """The settings of an algorithm that runs with it: as many slots as it says."""
        if self.slots is None:
            return settings
        return replace(settings, queues=settings.queues._replace(n_slots=self.slots))


def protocols_of(machine: Machine) -> tuple[Protocol, ...]:
    """The protocols of a machine, in the order of its file."""
    return tuple(Protocol(*row) for row in machine.protocols)


def named(machine: Machine, name: str | None) -> Protocol | None:
    """The protocol of a machine by its name; None where it has none of that name."""
    return next((protocol for protocol in protocols_of(machine) if protocol.name == name), None)


def forced(machine: Machine, name: str, nbytes: int, ranks: int | None = None) -> Protocol:
    """The protocol that somebody names for `nbytes` bytes of one rank's array, among `ranks` ranks if that is known.

    Raises ConfigError: AHBM-C210 for a name that the machine does not have, and C192 for a protocol of a machine that
    was fitted to measurements where it was not: with it, the machine's numbers say nothing there.
    """
    found = next((protocol for protocol in protocols_of(machine) if protocol.name.lower() == name.lower()), None)
    if found is None:
        names = [protocol.name for protocol in protocols_of(machine)]
        raise ConfigError(
            "AHBM-C210",
            f"the machine's library has no protocol {name[:40]!r}: it has {', '.join(names) or 'none'}",
            hint=did_you_mean(name, names),
        )
    if not permits(machine, found.name, nbytes, ranks):
        least, most = _fitted(machine, found.name, ranks)
        among = "" if ranks is None else f" among {ranks} ranks"
        others = [one.name for one in protocols_of(machine) if one is not found and one.name != found.name]
        fit = [name for name in others if permits(machine, name, nbytes, ranks)]
        sizes = f"at least {least} bytes" if most is None else f"{least} to {most} bytes"
        has = f"the machine has {', '.join(others)} besides" if others else "the machine has no other"
        raise ConfigError(
            "AHBM-C192",
            f"protocol {found.name} says nothing of {nbytes} bytes of one rank{among}: it was fitted to {sizes}; {has}",
            hint=f"name {' or '.join(fit)}, or none" if fit else "name none: the machine's library chooses",
        )
    return found


def permits(machine: Machine, name: str, nbytes: int, ranks: int | None = None) -> bool:
    """Whether a protocol by its name may be named for a size: on a machine that was fitted to measurements, up to
    `BEYOND` times from the rows that it was fitted to, and beyond all rows with the last of them."""
    least, most = reach(machine, name, ranks)
    return least <= nbytes and (most is None or nbytes <= most)


def reach(machine: Machine, name: str, ranks: int | None = None) -> Range:
    """The sizes that a protocol by its name may be named for; all on a machine without such a protocol."""
    own = next((protocol.name for protocol in protocols_of(machine) if protocol.name.lower() == name.lower()), None)
    least, most = (0, None) if own is None else _fitted(machine, own, ranks)
    return -(-least // BEYOND), None if most is None else most * BEYOND


def _fitted(machine: Machine, name: str, ranks: int | None) -> Range:
    """The sizes that a protocol was fitted to, those of tables of as many ranks where there are any; 0 and None for no
    end."""
    own = any(key.split(".")[:2] == ["protocols", name] for key, _ in machine.overrides)
    rows = [] if own else machine.ranges
    rows = [row for row in rows if row[1] == ranks] or rows
    mine = [row for row in rows if row[0] == name]
    if not rows:
        return 0, None
    if not mine:
        # Its numbers were fitted to tables of other ranks, or to no row at all.
        return (0, 0) if all(row[0] != name for row in machine.ranges) else _fitted(machine, name, None)
    least, most = min(row[2] for row in mine), max(row[3] for row in mine)
    return (
        0 if least == min(row[2] for row in rows) else least,
        None if most == max(row[3] for row in rows) else most,
    )


def striped(
    machine: Machine,
    ranks: Sequence[int],
    collective: str,
    explicit: bool,
    shares: Sequence[Sequence[int]] | None = None,
) -> tuple[tuple[str, str], ...]:
    """The overrides of the machine on which messages between nodes of a call find their interfaces.

    ranks: its SIPs. A collective of a library runs over channels that cross at each of its ranks of a node, so that
    as many interfaces carry it as ranks of a node take part. A message from one rank to another has the interfaces of
    these alone: those of a collective of pairs, and those of a program that says `explicit`-ly who sends what to
    whom. Where all ranks of whole nodes exchange with all others, each keeps its own interface busy; the interfaces
    of a node then carry what they do together, less by as much as the busiest rank has more than the others:
    `shares`, what each rank sends to each.
    """
    size, found = machine.node_size, dict(machine.parameters)
    if machine.topology != "nodes" or found.get(f"{_NODES}striped") != "true":
        return ()
    nodes: dict[int, int] = {}
    for rank in ranks:
        nodes[rank // size] = nodes.get(rank // size, 0) + 1
    if len(nodes) < 2:
        return ()
    least = min(nodes.values())
    if explicit or collective in PAIRWISE or (collective == ALL_TO_ALL and least < size):
        return ((STRIPES, "1"),)
    if collective != ALL_TO_ALL:
        return ((STRIPES, str(least)),)
    even = () if GAIN not in found else ((GAIN, "1"),)
    part = _balance(ranks, size, shares) if shares is not None else 1.0
    uneven = () if part == 1 else ((NIC_GBS, repr(_gbs(found[NIC_GBS]) * part)),)
    return ((STRIPES, str(size)), *even, *uneven)


def _balance(ranks: Sequence[int], size: int, shares: Sequence[Sequence[int]]) -> float:
    """What the busiest node sends to others or gets from them, over what it would if all of its ranks were as busy as
    the busiest of all."""
    nodes = [rank // size for rank in ranks]
    busiest, most = 0, 0
    for rows in (shares, list(zip(*shares, strict=True))):
        across = [
            sum(length for length, there in zip(row, nodes, strict=True) if there != here)
            for row, here in zip(rows, nodes, strict=True)
        ]
        busiest = max(busiest, *across)
        most = max(most, *(sum(n for n, at in zip(across, nodes, strict=True) if at == node) for node in set(nodes)))
    return most / (busiest * size) if busiest else 1.0


def chosen(machine: Machine) -> Protocol | None:
    """The protocol that all runs on a machine use."""
    return named(machine, machine.protocol)


def spoken(machine: Machine, name: str | None, nbytes: int, more: Sequence[tuple[str, str]] = ()) -> Machine:
    """The machine that calls of `nbytes` bytes of one rank's array find with the protocol of this name, None for none
    to choose, and with `more` overrides."""
    protocol = named(machine, name)
    assert protocol is not None or name is None, "changes of a machine leave the names of its protocols"
    return machine.for_calls([*(protocol.on(nbytes) if protocol else ()), *more], nbytes)


def voices(machine: Machine) -> list[tuple[Machine, Protocol]]:
    """Each machine that calls on a machine find, of a job as many as there are, with the protocol that they use."""
    return [(each, own) for each in (machine, *machine.voices) if (own := chosen(each)) is not None]


class Caps(NamedTuple):
    """GB/s of payload that a protocol lets links between SIPs carry; None where the links themselves have no more."""

    link: float | None
    way: float | None
    """Of the way of a SIP between nodes of `topology: nodes`."""
    spine: float | None
    """Of all ways of a node together."""

    def on(self, link: str) -> float | None:
        """That of a link by its name."""
        if "spine" in link:
            return self.spine
        return self.way if ".in->" in link or link.endswith(".out") else self.link


ALIKE = 1.01
"""Bandwidths are alike up to this factor: a calibration gives a link and its protocol one, up to rounding."""


def caps(machine: Machine, protocol: Protocol, alike: float = ALIKE) -> Caps:
    """Where a protocol limits, so that more bandwidth of the machine between SIPs changes nothing, or less than it
    could."""
    found = dict(machine.parameters)
    bandwidths = [key for key in found if key == LINK_GBS or fnmatchcase(key, "system.sips.edges.*.bandwidth_gbs")]
    together = inf if protocol.channels is None else protocol.channels[0] * protocol.channels[1]
    most = min(protocol.max_gbs, together)

    def less(most: float, gbs: float) -> float | None:
        return most if most < alike * gbs * protocol.efficiency else None

    slowest = min(_gbs(found[key]) for key in bandwidths)
    wire, nic_wire = protocol.wires
    if NIC_GBS not in found:
        return Caps(less(_rewired(protocol, most, wire, slowest), slowest), None, None)
    size = int(found[f"{_NODES}size"])
    stripes = size if found.get(f"{_NODES}striped") == "true" else 1
    used = min(int(found.get(STRIPES, stripes)), stripes)
    gain = float(found.get(GAIN, 1)) if stripes > 1 else 1.0
    own_gain = gain if used == stripes else 1.0
    nic = _gbs(found[NIC_GBS])
    if protocol.nic_gbs is not None:
        each = _rewired(protocol, protocol.nic_gbs, nic_wire, nic, gain)
        spine = less(each * size, nic * size * own_gain / float(found[f"{_NODES}taper"]))
        link = less(_rewired(protocol, most, wire, slowest), slowest)
        return Caps(link, less(min(each * used, together), nic * used * own_gain), spine)
    if STRIPES in found and wire is not None and nic_wire is not None:
        # A call between nodes: the slower of links and interfaces is its wire.
        all_ = stripes * gain
        both = _rewired(protocol, most, min(wire, nic_wire * all_), min(slowest, nic * all_))
        return Caps(less(both, slowest), less(both, nic * used * own_gain), None)
    way = _rewired(protocol, most, nic_wire, nic, gain * stripes)
    return Caps(less(_rewired(protocol, most, wire, slowest), slowest), less(way, nic * used * own_gain), None)


def _rewired(protocol: Protocol, most: float, wire: float | None, gbs: float, times: float = 1.0) -> float:
    """What a protocol carries over other wires than the one that `most` was measured with: the time of a byte differs
    by what it takes on the wire. The machine does the same."""
    if wire is None or abs(wire / gbs - 1) < ROUNDED:
        return most
    left = 1 / most + (1 / gbs - 1 / wire) / (times * protocol.efficiency)
    return 1 / left if left > 0 else inf


ROUNDED = 1e-6
"""Bandwidths are one up to this part: the machine rounds them."""


def held(machine: Machine, name: str) -> list[str]:
    """The notes on bandwidths that overrides changed and that change nothing, or less than they might: a protocol by
    `name` carries less, or another wire of the same way does; and on latencies beside those that were fitted. None
    where overrides changed protocols too."""
    protocol = named(machine, name)
    found = dict(machine.parameters)
    changed = {key: value for key, value in machine.overrides if key in (LINK_GBS, NIC_GBS)}
    late = {key: value for key, value in machine.overrides if key in (LINK_NS, NIC_NS)}
    own = any(key.startswith("protocols.") for key, _ in machine.overrides)
    if protocol is None or own:
        return []
    besides = [
        f"{key}={value} comes on top of the steps of protocol {name}, which have the fitted latency in them"
        for key, value in late.items()
        if machine.bands is not None and found[key] != "0ps"
    ]
    return [*besides, *(_held(machine, protocol, changed) if changed else ())]


def _held(machine: Machine, protocol: Protocol, changed: Mapping[str, str]) -> list[str]:
    name, found = protocol.name, dict(machine.parameters)
    most = caps(machine, protocol, alike=1.0)
    where = {LINK_GBS: (most.link, "over a link", 0), NIC_GBS: (most.way, "over the way of a rank between nodes", 1)}
    notes = []
    for key, value in changed.items():
        gbs, over, which = where[key]
        if gbs is None:
            continue
        if protocol.wires[which] is None:
            told = f"is more than protocol {name} carries, {gbs:g} GB/s {over}: the protocol's limit holds"
            notes.append(f"{key}={value} {told}")
        elif gbs * ALIKE < _gbs(found[key]) and _gbs(found[key]) > ALIKE * (protocol.wires[which] or 0):
            notes.append(
                f"{key}={value}: protocol {name} carries {gbs:.4g} GB/s {over}; the rest of its time is no wire's"
            )
    if NIC_GBS in found:
        link, way = _gbs(found[LINK_GBS]), _gbs(found[NIC_GBS])
        if found.get(f"{_NODES}striped") == "true":
            way *= machine.node_size * float(found.get(GAIN, 1))
        told = f"links carry {link:.4g} GB/s inside a node, and its interfaces {way:.4g} to others"
        other = [
            key
            for key, wire in zip((LINK_GBS, NIC_GBS), protocol.wires, strict=True)
            if key in changed and (wire is None or abs(_gbs(found[key]) / wire - 1) > ROUNDED)
        ]
        if NIC_GBS in other and way > ALIKE * link:
            notes.append(f"{NIC_GBS}={changed[NIC_GBS]}: {told}: the links bind, {LINK_GBS}")
        if LINK_GBS in other and link > ALIKE * way:
            notes.append(f"{LINK_GBS}={changed[LINK_GBS]}: {told}: between nodes the interfaces bind, {NIC_GBS}")
    return notes


def in_steps(machine: Machine, changes: Mapping[str, object]) -> dict[str, object]:
    """Changes of parameters, values or factors such as "2x", where a factor of a latency between SIPs is one of the
    steps of the protocols: on a machine that was fitted to measurements, whose links have none of their own."""
    found = dict(machine.parameters)
    changed: dict[str, object] = {}
    for key, value in changes.items():
        fitted = machine.bands is not None and key in (LINK_NS, NIC_NS) and found.get(key) == "0ps"
        factor = RELATIVE.fullmatch(str(value)) if fitted else None
        if factor is None:
            changed[key] = value
            continue
        for name, *_ in machine.protocols:
            step, nic = f"protocols.{name}.step_ns", f"protocols.{name}.nic_step_ns"
            own = found.get(nic, found[step])
            if key == NIC_NS:
                changed[nic] = (
                    value
                    if nic in found
                    else f"{float(own.removesuffix('ps')) * float(factor[1] or factor[2]) / 1000:.3f}"
                )
            else:
                changed[step] = value
                if NIC_GBS in found:
                    changed.setdefault(nic, f"{float(own.removesuffix('ps')) / 1000:.3f}")
    return changed


def crossing(machine: Machine, other: Machine) -> tuple[tuple[str, str], ...]:
    """The overrides with which messages on `other` find their network interfaces as those of a machine of calls do."""
    if machine.of_calls is None:
        return ()
    plain = machine.of_calls[0]
    own = {key: value for key, value in machine.overrides[len(plain.overrides) :] if key.startswith(_NODES)}
    if NIC_GBS in own:
        part = _gbs(own[NIC_GBS]) / _gbs(dict(plain.parameters)[NIC_GBS])
        own[NIC_GBS] = repr(_gbs(dict(other.parameters)[NIC_GBS]) * part)
    return tuple(own.items())


def _gbs(told: str) -> float:
    return float(told.removesuffix("GB/s"))


def usable(machine: Machine, nbytes: int, ranks: int) -> Sequence[Protocol]:
    """The protocols that a machine's library uses for `nbytes` bytes of one rank's array among `ranks` ranks; () where
    the machine is the same for all sizes, without protocols or with one for all runs. Raises ConfigError (AHBM-C188)
    where no range holds the size, and as `forced` for one for all runs that does not fit it."""
    only = chosen(machine)
    if only is not None:
        forced(machine, only.name, nbytes, ranks)
        return (only,) if only.by_size else ()
    known = protocols_of(machine)
    found = [protocol for protocol in known if protocol.is_for(nbytes, ranks)]
    if known and not found:
        names = ", ".join(protocol.name for protocol in known)
        raise ConfigError(
            "AHBM-C188",
            f"no protocol of the machine is used for {nbytes} bytes among {ranks} ranks: it has {names}",
            hint="change min_bytes, max_bytes, min_chunk_bytes and max_chunk_bytes, or set protocol: NAME",
        )
    return found


def spoken_with(
    machine: Machine, usable: Sequence[Protocol], algorithms: Sequence[str], known: Collection[str]
) -> list[tuple[Protocol, Sequence[str]]]:
    """Those of the `usable` protocols that the machine's library uses with any of the `algorithms`, each with those.

    An algorithm that no protocol of the machine names goes with every protocol; so do all where nothing else is left,
    as for one that a user names at a size where the library takes another. Raises ConfigError (AHBM-C194) for a
    protocol of an algorithm that ccl.yaml, which names the `known`, does not name.
    """
    bound = {name: protocol.name for protocol in protocols_of(machine) for name in protocol.algorithms}
    if unknown := [name for name in bound if name not in known]:
        raise ConfigError(
            "AHBM-C194",
            f"the machine's library uses protocol {bound[unknown[0]]} with {unknown[0]}, which ccl.yaml does not name",
            hint=did_you_mean(unknown[0], known),
        )
    found: list[tuple[Protocol, Sequence[str]]] = []
    for protocol in usable:
        own = [
            name for name in algorithms if not protocol.algorithms or name in protocol.algorithms or name not in bound
        ]
        if own:
            found.append((protocol, own))
    return found or [(protocol, algorithms) for protocol in usable]
