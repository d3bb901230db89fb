"""A fitted law as a machine: `topology.yaml` with protocols and the calibration block, and its emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ahbm._core import Machine
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.request import Request
from ahbm.base.store import store
from ahbm.base.yaml_nodes import WRITER
from ahbm.calibrate.laws import Law
from ahbm.calibrate.templates import ALGORITHMS, Template
from ahbm.choice.policy import Policy
from ahbm.config.ccl import CclConfig
from ahbm.core.emulator import Emulator
from ahbm.core.lowerings import Lowerings
from ahbm.errors import ConfigError

NAMES = {
    1: ("simple",),
    2: ("ll", "simple"),
    3: ("ll", "ll128", "simple"),
}
"""Protocols by their steps, as NCCL calls its own."""
FEW = "few_bytes"
"""That of calls of few bytes."""
TIED = "ring"
"""That of an algorithm for large arrays whose step and bandwidth are those of others."""
SLICE = 1 << 10
"""Bytes of a slice of LL, whose flags come with every 8 bytes: what arrives goes on at once. Shorter slices are more
messages, and no other time."""
DTYPE, ITEM = "f16", 2
"""As commands take it where nobody says otherwise."""
MUCH = 100.0
"""Steps of a message between nodes, beside tables of a single node, at which crossings are counted."""
VERIFIED = 64
"""Ranks up to which a machine runs every row of a table; beyond, a few of them, and chunks of one size."""
EVEN = 1 << 12
"""Bytes of a chunk from which on the bytes that travel are in proportion to those of the array."""


Coefficient = tuple[float, float, float, float]
"""Steps, volume per byte, fixed us and crossings, as `laws` has them."""


def names(law: Law) -> tuple[str, ...]:
    """Names of the protocols of a law, in its order."""
    own = len(law.shape.terms) - law.shape.bordered - law.few
    known = NAMES.get(own) or tuple(f"p{number}" for number in range(own))
    return (FEW,) * law.few + known + (TIED,) * law.shape.bordered


def protocols(law: Law, algorithms: Sequence[str | None] = ()) -> dict[str, dict[str, Any]]:
    """The section `protocols` of a law. algorithms: those that its terms go with."""
    groups = [number for number, group in enumerate(law.shape.groups) for _ in group]
    found: dict[str, dict[str, Any]] = {}
    for name, protocol, group, term in zip(names(law), law.protocols, groups, law.shape.terms, strict=True):
        keys: dict[str, Any] = {"step_ns": round(1000 * protocol.step_us, 3)}
        if law.nic_steps != 1.0 or law.chunk_bytes is not None:
            keys["nic_step_ns"] = round(1000 * law.nic_steps * protocol.step_us, 3)
        if law.chunk_bytes is None:
            keys["max_gbs"] = float(f"{protocol.gbs:.7g}")
        else:
            keys["nic_gbs"] = float(f"{protocol.gbs:.7g}")
            keys["algorithms"] = [algorithms[term.way or 0]]
            keys |= {"min_chunk_bytes": law.chunk_bytes} if not term.free else {"max_chunk_bytes": law.chunk_bytes - 1}
            keys |= {"slice_bytes": SLICE} if not found else {}
        if protocol.ramp_bytes:
            keys["ramp_bytes"] = max(round(protocol.ramp_bytes), 1)
            keys["ramp_exponent"] = float(f"{protocol.exponent:.7g}")
        if group:
            keys["min_bytes"] = law.borders[group - 1]
        if group < len(law.borders):
            keys["max_bytes"] = law.borders[group] - 1
        found[name] = keys
    return found


def wires(declared: Mapping[str, Any]) -> dict[str, float]:
    """The links and interfaces that the bandwidths of the protocols of a machine were fitted with."""
    sips = declared["system"]["sips"]
    found = {"wire_gbs": sips.get("link", {}).get("bandwidth_gbs", 128)}
    if sips.get("topology") == "nodes":
        found["wire_nic_gbs"] = sips.get("nodes", {}).get("nic_gbs", 50)
    return found


def tree(
    template: Template,
    law: Law,
    ranks: int,
    collective: str,
    last: Sequence[int | None] | None = None,
    factors: Sequence[Mapping[str, float]] = (),
) -> dict[str, Any]:
    """The machine of a law, as `topology.yaml` declares it. last: the sizes up to which each protocol is used; factors:
    what calls take of the law's time by their size, of all protocols alike, so that the quickest stays it."""
    most = max(protocol.gbs for protocol in law.protocols) / min([1.0, *(each["factor"] for each in factors)])
    found = template.machine(ranks, **{"link_gbs" if law.chunk_bytes is None else "nic_gbs": most})
    found["launch"] = found.get("launch") or {"overhead_ns": round(1000 * law.launch_us, 3)}
    found["protocols"] = {
        name: keys | wires(found) for name, keys in protocols(law, template.algorithms(collective)).items()
    }
    for protocol in found["protocols"].values() if factors else ():
        protocol["factors"] = [dict(each) for each in factors]
    for protocol, size in zip(found["protocols"].values(), last or (), strict=False):
        if size is not None:
            protocol["max_bytes"] = size
    return found


def emulator(declared: Mapping[str, Any], lowerings: Lowerings | None = None) -> Emulator:
    """An emulator of a declared machine, with the packaged ccl.yaml, and programs of others. Raises TopologyError."""
    machine = Machine.from_yaml(yaml.dump(dict(declared), Dumper=WRITER, sort_keys=False), "template", [])
    return Emulator(machine, CclConfig.packaged(), lowerings)


def even(collective: str, ranks: int, nbytes: int) -> int:
    """The bytes of an array whose chunks are of one size, the next that are as many or more; of few ranks, as many.

    Ranks whose chunks are alike share a program: that of many others is slow to make. The longest chunk is on the way
    all the time, so an array with an element for each rank takes as long.
    """
    unit = ITEM * (ranks if COLLECTIVES[collective].chunks(ranks) == 1 else 1)
    return nbytes if ranks <= VERIFIED else -(-nbytes // unit) * unit


def us(emulator: Emulator, collective: str, ranks: int, nbytes: int, algorithm: str | None = None) -> float:
    """Time of a collective of `nbytes` bytes of one rank's array, in us. Raises as `Emulator.compile`."""
    count = max(nbytes // (ITEM * COLLECTIVES[collective].chunks(ranks)), 1)
    request = Request(collective, range(ranks), count, DTYPE)
    found = Policy.of(emulator).compile(request) if algorithm is None else emulator.compile(request, algorithm)
    return found.latency_ps / 1e6


def coefficients(
    template: Template, collective: str, ranks: int, sizes: Sequence[int], algorithm: str | None = None
) -> list[Coefficient]:
    """The coefficients of every size, by runs of the emulator without a latency, and without bytes.

    Raises as `Emulator.compile`.
    """
    declared = template.machine(ranks)
    library = declared.setdefault("library", {})
    if collective in ALGORITHMS:
        library.setdefault(collective, list(ALGORITHMS[collective]))

    lowerings = Lowerings()

    def on(step_us: float, gbs: float, nic_steps: float = 1.0) -> Emulator:
        keys = {"step_ns": 1000 * step_us, "nic_step_ns": 1000 * nic_steps * step_us, "max_gbs": gbs}
        if algorithm:
            keys = {**keys, "max_gbs": float("inf"), "nic_gbs": gbs, "slice_bytes": SLICE}
        return emulator({**declared, "protocols": {"p": keys}, "protocol": "p"}, lowerings)

    def took(emulator: Emulator, nbytes: int) -> float:
        return us(emulator, collective, ranks, nbytes, algorithm)

    def wire(nbytes: int) -> float:
        return nbytes / 1e3

    whole, step = even(collective, ranks, max(*sizes, ranks * EVEN)), 1000.0
    base, slower = on(0, 1.0), on(0, 0.5)
    least = took(base, whole)
    volume = (took(slower, whole) - least) / wire(whole)
    tiny = ranks * ITEM
    fixed = took(on(0, 1e6), tiny)
    steps = (took(on(step, 1e6), tiny) - fixed) / step
    # Where messages between nodes take much longer than others, others of them follow each other.
    more = 1.0 if algorithm else MUCH
    between = (took(on(step, 1e6, 1 + more), tiny) - fixed) / step - steps if algorithm or template.alone_too else 0.0
    crossings = between / more
    # Chunks of few elements are not of one size, and short messages are stored and forwarded.
    short = {even(collective, ranks, size) for size in sizes if size < ranks * EVEN}
    alone = {size: took(base, size) - fixed for size in sorted(short)}
    volumes = (alone[even(collective, ranks, size)] / wire(size) if size < ranks * EVEN else volume for size in sizes)
    return [(steps, each, fixed, crossings) for each in volumes]


def copied(declared: Mapping[str, Any]) -> dict[str, Any]:
    """A copy whose sections can be changed."""
    return {key: copied(value) if isinstance(value, Mapping) else value for key, value in declared.items()}


def sized(declared: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """The machine with so many ranks."""
    found = copied(declared)
    found["system"]["sips"]["count"] = ranks
    return found


def text(declared: Mapping[str, Any]) -> str:
    """The file of a machine."""
    return "# A machine that was fitted to measurements; see `calibration` below.\n" + yaml.safe_dump(
        dict(declared), sort_keys=False, width=120, default_flow_style=None, allow_unicode=True
    )


def save(declared: Mapping[str, Any], path: Path) -> None:
    """Writes it. Raises ConfigError (AHBM-C195) where that is not possible."""
    try:
        store({path: text(declared).encode()})
    except OSError as error:
        raise ConfigError("AHBM-C195", f"{path} cannot be written: {error.strerror or error}") from error
