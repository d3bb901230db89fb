"""Finding a topology and making a machine of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ahbm._core import Machine
from ahbm.base import arguments, foreign, packaged
from ahbm.base.load import load_text
from ahbm.base.yaml_source import did_you_mean, parse, scalar_text
from ahbm.config import infragraph
from ahbm.config.based import DEEPEST, KEY, base_of, based_on_nothing, laid_over, whole_text
from ahbm.errors import ConfigError, Site, TopologyError

ENV = "AHBM_TOPOLOGY"
"""Environment variable that names the topology to use."""

COUNT = "system.sips.count"
DEFAULT = "default"
"""Name of the packaged topology.yaml."""
ASSUMED = "assumed of the machine: "
"""How notes on a machine that another tool's file describes begin."""
OVERRULED = f"the configured world_size comes before --ranks ({COUNT})"
_NETWORK = "system.sips.topology"
_BEHIND = re.compile(r",\s*(?=[\w.]+=)")
"""Between a machine's name and the overrides behind it."""
_IN_JSON = re.compile(r"\{.*?\"system\"\s*:\s*\{", re.DOTALL)
_ROOFLINE = "pe.roofline."

NETWORKS = (
    "ring_1d",
    "torus_2d",
    "mesh_2d_no_wrap",
    "mesh_3d",
    "torus_3d",
    "hypercube",
    "fully_connected",
    "switch",
    "nodes",
    "custom",
)
"""Networks between SIPs; the name of one stands for the default machine with that network."""


def load_machine(
    topology: str | Path | Machine | None = None, overrides: Mapping[str, object] | None = None
) -> Machine:
    """The machine that `topology` describes, with `overrides` (dotted path -> value) applied before it is checked.

    `topology`: a packaged name (`names()`, `DEFAULT`), a path, a name of `NETWORKS` (./topology.yaml, else the packaged
    default, with `system.sips.topology` set), a Machine (taken as it is), or None: what AHBM_TOPOLOGY names, in the
    same way, else ./topology.yaml, else the packaged default. Behind a name or path there may be overrides, as reports
    name machines: `npu_ring_8, system.sips.count=16`.

    Raises TopologyError: AHBM-T101 for an unknown name, T102 for a file that cannot be read, T103 for overrides of a
    Machine, and whatever is wrong inside (all findings).
    """
    overrides = dict(arguments.overrides(overrides) or {})
    if isinstance(topology, Machine):
        if overrides:
            raise TopologyError(
                "AHBM-T103",
                f"a finished machine takes no overrides ({', '.join(overrides)})",
                hint="pass the topology's name or path instead",
            )
        return topology
    asked = topology or os.environ.get(ENV)
    if isinstance(asked, str):
        asked, *behind = _BEHIND.split(asked)
        overrides = {**dict(one.split("=", 1) for one in behind), **overrides}
    if asked in NETWORKS:
        overrides = {_NETWORK: asked, **overrides}
        asked = None
    return _read(_find(asked), overrides)


def _read(path: Path, overrides: dict[str, object], above: tuple[Path, ...] = ()) -> Machine:
    """The machine of a file. `above`: the files that stand on it. The base of a file may be among the overrides."""
    try:
        text = load_text(path)
    except OSError as error:
        raise TopologyError("AHBM-T102", f"cannot read topology {path}: {error}") from error
    if infragraph.is_document(text):
        described = _of_graph(text, path, overrides)
        return Machine.from_yaml(described, str(path), [(key, scalar_text(value)) for key, value in overrides.items()])
    found = foreign.of_text(text)
    if found is not None and found in foreign.OTHERS:
        named = str(overrides.pop(KEY, "")) or None
        joined, stands_on = _joined(text, path, found, named, overrides)
        origin = f"{path}" if named is None else f"{path}, {KEY}={stands_on}"
        return Machine.from_yaml(joined, origin, [(key, scalar_text(value)) for key, value in overrides.items()])
    if _IN_JSON.match(text.lstrip()):
        found = None
    if found not in (None, foreign.MACHINE):
        raise TopologyError(
            "AHBM-T102",
            f"{path} is {found.what}, which describes no machine",
            sites=(Site("the file", f"{path}:1"),),
            hint="ahbm init writes a topology.yaml with every key, ahbm calibrate one of measured times",
        )
    if (base := base_of(text, path)) is not None and KEY in overrides:
        raise ConfigError(
            "AHBM-C146", f"{path} stands on {base[0]}, and {KEY}={overrides[KEY]} is given", hint="give one"
        )
    if KEY in overrides:
        base = str(overrides[KEY]), based_on_nothing(text, path)
        overrides = {key: value for key, value in overrides.items() if key != KEY}
    if base is not None:
        named, own = base
        if len(above) == DEEPEST:
            files = tuple(Site("a file", str(file)) for file in above)
            raise TopologyError("AHBM-T102", f"{path}: more than {DEEPEST} machines stand on each other", sites=files)
        if named in NETWORKS:
            named, own = DEFAULT, {_NETWORK: named, **own}
        return _read(_find(named), {**own, **overrides}, (*above, path))
    origin = f"packaged {path.name}" if path.is_relative_to(packaged.ROOT) else str(path)
    return Machine.from_yaml(text, origin, [(key, scalar_text(value)) for key, value in overrides.items()])


def _of_graph(text: str, path: Path, overrides: Mapping[str, object]) -> str:
    """A topology.yaml of what an InfraGraph document describes, on the machine that the overrides name as its base."""
    named = overrides.get(KEY)
    if named is None:
        known = foreign.of_text(text)
        what = "" if known is None else f"{known.what}, "
        raise TopologyError(
            "AHBM-T106",
            f"{path} is {what}a graph of devices and links, which says nothing of memory, engines and protocols",
            sites=(Site("the file", str(path)),),
            hint=f"name the machine that says the rest: --set {KEY}=dgx_h100 (`ahbm list topologies` has them)",
        )
    return infragraph.machine_text(text, path, str(named), load_machine(str(named)), _values(str(named)))


def _values(named: str) -> dict[str, object]:
    """All keys that the file of a machine and those that it stands on state."""
    if named in NETWORKS:
        return laid_over(_values(DEFAULT), {_NETWORK: named})
    path = _find(named)
    text = load_text(path)
    base = base_of(text, path)
    return dict(parse(text, str(path)).values) if base is None else laid_over(_values(base[0]), base[1])


def _joined(
    text: str, path: Path, found: foreign.Known, named: str | None, overrides: Mapping[str, object]
) -> tuple[str, str]:
    """A topology.yaml of a machine that another tool's file describes, and the name of the one that it stands on."""
    from ahbm.config import others

    described = others.read(text, str(path), found, overrides)
    base = named or described.base
    beside = _find(base)
    try:
        content = load_text(beside)
    except OSError as error:
        raise TopologyError("AHBM-T102", f"cannot read topology {beside}: {error}") from error
    if foreign.of_text(content) in foreign.OTHERS:
        raise TopologyError("AHBM-T103", f"{KEY}={base}: a machine that says everything is meant", hint="dgx_h100")
    return others.joined(described, _values(base), base), base


def text_for(machine: Machine) -> str | None:
    """The topology.yaml of a machine that was read from another tool's file, whole; None for other machines. Raises as
    `load_machine`."""
    asked, *behind = _BEHIND.split(machine.origin)
    path, overrides = Path(asked), dict(machine.overrides)
    text = load_text(path) if machine.assumed and path.is_file() else ""
    found = foreign.of_text(text)
    if infragraph.is_document(text):
        whole = _of_graph(text, path, overrides)
    elif found is not None and found in foreign.OTHERS:
        named = dict(one.split("=", 1) for one in behind).get(KEY)
        whole = _joined(text, path, found, named, overrides)[0]
    else:
        return None
    values = parse(whole, str(path)).values
    return whole_text(laid_over(values, {key: value for key, value in overrides.items() if key != KEY}))


def resized(network: str, sips: int) -> dict[str, object]:
    """Overrides that give a kind of network `sips` SIPs; grids as near to squares or cubes as it divides.

    Raises nothing: a network that cannot have that many refuses them when it is loaded.
    """
    overrides: dict[str, object] = {COUNT: sips}
    axes = {"torus_2d": "wh", "mesh_2d_no_wrap": "wh", "torus_3d": "whd", "mesh_3d": "whd"}.get(network, "")
    left = sips
    for used, axis in enumerate(axes):
        root = round(left ** (1 / (len(axes) - used)), 9)
        extent = min(size for size in range(1, left + 1) if left % size == 0 and size >= root)
        overrides[f"system.sips.{axis}"] = extent
        left //= extent
    return overrides


def with_ranks(sips: int, topology: str | None, overrides: Mapping[str, object]) -> dict[str, object]:
    """`overrides` for `topology` with `sips` SIPs, and what its network needs to have as many; `overrides` win.

    Raises ConfigError (AHBM-C146) where the number of SIPs is among the overrides too, and as `load_machine`.
    """
    if COUNT in overrides:
        raise ConfigError("AHBM-C146", f"the number of ranks and {COUNT} are both given", hint="give one of them")
    asked = topology or os.environ.get(ENV)
    network = overrides.get(_NETWORK) or (asked if asked in NETWORKS else load_machine(topology).topology)
    return {**resized(str(network), sips), **overrides}


def names() -> list[str]:
    """Names of the packaged topologies but `DEFAULT`."""
    return packaged.names(packaged.TOPOLOGIES, ".yaml")


def read_for(topology: str | Path | Machine | None) -> str:
    """The name of what is read for `topology`, as it can be given in its place: for None what AHBM_TOPOLOGY names, else
    topology.yaml where there is one, else `DEFAULT`."""
    if isinstance(topology, Machine):
        return name_of(topology)
    named = topology or os.environ.get(ENV)
    return str(named) if named else "topology.yaml" if Path("topology.yaml").exists() else DEFAULT


def name_of(machine: Machine) -> str:
    """The packaged name or the path that a machine was read from."""
    name = machine.origin.removeprefix("packaged ")
    if name == machine.origin:
        return name
    return DEFAULT if name == packaged.TOPOLOGY.name else name.removesuffix(".yaml")


def _is_file(text: str) -> bool:
    """Whether a text with a dot in it names a file of the working folder."""
    return "." in text and len(text) < 256 and Path(text).is_file()


def _find(asked: str | Path | None) -> Path:
    if not asked:
        return Path("topology.yaml") if Path("topology.yaml").exists() else packaged.TOPOLOGY
    text = str(asked)
    if text == DEFAULT:
        return packaged.TOPOLOGY
    if text in names():
        return packaged.TOPOLOGIES / f"{text}.yaml"
    if isinstance(asked, Path) or text.endswith((".yaml", ".yml")) or "/" in text or os.sep in text or _is_file(text):
        return Path(text)
    raise TopologyError(
        "AHBM-T101",
        f"unknown topology {text!r}: no file, and none that is packaged",
        hint=did_you_mean(text, [DEFAULT, *names(), *NETWORKS]),
    )


def sized(ranks: int, topology: object, overrides: Mapping[str, object] | None) -> dict[str, object]:
    """`overrides`, with at least as many SIPs as ranks where nobody names a topology or a number of SIPs."""
    from ahbm.config.ccl import split_overrides

    found = dict(overrides or {})
    if topology is None and not os.environ.get(ENV) and COUNT not in found:
        for_topology, _ = split_overrides(found)
        if load_machine(None, for_topology).sips < ranks:
            found[COUNT] = ranks
    return found


def overruled(machine: Machine, ranks: int) -> tuple[str, ...]:
    """The note where a number of SIPs was asked for, and ccl.yaml says how many ranks there are; else none."""
    if COUNT not in dict(machine.overrides) or ranks == machine.sips:
        return ()
    return (f"{ranks} ranks on {machine.sips} SIPs: {OVERRULED}",)


def assumed(machine: Machine) -> tuple[str, ...]:
    """Notes: what was assumed where the machine's file was made from another one, and what its network does not see."""
    striped = machine.has_fabric and machine.striped
    one = "collectives of whole nodes take the way of one interface for all: other interfaces may collide elsewhere"
    return (*(f"{ASSUMED}{what}" for what in machine.assumed), *((one,) if striped else ()))


def sheet(machine: Machine) -> tuple[str, ...]:
    """The note that says by whose data sheet a job's computations were timed; none where the machine names nobody."""
    name, source = machine.sheet
    if name is None:
        return ()
    at = machine.roofline
    message = f"{at.operations_per_ns / 1000:,.6g} TFLOP/s in two bytes, {at.bytes_per_ns:,.6g} GB/s"
    changed = ", ".join(key for key, _ in machine.overrides if key.startswith(_ROOFLINE))
    own = f"; {changed} changed" if changed else f" ({source})" if source else ""
    return (f"computations by the data sheet of {name}: {message}{own}",)
