"""ccl.yaml: which algorithm runs a collective, and how its queues are set up.

Declared (YAML text, line by line) -> checked (`CclConfig`) -> resolved (`Settings` of one algorithm). The packaged
ccl.yaml is the base of every configuration and the only place where defaults stand; a user's file is laid over it key
by key, overrides over both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ahbm import packaged
from ahbm._core import plan_limits
from ahbm.collectives import COLLECTIVES
from ahbm.errors import ConfigError, Site, UnsupportedError
from ahbm.reading import PLAIN, Reading
from ahbm.yaml_source import KeyPath, Source, did_you_mean, parse, scalar, scalar_text

SLOTS = 2
"""Messages a plan's queue holds where its entry does not say: what the runtime of such plans has."""
UNBOUNDED = 2**32 - 1
"""Queue depth that holds every message: what synthesized schedules count on."""
WHOLE = 2**63 - 1
"""Size of a slice that no message exceeds: synthesized schedules have cut their messages themselves."""
ENV = "AHBM_CCL"
"""Environment variable that names the ccl.yaml to use."""


@dataclass(frozen=True)
class Synth:
    """How the schedule of a synthesized algorithm is found: arguments of `ahbm.synthesize`."""

    method: str = "auto"
    chunks: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Settings:
    """What one algorithm runs with: its entry of ccl.yaml over the defaults."""

    algorithm: str
    """Name of the entry, or the module's text where there is no entry."""
    module: str
    """Dotted name, path or bare name of the module; empty for a plan or a synthesized schedule."""
    folder: Path
    """What a relative path in `module` or `plan` is relative to."""
    n_elem: int
    """Elements per tile where a run does not say how many."""
    buffer_kind: str
    """Memory tier of the queue slots."""
    n_slots: int
    """Messages a queue holds."""
    slot_size: int | None
    """Bytes a slot holds; None sizes each queue to its largest message."""
    ipcq_credit_size_bytes: int
    """Size of a credit message."""
    world_size: int | None
    """Number of ranks; None is the number of SIPs, more than that is the legacy mode (a rank is a PE)."""
    op_budget: int
    """`tl` calls one kernel may make."""
    event_budget: int
    """Events one simulation may take."""
    plan: str | None = None
    """Path of a plan that takes the place of a module."""
    protocol: str | None = None
    """Protocol of a plan; None is its own."""
    instances: int = 1
    """Parallel copies of a plan, each on its share of every chunk."""
    reading: Reading = PLAIN
    """How a plan is read."""
    slice_bytes: int | None = None
    """Size of a plan's largest message; None is its protocol's."""
    synth: Synth | None = None
    """Takes the place of a module: a schedule synthesized for the machine and the size."""

    @property
    def queues(self) -> tuple[object, ...]:
        """Everything here that a program depends on besides its kernel."""
        return (
            self.buffer_kind,
            self.n_slots,
            self.slot_size,
            self.ipcq_credit_size_bytes,
            self.op_budget,
            self.event_budget,
            self.protocol,
            self.instances,
            self.slice_bytes,
        )


_Check = Callable[[Any], str | None]


def _integer(least: int) -> _Check:
    def check(value: Any) -> str | None:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return None if good else f"an integer of at least {least}"

    return check


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "a name"


def _switch(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _limits(value: Any) -> str | None:
    if isinstance(value, dict) and all(_integer(0)(number) is None and number < 2**64 for number in value.values()):
        unknown = value.keys() - dict(plan_limits()).keys()
        if not unknown:
            return None
    return f"numbers for some of {', '.join(name for name, _ in plan_limits())}"


def _slot_size(value: Any) -> str | None:
    return None if value == "auto" or _integer(1)(value) is None else "a number of bytes or auto"


def _synth(value: Any) -> str | None:
    keys = {"method": _text, "chunks": _integer(1), "seed": _integer(0)}
    good = isinstance(value, dict) and all(key in keys and keys[key](v) is None for key, v in value.items())
    return None if good else "a mapping with method, chunks (1 or more) and seed"


def _backpressure(value: Any) -> str | None:
    return None if value in ("sleep", "poll") else "sleep or poll"


_DEFAULTS: dict[str, _Check] = {
    "algorithm": _text,
    "n_elem": _integer(1),
    "buffer_kind": _text,
    "n_slots": _integer(1),
    "slot_size": _slot_size,
    "backpressure": _backpressure,
    "ipcq_credit_size_bytes": _integer(1),
    "world_size": _integer(1),
    "op_budget": _integer(1),
    "event_budget": _integer(1),
}
_ENTRY: dict[str, _Check] = {
    "module": _text,
    "plan": _text,
    "protocol": _text,
    "instances": _integer(1),
    "quirks": _switch,
    "lenient": _switch,
    "limits": _limits,
    "slice_bytes": _integer(1),
    "synth": _synth,
    **{key: check for key, check in _DEFAULTS.items() if key != "algorithm"},
}
_OF_PLANS = {"protocol", "instances", "slice_bytes"}
_OF_FILES = {"quirks", "lenient", "limits"}
_RANGE: dict[str, _Check] = {"max_bytes": _integer(0), "algorithm": _text}
_ROOTS = ("defaults", "algorithms", "collectives")


class CclConfig:
    """A checked configuration."""

    def __init__(self, layers: list[tuple[Source, Path]]) -> None:
        """Lays `layers` (source, folder its relative paths start from) over each other, the last one on top.

        Raises ConfigError with all findings' file and line (AHBM-C103, C104).
        """
        self._defaults: dict[str, Any] = {}
        self._algorithms: dict[str, dict[str, Any]] = {}
        self._collectives: dict[str, Any] = {}
        self._folders: dict[str, Path] = {}
        self._places: dict[KeyPath, str] = {}
        self.origin = layers[-1][0].origin
        for source, folder in layers:
            self._add(source, folder)
        for name, choice in self._collectives.items():
            self._check_choice(name, choice)
        if "algorithm" not in self._defaults:
            raise ConfigError("AHBM-C104", f"{self.origin}: defaults.algorithm is missing")

    @staticmethod
    def load(ccl: str | Path | None = None, overrides: Mapping[str, object] | None = None) -> CclConfig:
        """Reads `ccl`, else the file that AHBM_CCL names, else ./ccl.yaml, else only the packaged one.

        `overrides`: dotted path -> value (`{"defaults.n_slots": 8}`; a key of `defaults` alone will do).
        Raises ConfigError AHBM-C101 when the file cannot be read, C102 for bad YAML, C103 and C104 for bad content.
        """
        layers = [(_read(packaged.CCL), Path())]
        path = Path(ccl or os.environ.get(ENV) or "ccl.yaml")
        if ccl or os.environ.get(ENV) or path.exists():
            layers.append((_read(path), path.parent))
        if overrides:
            source = Source("overrides")
            for key, value in overrides.items():
                parts = tuple(key.split("."))
                path_in_file = ("defaults", *parts) if len(parts) == 1 and key in _DEFAULTS else parts
                source.put(path_in_file, scalar(scalar_text(value)), f"override {key}={scalar_text(value)}")
            layers.append((source, Path()))
        return CclConfig(layers)

    @property
    def algorithms(self) -> list[str]:
        """Names of the configured algorithms, sorted."""
        return sorted(self._algorithms)

    def choose(self, collective: str, nbytes: int) -> str:
        """The algorithm for `nbytes` bytes of one rank's tensor.

        Raises ConfigError AHBM-C105 for an unknown collective, C106 when none is configured for it or for its size.
        """
        if collective not in COLLECTIVES:
            raise ConfigError(
                "AHBM-C105", f"unknown collective {collective!r}", hint=did_you_mean(collective, COLLECTIVES)
            )
        choice = self._collectives.get(collective)
        if choice is None and collective == "all_reduce":
            choice = self._defaults["algorithm"]
        if isinstance(choice, str):
            return choice
        for entry in choice or ():
            if "max_bytes" not in entry or nbytes <= entry["max_bytes"]:
                return str(entry["algorithm"])
        raise ConfigError(
            "AHBM-C106",
            f"no algorithm is configured for {collective} of {nbytes} bytes",
            sites=(Site(f"collectives.{collective}", self._place(("collectives", collective))),),
            hint=f"name one under collectives.{collective} in ccl.yaml",
        )

    def settings(self, algorithm: str) -> Settings:
        """What `algorithm` runs with: the name of an entry, else a module (path, dotted or bare name) with defaults."""
        entry = self._algorithms.get(algorithm, {"module": algorithm})
        kind: dict[str, Any] = {}
        if "plan" in entry:
            kind = {"module": "", "n_slots": SLOTS}
        elif "synth" in entry:
            kind = {"module": "", "n_slots": UNBOUNDED, "buffer_kind": "hbm", "slice_bytes": WHOLE}
        merged = {**self._defaults, **kind, **entry}
        if merged["backpressure"] == "poll":
            path = ("algorithms", algorithm) if "backpressure" in entry else ("defaults",)
            raise UnsupportedError(
                "AHBM-U102",
                "backpressure: poll is not modelled; senders sleep until a credit comes",
                sites=(Site("asked for by", self._place((*path, "backpressure"))),),
                hint="use backpressure: sleep",
            )
        return Settings(
            algorithm=algorithm,
            slot_size=None if merged["slot_size"] == "auto" else merged["slot_size"],
            world_size=merged.get("world_size"),
            folder=self._folders.get(algorithm, Path()),
            plan=merged.get("plan"),
            protocol=merged.get("protocol"),
            instances=merged.get("instances", 1),
            reading=Reading.of(merged),
            slice_bytes=merged.get("slice_bytes"),
            synth=Synth(**merged["synth"]) if "synth" in merged else None,
            **{
                key: merged[key]
                for key in (
                    "module",
                    "n_elem",
                    "buffer_kind",
                    "n_slots",
                    "ipcq_credit_size_bytes",
                    "op_budget",
                    "event_budget",
                )
            },
        )

    def entry(self, algorithm: str) -> dict[str, Any]:
        """What a ccl.yaml in any folder has to say under `algorithms` for `algorithm`."""
        entry = dict(self._algorithms.get(algorithm, {"module": algorithm}))
        folder = self._folders.get(algorithm, Path())
        for key in ("module", "plan"):
            if key in entry and (key == "plan" or "/" in entry[key] or entry[key].endswith(".py")):
                entry[key] = str((folder / entry[key]).resolve())
        return entry

    @property
    def default_algorithm(self) -> str:
        """`defaults.algorithm`."""
        return str(self._defaults["algorithm"])

    def fingerprint(self) -> str:
        """Text that is equal for equal configurations."""
        return json.dumps([self._defaults, self._algorithms, self._collectives], sort_keys=True)

    def _place(self, path: KeyPath) -> str:
        return self._places.get(path, self.origin)

    def _add(self, source: Source, folder: Path) -> None:
        self._places.update(source.places)
        for root, content in source.values.items():
            if root not in _ROOTS:
                _unknown(source, (root,), _ROOTS)
            if content is None:
                continue
            _expect(isinstance(content, dict), source, (root,), content, "a mapping")
            if root == "defaults":
                _check_keys(source, (root,), content, _DEFAULTS)
                self._defaults.update(content)
            elif root == "algorithms":
                for name, entry in content.items():
                    self._add_algorithm(source, folder, name, entry)
            else:
                for name in content:
                    if name not in COLLECTIVES:
                        _unknown(source, (root, name), COLLECTIVES)
                    self._check_shape(source, name, content[name])
                self._collectives.update(content)

    def _add_algorithm(self, source: Source, folder: Path, name: str, entry: Any) -> None:
        path = ("algorithms", name)
        _expect(isinstance(entry, dict), source, path, entry, "a mapping with the key module")
        _check_keys(source, path, entry, _ENTRY)
        merged = {**self._algorithms.get(name, {}), **entry}
        kinds = [key for key in ("module", "plan", "synth") if key in merged]
        if len(kinds) != 1:
            raise ConfigError(
                "AHBM-C104" if not kinds else "AHBM-C103",
                f"algorithms.{name} has {' and '.join(f'a {kind}' for kind in kinds) or 'no module, plan or synth'}",
                sites=(Site("written", source.place(path)),),
                hint=f"add module: ./algorithms/{name}.py, or plan: with the path of a plan, or synth:",
            )
        odd = (_OF_PLANS if "module" in merged else set()) | (_OF_FILES if "plan" not in merged else set())
        if odd := odd & merged.keys():
            raise ConfigError(
                "AHBM-C103",
                f"algorithms.{name}: {' and '.join(sorted(odd))} are for plans",
                sites=(Site("written", source.place(path)),),
            )
        self._algorithms[name] = merged
        if kinds[0] in entry:
            self._folders[name] = folder

    def _check_shape(self, source: Source, name: str, choice: Any) -> None:
        path = ("collectives", name)
        if isinstance(choice, str):
            return
        _expect(
            isinstance(choice, list) and bool(choice), source, path, choice, "an algorithm or a list of size ranges"
        )
        last = -1
        for index, entry in enumerate(choice):
            here: KeyPath = (*path, index)
            _expect(isinstance(entry, dict) and "algorithm" in entry, source, here, entry, "{max_bytes, algorithm}")
            _check_keys(source, here, entry, _RANGE)
            bound = entry.get("max_bytes")
            _expect(
                bound is not None or index == len(choice) - 1,
                source,
                here,
                entry,
                "a range with max_bytes (only the last range may be open)",
            )
            _expect(bound is None or bound > last, source, here, entry, "a max_bytes above the previous range's")
            last = bound if bound is not None else last

    def _check_choice(self, name: str, choice: Any) -> None:
        for entry in [{"algorithm": choice}] if isinstance(choice, str) else choice:
            algorithm = entry["algorithm"]
            if algorithm not in self._algorithms and not algorithm.endswith(".py"):
                raise ConfigError(
                    "AHBM-C103",
                    f"collectives.{name} names an unknown algorithm {algorithm!r}",
                    sites=(Site("written", self._place(("collectives", name))),),
                    hint=did_you_mean(algorithm, self._algorithms),
                )


def split_overrides(overrides: Mapping[str, object] | None) -> tuple[dict[str, object], dict[str, object]]:
    """Splits dotted keys by their root: those of the topology, those of ccl.yaml.

    Raises ConfigError (AHBM-C107) for a root that neither knows.
    """
    topology: dict[str, object] = {}
    ccl: dict[str, object] = {}
    topology_roots = _topology_roots() if overrides else frozenset()
    for key, value in (overrides or {}).items():
        root = key.split(".", 1)[0]
        if root in topology_roots:
            topology[key] = value
        elif root in _ROOTS or key in _DEFAULTS:
            ccl[key] = value
        else:
            raise ConfigError(
                "AHBM-C107",
                f"override {key}: neither the topology nor ccl.yaml has a key {root!r}",
                hint=did_you_mean(root, {*topology_roots, *_ROOTS, *_DEFAULTS}),
            )
    return topology, ccl


def _topology_roots() -> frozenset[str]:
    """Top-level keys of a topology; the packaged one has them all."""
    node = yaml.compose(packaged.TOPOLOGY.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    assert isinstance(node, yaml.MappingNode)
    return frozenset(key.value for key, _ in node.value)


def _read(path: Path) -> Source:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "AHBM-C101", f"cannot read {path}: {error}", hint=f"give the path of a ccl.yaml, or unset {ENV}"
        ) from error
    return parse(text, str(path) if not path.is_relative_to(packaged.ROOT) else f"packaged {path.name}")


def _check_keys(source: Source, path: KeyPath, content: dict[str, Any], known: Mapping[str, _Check]) -> None:
    for key, value in content.items():
        if key not in known:
            _unknown(source, (*path, key), known)
        wanted = known[key](value)
        _expect(wanted is None, source, (*path, key), value, wanted or "")


def _expect(good: bool, source: Source, path: KeyPath, value: Any, wanted: str) -> None:
    if not good:
        raise ConfigError(
            "AHBM-C103",
            f"{_dotted(path)} must be {wanted}, not {value!r}",
            sites=(Site("written", source.place(path)),),
        )


def _unknown(source: Source, path: KeyPath, known: Mapping[str, Any] | tuple[str, ...]) -> None:
    raise ConfigError(
        "AHBM-C103",
        f"unknown key {_dotted(path)}",
        sites=(Site("written", source.place(path)),),
        hint=did_you_mean(str(path[-1]), known),
    )


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)
