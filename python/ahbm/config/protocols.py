"""Protocols of a communication library: the machine that a call of some size finds with each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import inf, sqrt
from typing import NamedTuple

from ahbm._core import Machine
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.settings import Settings
from ahbm.errors import ConfigError

LINK_GBS, NIC_GBS = "system.sips.link.bandwidth_gbs", "system.sips.nodes.nic_gbs"
_NODES = "system.sips.nodes."

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


def chosen(machine: Machine) -> Protocol | None:
    """The protocol that all runs on a machine use."""
    return named(machine, machine.protocol)


def spoken(machine: Machine, name: str, nbytes: int) -> Machine:
    """The machine that calls of `nbytes` bytes of one rank's array find with the protocol of this name."""
    protocol = named(machine, name)
    assert protocol is not None, "changes of a machine leave the names of its protocols"
    return machine.for_calls(protocol.on(nbytes), nbytes)


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
    """Where a protocol limits, so that more bandwidth of the machine between SIPs changes nothing."""
    found = dict(machine.parameters)
    ranks, striped = int(found.get(f"{_NODES}size", 1)), found.get(f"{_NODES}striped") == "true"
    interfaces = ranks if striped else 1
    bandwidths = [key for key in found if key == LINK_GBS or fnmatchcase(key, "system.sips.edges.*.bandwidth_gbs")]
    together = inf if protocol.channels is None else protocol.channels[0] * protocol.channels[1]

    def less(most: float, gbs: float) -> float | None:
        return most if most < alike * gbs * protocol.efficiency else None

    link = less(min(protocol.max_gbs, together), min(_gbs(found[key]) for key in bandwidths))
    if NIC_GBS not in found:
        return Caps(link, None, None)
    nic = _gbs(found[NIC_GBS])
    if protocol.nic_gbs is None:
        return Caps(link, less(min(protocol.max_gbs, together), nic * interfaces), None)
    spine = less(protocol.nic_gbs * ranks, nic * ranks / float(found[f"{_NODES}taper"]))
    return Caps(link, less(min(protocol.nic_gbs * interfaces, together), nic * interfaces), spine)


def held(machine: Machine, name: str) -> list[str]:
    """The notes on bandwidths that overrides changed and that change nothing, since a protocol by `name` carries less;
    none where they changed protocols too."""
    protocol = named(machine, name)
    changed = {key: value for key, value in machine.overrides if key in (LINK_GBS, NIC_GBS)}
    own = any(key.startswith("protocols.") for key, _ in machine.overrides)
    if protocol is None or not changed or own:
        return []
    most = caps(machine, protocol, alike=1.0)
    where = {LINK_GBS: (most.link, "over a link"), NIC_GBS: (most.way, "over the way of a rank between nodes")}
    return [
        f"{key}={value} is more than protocol {name} carries, {gbs:g} GB/s {over}: the protocol's limit holds"
        for key, value in changed.items()
        for gbs, over in [where[key]]
        if gbs is not None
    ]


def _gbs(told: str) -> float:
    return float(told.removesuffix("GB/s"))


def usable(machine: Machine, nbytes: int, ranks: int) -> Sequence[Protocol]:
    """The protocols that a machine's library uses for `nbytes` bytes of one rank's array among `ranks` ranks; () where
    the machine is the same for all sizes, without protocols or with one for all runs. Raises ConfigError (AHBM-C188)
    where no range holds the size."""
    only = chosen(machine)
    if only is not None:
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
