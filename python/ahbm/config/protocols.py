"""Protocols of a communication library: which a call has, and where they limit."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ahbm._core import Machine, Protocol
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.settings import Settings
from ahbm.errors import ConfigError

LINK_GBS, NIC_GBS = "system.sips.link.bandwidth_gbs", "system.sips.nodes.nic_gbs"
LINK_NS, NIC_NS = "system.sips.link.latency_ns", "system.sips.nodes.nic_latency_ns"
RELATIVE = re.compile(r"[x×](\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)[x×]", re.ASCII)  # noqa: RUF001
"""A factor of a parameter: "2x", or "x2"."""
GAIN = "system.sips.nodes.striped_gain"
BEYOND = 2
"""How far from the rows that a protocol was fitted to its numbers still say something, as a factor of the size:
errors are known at rows that were held back, whose neighbours have twice and half their size."""
PAIRWISE = ("gather", "scatter", "send_recv")
"""Collectives of messages from one rank to another, each over the interfaces of these two."""
ALL_TO_ALL = "all_to_all"

Range = tuple[int, int | None]
"""Least and most; None for no most."""


def applied(protocol: Protocol, settings: Settings) -> Settings:
    """The settings of an algorithm that runs with a protocol: as many slots as it says."""
    if protocol.slots is None:
        return settings
    return replace(settings, queues=settings.queues._replace(n_slots=protocol.slots))


def named(machine: Machine, name: str | None) -> Protocol | None:
    """The protocol of a machine by its name; None where it has none of that name."""
    return next((protocol for protocol in machine.protocols if protocol.name == name), None)


def forced(machine: Machine, name: str, nbytes: int, ranks: int | None = None) -> Protocol:
    """The protocol that somebody names for `nbytes` bytes of one rank's array, among `ranks` ranks if that is known.

    Raises ConfigError: AHBM-C210 for a name that the machine does not have, and C192 for a protocol of a machine that
    was fitted to measurements where it was not: with it, the machine's numbers say nothing there.
    """
    found = next((protocol for protocol in machine.protocols if protocol.name.lower() == name.lower()), None)
    if found is None:
        names = [protocol.name for protocol in machine.protocols]
        raise ConfigError(
            "AHBM-C210",
            f"the machine's library has no protocol {name[:40]!r}: it has {', '.join(names) or 'none'}",
            hint=did_you_mean(name, names),
        )
    if not permits(machine, found.name, nbytes, ranks):
        least, most = _fitted(machine, found.name, ranks)
        among = "" if ranks is None else f" among {ranks} ranks"
        others = [one.name for one in machine.protocols if one is not found and one.name != found.name]
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
    own = next((protocol.name for protocol in machine.protocols if protocol.name.lower() == name.lower()), None)
    least, most = (0, None) if own is None else _fitted(machine, own, ranks)
    return -(-least // BEYOND) <= nbytes and (most is None or nbytes <= most * BEYOND)


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


class CallCosts(NamedTuple):
    """What the costs of a call depend on besides the machine: see `Machine.with_costs`."""

    protocol: str | None = None
    """Its protocol, where the machine has none for all runs."""
    nbytes: int = 0
    """Bytes of one rank's array, which bandwidths of protocols depend on; 0 where they are not known."""
    channels: int | None = None
    """Channels instead of those that the bytes fill, of protocols that have as many."""
    math_per_ns: int | None = None
    """f16 elements that the math engine processes per nanosecond; None: as the machine says."""
    interfaces: int | None = None
    """Interfaces of a node that its messages between nodes are spread over; None for a call inside a node."""
    even: bool = False
    """Whether all ranks send to all others: no switch reduces what crosses the interfaces."""
    part: tuple[int, int] = (1, 1)
    """The part of an interface's bandwidth that it gets, as a fraction."""


Crossing = tuple[int | None, bool, tuple[int, int]]
"""`interfaces`, `even` and `part` of the costs of a call."""


def crossing(
    machine: Machine,
    ranks: Sequence[int],
    collective: str,
    explicit: bool,
    shares: Sequence[Sequence[int]] | None = None,
) -> Crossing:
    """The interfaces of a call among SIPs `ranks`.

    A collective of a library runs over channels that cross at each of its ranks of a node, so that as many interfaces
    carry it as ranks of a node take part. A message from one rank to another has the interfaces of these alone: those
    of a collective of pairs, and those of a program that says `explicit`-ly who sends what to whom. Where all ranks of
    whole nodes exchange with all others, each keeps its own interface busy; the interfaces of a node then carry what
    they do together, less by as much as the busiest rank has more than the others: `shares`, what each rank sends to
    each.
    """
    if not machine.striped:
        return None, False, (1, 1)
    size = machine.node_size
    nodes: dict[int, int] = {}
    for rank in ranks:
        nodes[rank // size] = nodes.get(rank // size, 0) + 1
    if len(nodes) < 2:
        return None, False, (1, 1)
    least = min(nodes.values())
    if explicit or collective in PAIRWISE or (collective == ALL_TO_ALL and least < size):
        return 1, False, (1, 1)
    if collective != ALL_TO_ALL:
        return least, False, (1, 1)
    return size, True, _balance(ranks, size, shares) if shares is not None else (1, 1)


def _balance(ranks: Sequence[int], size: int, shares: Sequence[Sequence[int]]) -> tuple[int, int]:
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
    return (most, busiest * size) if busiest else (1, 1)


def chosen(machine: Machine) -> Protocol | None:
    """The protocol that all runs on a machine use."""
    return named(machine, machine.protocol)


ALIKE = 1.01
"""Bandwidths are alike up to this factor: a calibration gives a link and its protocol one, up to rounding."""
ROUNDED = 1e-6
"""Bandwidths are one up to this part: the machine rounds them."""


def cap_of(link: str, caps: tuple[float | None, float | None, float | None]) -> float | None:
    """The one of a machine's `caps` that is for a link between SIPs, by its name."""
    if "spine" in link:
        return caps[2]
    return caps[1] if ".in->" in link or link.endswith(".out") else caps[0]


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
    link, way, _ = machine.with_costs(CallCosts(name)).caps(1.0) or (None, None, None)
    where = {LINK_GBS: (link, "over a link", 0), NIC_GBS: (way, "over the way of a rank between nodes", 1)}
    notes = []
    for key, value in changed.items():
        gbs, over, which = where[key]
        if gbs is None:
            continue
        if protocol.wires[which] is None:
            message = f"is more than protocol {name} carries, {gbs:g} GB/s {over}: the protocol's limit holds"
            notes.append(f"{key}={value} {message}")
        elif gbs * ALIKE < _gbs(found[key]) and _gbs(found[key]) > ALIKE * (protocol.wires[which] or 0):
            notes.append(
                f"{key}={value}: protocol {name} carries {gbs:.4g} GB/s {over}; the rest of its time is no wire's"
            )
    if NIC_GBS in found:
        link, way = _gbs(found[LINK_GBS]), _gbs(found[NIC_GBS])
        if machine.striped:
            way *= machine.node_size * float(found.get(GAIN, 1))
        message = f"links carry {link:.4g} GB/s inside a node, and its interfaces {way:.4g} to others"
        other = [
            key
            for key, wire in zip((LINK_GBS, NIC_GBS), protocol.wires, strict=True)
            if key in changed and (wire is None or abs(_gbs(found[key]) / wire - 1) > ROUNDED)
        ]
        if NIC_GBS in other and way > ALIKE * link:
            notes.append(f"{NIC_GBS}={changed[NIC_GBS]}: {message}: the links bind, {LINK_GBS}")
        if LINK_GBS in other and link > ALIKE * way:
            notes.append(f"{LINK_GBS}={changed[LINK_GBS]}: {message}: between nodes the interfaces bind, {NIC_GBS}")
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
        for name in [protocol.name for protocol in machine.protocols]:
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


def _gbs(text: str) -> float:
    return float(text.removesuffix("GB/s"))


def usable(machine: Machine, nbytes: int, ranks: int) -> Sequence[Protocol]:
    """The protocols that a machine's library uses for `nbytes` bytes of one rank's array among `ranks` ranks; () where
    the machine is the same for all sizes, without protocols or with one for all runs. Raises ConfigError (AHBM-C188)
    where no range holds the size, and as `forced` for one for all runs that does not fit it."""
    only = chosen(machine)
    if only is not None:
        forced(machine, only.name, nbytes, ranks)
        return (only,) if only.by_size else ()
    known = machine.protocols
    found = [protocol for protocol in known if protocol.is_for(nbytes, ranks)]
    if known and not found:
        names = ", ".join(protocol.name for protocol in known)
        raise ConfigError(
            "AHBM-C188",
            f"no protocol of the machine is used for {nbytes} bytes among {ranks} ranks: it has {names}",
            hint="change min_bytes, max_bytes, min_chunk_bytes and max_chunk_bytes, or set protocol: NAME",
        )
    return found


def used_with(
    machine: Machine, usable: Sequence[Protocol], algorithms: Sequence[str], known: Collection[str]
) -> list[tuple[Protocol, Sequence[str]]]:
    """Those of the `usable` protocols that the machine's library uses with any of the `algorithms`, each with those.

    An algorithm that protocols name goes with these alone, and others with the protocols that name none; all go with
    every protocol where nothing else is left, as for one that a user names at a size where the library takes another.
    Raises ConfigError (AHBM-C194) for a protocol of an algorithm that ccl.yaml, which names the `known`, does not name.
    """
    bound = {name: protocol.name for protocol in machine.protocols for name in protocol.algorithms}
    if unknown := [name for name in bound if name not in known]:
        raise ConfigError(
            "AHBM-C194",
            f"the machine's library uses protocol {bound[unknown[0]]} with {unknown[0]}, which ccl.yaml does not name",
            hint=did_you_mean(unknown[0], known),
        )
    found: list[tuple[Protocol, Sequence[str]]] = []
    for protocol in usable:
        own = [
            name for name in algorithms if (name in protocol.algorithms if name in bound else not protocol.algorithms)
        ]
        if own:
            found.append((protocol, own))
    return found or [(protocol, algorithms) for protocol in usable]
