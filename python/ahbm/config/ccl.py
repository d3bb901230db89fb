"""ccl.yaml: which algorithm runs a collective, and how its queues are set up.

Declared (YAML text, line by line) -> checked (`CclConfig`) -> resolved (`Settings` of one algorithm). The packaged
ccl.yaml is the base of every configuration and the only place where defaults stand; a user's file is laid over it key
by key, overrides over both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from ahbm.base import packaged
from ahbm.base.collectives import COLLECTIVES, require_collective
from ahbm.base.load import load_text
from ahbm.base.yaml_source import KeyPath, Source, did_you_mean, parse, scalar, scalar_text
from ahbm.config.checks import AUTO, Check, backpressure, integer, selector, size, text, texts
from ahbm.config.kinds import KINDS, keys, kind
from ahbm.config.rules import RULE, Named, Place, Written, described, described_selector, hiding, is_placed
from ahbm.config.settings import Queues, Settings
from ahbm.errors import ConfigError, Site, UnsupportedError

OVERRIDES = "overrides"
ENV = "AHBM_CCL"
"""Environment variable that names the ccl.yaml to use."""


DEFAULTS: dict[str, Check] = {
    "algorithm": texts,
    "selector": selector,
    "n_elem": integer(1),
    "buffer_kind": text,
    "n_slots": integer(1, 2**32 - 1),
    "slot_size": size,
    "backpressure": backpressure,
    "ipcq_credit_size_bytes": integer(1),
    "world_size": integer(1, 2**32 - 1),
    "op_budget": integer(1),
    "event_budget": integer(1),
}
COMMON = {key: check for key, check in DEFAULTS.items() if key not in ("algorithm", "selector")}
"""Keys of every entry."""
_ROOTS = ("defaults", "algorithms", "collectives")


class CclConfig:
    """A checked configuration."""

    def __init__(self, layers: list[tuple[Source, Path]]) -> None:
        """Lays `layers` (source, folder its relative paths start from) over each other, the last one on top.

        Raises ConfigError with all findings' file and line (AHBM-C103, C104, C108, C109).
        """
        self._defaults: dict[str, Any] = {}
        self._algorithms: dict[str, dict[str, Any]] = {}
        self._collectives: dict[str, Any] = {}
        self._folders: dict[str, Path] = {}
        self._rest: dict[str, int] = {}
        """By collective, how many of its rules held before those of the last file."""
        self._selecting: dict[KeyPath, Path] = {}
        """By the path of what names selectors, the folder that their files start from."""
        self._places: dict[KeyPath, str] = {}
        self._resolved: dict[str, Settings] = {}
        self._rules: dict[str, Written] = {}
        self.origin = layers[-1][0].origin
        self.file = next((source.origin for source, _ in layers[1:] if source.origin != OVERRIDES), "")
        """The user's file; empty without one."""
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
        Raises ConfigError AHBM-C101 when the file cannot be read, C102 for bad YAML, C103, C104, C108 and C109 for
        bad content.
        """
        layers = [(_read(packaged.CCL), Path())]
        path = Path(ccl or os.environ.get(ENV) or "ccl.yaml")
        if ccl or os.environ.get(ENV) or path.exists():
            layers.append((_read(path), path.parent))
        if overrides:
            source = Source(OVERRIDES)
            for key, value in overrides.items():
                parts = tuple(key.split("."))
                path_in_file = ("defaults", *parts) if len(parts) == 1 and key in DEFAULTS else parts
                source.put(path_in_file, scalar(scalar_text(value)), f"override {key}={scalar_text(value)}")
            layers.append((source, Path()))
        return CclConfig(layers)

    @staticmethod
    @cache
    def packaged() -> CclConfig:
        """The packaged ccl.yaml, alone."""
        return CclConfig([(_read(packaged.CCL), Path())])

    @property
    def algorithms(self) -> list[str]:
        """Names of the configured algorithms, sorted."""
        return sorted(self._algorithms)

    def candidates(self, collective: str, nbytes: int, ranks: int) -> tuple[str, ...]:
        """The algorithms for `nbytes` bytes of one rank's tensor in a group of `ranks` ranks.

        Of several, the quickest that knows the network is meant: see `Emulator.compile`.

        Raises ConfigError AHBM-C105 for an unknown collective, C106 when none is configured for it, its size and its
        ranks.
        """
        require_collective(collective)
        choice = self._collectives.get(collective)
        if isinstance(choice, str):
            return (choice,)
        written = self._written(collective)
        at = written.first(nbytes, ranks, None)
        if choice is not None and at is not None:
            return (str(choice[at]["algorithm"]),)
        # Behind a selector stands what would hold if nobody had said anything.
        selects = written.first(nbytes, ranks, None, selectors=True) is not None
        if collective == "all_reduce" and (selects or not any(map(_is_for_all, choice or ()))):
            return self.defaults
        if selects:
            return CclConfig.packaged().candidates(collective, nbytes, ranks)
        raise ConfigError(
            "AHBM-C106",
            f"no algorithm is configured for {collective} of {nbytes} bytes among {ranks} ranks",
            sites=(Site(f"collectives.{collective}", self._place(("collectives", collective))),),
            hint=f"name one under collectives.{collective} in ccl.yaml",
        )

    def of_other_ranks(self, collective: str, nbytes: int, ranks: int) -> tuple[str, ...]:
        """Notes on the user's rules that a call would have, were it among as many ranks as they are for, before the one
        that holds."""
        rules = self._own(collective)
        if not rules:
            return ()
        own = Written.of(collective, rules)
        return tuple(f"the rule {rule!r} is not for {ranks} ranks" for rule in own.of_other_ranks(nbytes, ranks))

    def unmet_ranks(self, collective: str, counts: Collection[int]) -> tuple[str, ...]:
        """Notes on the user's rules for as many ranks as no call has, of calls among these numbers of ranks."""
        rules = [rule for rule in self._own(collective) if rule.get("ranks") not in (None, *counts)]
        return tuple(f"no {collective} meets the rule {described(rule)!r}" for rule in rules)

    def _written(self, collective: str) -> Written:
        """The rules of a collective, once all layers are laid."""
        if collective not in self._rules:
            choice = self._collectives.get(collective)
            self._rules[collective] = Written.of(collective, choice if isinstance(choice, list) else ())
        return self._rules[collective]

    def _own(self, collective: str) -> list[dict[str, Any]]:
        """The rules of a collective that the user wrote."""
        choice = self._collectives.get(collective)
        if not isinstance(choice, list) or not self.is_own(collective):
            return []
        return choice[: len(choice) - self._rest.get(collective, 0)]

    @cached_property
    def has_selectors(self) -> bool:
        """Whether it names any selector."""
        return bool(self._selecting)

    def selector(self, collective: str, nbytes: int, ranks: int, place: Place | None) -> Named | None:
        """The selector for a call of `nbytes` bytes of one rank's tensor in a group of `ranks` ranks; None where an
        algorithm is named for it, or nothing. `place`: in a job, or in a process group."""
        choice, path = self._collectives.get(collective), ("collectives", collective)
        own = not self._place(path).startswith("packaged ")
        if isinstance(choice, list):
            at = self._written(collective).first(nbytes, ranks, place, selectors=True)
            if at is not None and "selector" in choice[at]:
                return self._named(choice[at]["selector"], path, (*path, at))
            if at is not None and (own or at < len(choice) - self._rest.get(collective, 0)):
                return None
        elif choice is not None and own:
            return None
        return self._named(self._defaults.get("selector"), ("defaults",), ("defaults", "selector"))

    def selectors(self) -> Iterator[Named]:
        """Every selector that it names."""
        path: KeyPath = ("defaults",)
        if (default := self._named(self._defaults.get("selector"), path, (*path, "selector"))) is not None:
            yield default
        for name, choice in self._collectives.items():
            path = ("collectives", name)
            for at, rule in enumerate(choice if isinstance(choice, list) else ()):
                if (found := self._named(rule.get("selector"), path, (*path, at))) is not None:
                    yield found

    def _named(self, value: Any, path: KeyPath, written: KeyPath) -> Named | None:
        if value is None:
            return None
        return Named(json.dumps(value, sort_keys=True), self._selecting[path], self._place(written))

    def placed(self, collective: str, nbytes: int, ranks: int, place: Place) -> tuple[str, str] | None:
        """The rule for calls of jobs that holds for a call: where it is written, and its algorithm; None where what
        `candidates` says holds."""
        choice = self._collectives.get(collective)
        if not isinstance(choice, list):
            return None
        at = self._written(collective).first(nbytes, ranks, place)
        if at is None or not is_placed(choice[at]):
            return None
        return self._place(("collectives", collective, at)), str(choice[at]["algorithm"])

    def rules_of_jobs(self) -> Iterator[tuple[str, Site]]:
        """The collective of each rule for calls of jobs, and where it was written."""
        for name, choice in self._collectives.items():
            for at, rule in enumerate(choice if isinstance(choice, list) else ()):
                if is_placed(rule):
                    label = f"collectives.{name}.{at}: {described(rule)}"
                    yield name, Site(label, self._place(("collectives", name, at)))

    def is_own(self, collective: str) -> bool:
        """Whether the user's file or an override chooses for `collective`, not the packaged file."""
        path: KeyPath = ("collectives", collective)
        if collective not in self._collectives:
            path = ("defaults", "algorithm")
        return not self._place(path).startswith("packaged ")

    def described(self, collective: str) -> str:
        """The algorithms of a collective, for people."""
        choice = self._collectives.get(collective)
        chosen = self._defaults.get("selector")
        ahead = [] if chosen is None or self.is_own(collective) else [f"selector {described_selector(chosen)}"]
        if choice is None:
            return ", else ".join([*ahead, self._described_defaults()] if collective == "all_reduce" else ["-"])
        if isinstance(choice, str):
            return ", else ".join([*ahead, choice])
        rest = [self._described_defaults()] if collective == "all_reduce" and not any(map(_is_for_all, choice)) else []
        return ", else ".join([*map(described, choice), *rest])

    def _described_defaults(self) -> str:
        *others, last = self.defaults
        return f"the quickest of {', '.join(others)} and {last}" if others else last

    def settings(self, algorithm: str) -> Settings:
        """Settings of `algorithm`: the name of an entry, else, with defaults, the file of a plan, a script that lowers
        one, `synth:METHOD`, or a module (path, dotted or bare name)."""
        if algorithm not in self._resolved:
            self._resolved[algorithm] = self._resolve(algorithm)
        return self._resolved[algorithm]

    def _resolve(self, algorithm: str) -> Settings:
        entry = self._algorithms.get(algorithm) or unnamed_entry(algorithm)
        key = next(key for key in KINDS if key in entry)
        return self._with(algorithm, key, {**self._defaults, **kind(key).defaults, **entry}, entry)

    def unnamed(self, name: str, key: str, options: Hashable) -> Settings:
        """Settings of an algorithm of kind `key` that no entry names, with the options that tell it from others."""
        merged = {**self._defaults, **kind(key).defaults}
        return replace(self._with(name, key, {**merged, key: name}, {}), options=options)

    def _with(self, algorithm: str, key: str, merged: dict[str, Any], entry: dict[str, Any]) -> Settings:
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
            kind=key,
            options=kind(key).options(merged),
            folder=self._folders.get(algorithm, Path()),
            n_elem=merged["n_elem"],
            queues=Queues(
                buffer_kind=merged["buffer_kind"],
                n_slots=merged["n_slots"],
                slot_size=None if merged["slot_size"] == AUTO else merged["slot_size"],
                ipcq_credit_size_bytes=merged["ipcq_credit_size_bytes"],
            ),
            world_size=merged.get("world_size"),
            op_budget=merged["op_budget"],
            event_budget=merged["event_budget"],
            own_slots="n_slots" in entry,
            written=self._places.get(("algorithms", algorithm), ""),
            parameters=tuple(
                (name, tuple(value) if isinstance(value, list) else value)
                for name, value in sorted(entry.items())
                # Those of other kinds last: their modules take long to import.
                if name not in COMMON and name not in kind(key).all_keys(key) and name not in keys()
            ),
        )

    def entry(self, algorithm: str) -> dict[str, Any]:
        """The entry that a ccl.yaml in any folder needs under `algorithms` for `algorithm`."""
        entry = dict(self._algorithms.get(algorithm) or unnamed_entry(algorithm))
        folder = self._folders.get(algorithm, Path())
        for key in KINDS:
            if key in entry and (file := kind(key).file(entry[key], folder)) is not None:
                entry[key] = str(file.resolve())
        return entry

    @property
    def defaults(self) -> tuple[str, ...]:
        """`defaults.algorithm`: the algorithms of all_reduce; of several, the quickest is meant."""
        names = self._defaults["algorithm"]
        return (names,) if isinstance(names, str) else tuple(names)

    @property
    def default_algorithm(self) -> str:
        """The first of `defaults`; its entry sets the size of the world."""
        return self.defaults[0]

    @cached_property
    def fingerprint(self) -> str:
        """Text that is equal for equal configurations, of files in the same folders."""
        folders = {name: str(folder.resolve()) for name, folder in self._folders.items()}
        facts: list[object] = [self._defaults, self._algorithms, self._collectives, folders]
        if self._selecting:
            facts.append([[*map(str, path), str(folder.resolve())] for path, folder in self._selecting.items()])
        return json.dumps(facts, sort_keys=True)

    def __getstate__(self) -> dict[str, object]:
        # Elsewhere the working folder is another.
        resolved = {name: folder.resolve() for name, folder in self._folders.items()}
        selecting = {path: folder.resolve() for path, folder in self._selecting.items()}
        return {**vars(self), "_folders": resolved, "_selecting": selecting}

    def _place(self, path: KeyPath) -> str:
        return self._places.get(path, self.origin)

    def _add(self, source: Source, folder: Path) -> None:
        before = dict(self._places)
        self._places.update(source.places)
        for root, content in source.values.items():
            if root not in _ROOTS:
                _unknown(source, (root,), _ROOTS)
            if content is None:
                continue
            _expect(isinstance(content, dict), source, (root,), content, "a mapping")
            if root == "defaults":
                _check_keys(source, (root,), content, DEFAULTS)
                self._defaults.update(content)
                if "selector" in content:
                    self._selecting[root,] = folder
            elif root == "algorithms":
                for name, entry in content.items():
                    self._add_algorithm(source, folder, name, entry)
            else:
                for name in content:
                    if name not in COLLECTIVES:
                        _unknown(source, (root, name), COLLECTIVES)
                    own = content[name]
                    own = [own] if isinstance(own, dict) else own
                    self._check_shape(source, name, own)
                    choice = self._collectives[name] = self._with_rest(name, own)
                    if any("selector" in rule for rule in own if isinstance(rule, dict)):
                        self._selecting[root, name] = folder
                    if choice is not own:
                        # Rules for calls of jobs leave what everything else runs by to whoever chose it.
                        self._places[root, name] = before.get((root, name), "packaged ccl.yaml")

    def _add_algorithm(self, source: Source, folder: Path, name: str, entry: Any) -> None:
        path = ("algorithms", name)
        _expect(isinstance(entry, dict), source, path, entry, "a mapping with the key module")
        merged = {**self._algorithms.get(name, {}), **entry}
        found = [key for key in KINDS if key in merged]
        # What has keys of its own kind alone is judged by that; the other kinds' modules take long to import.
        known = {**COMMON, **(kind(found[0]).all_keys(found[0]) if len(found) == 1 else {})}
        if not merged.keys() <= known.keys():
            known |= keys()
        own = kind(found[0]).parameters if len(found) == 1 else None
        further = [key for key in entry if key not in known and key.isidentifier()] if own is not None else []
        _check_keys(source, path, entry, {**known, **{key: own for key in further if own is not None}})
        if len(found) != 1:
            message = " and ".join(f"a {key}" for key in found) or f"no {', '.join(KINDS)}"
            raise ConfigError(
                "AHBM-C104" if not found else "AHBM-C103",
                f"algorithms.{name} has {message}",
                sites=(Site("written", source.place(path)),),
                hint=f"add {', or '.join(kind(key).example for key in KINDS)}".replace("NAME", name),
            )
        if odd := merged.keys() & known.keys() - COMMON.keys() - kind(found[0]).all_keys(found[0]).keys():
            theirs = next(key for key in KINDS if odd & {key, *kind(key).keys})
            raise ConfigError(
                "AHBM-C103",
                f"algorithms.{name}: {' and '.join(sorted(odd))} are for {theirs}s",
                sites=(Site("written", source.place(path)),),
            )
        self._algorithms[name] = merged
        if found[0] in entry:
            self._folders[name] = folder

    def _check_shape(self, source: Source, name: str, choice: Any) -> None:
        path = ("collectives", name)
        if isinstance(choice, str):
            return
        _expect(
            isinstance(choice, list) and bool(choice), source, path, choice, "an algorithm or a list of size ranges"
        )
        # The first rule that fits is taken: one that no call reaches would be a mistake.
        for index, entry in enumerate(choice):
            here: KeyPath = (*path, index)
            _expect(isinstance(entry, dict), source, here, entry, f"{{{', '.join(RULE)}}}")
            _check_keys(source, here, entry, RULE)
            one = ("algorithm" in entry) != ("selector" in entry)
            _expect(one, source, here, entry, f"{{{', '.join(RULE)}}} with an algorithm or a selector")
            before = hiding(choice, index)
            ends = all("max_bytes" in rule for rule in before)
            wanted = "above the previous range's max_bytes" if ends else "before the range that has no max_bytes"
            _expect(not before, source, here, entry, wanted)

    def _with_rest(self, name: str, choice: Any) -> Any:
        """A choice; below rules for calls of jobs, and those that name selectors, what held without them."""
        if isinstance(choice, str) or any(map(_is_for_all, choice)):
            self._rest.pop(name, None)
            return choice
        rest = self._collectives.get(name)
        rules = [{"algorithm": rest}] if isinstance(rest, str) else rest or []
        self._rest[name] = len(rules)
        return [*choice, *rules]

    def _check_choice(self, name: str, choice: Any) -> None:
        for entry in [{"algorithm": choice}] if isinstance(choice, str) else choice:
            algorithm = entry.get("algorithm")
            if algorithm is not None and algorithm not in self._algorithms and not algorithm.endswith(".py"):
                raise ConfigError(
                    "AHBM-C109",
                    f"collectives.{name} names an unknown algorithm {algorithm!r}",
                    sites=(Site("written", self._place(("collectives", name))),),
                    hint=did_you_mean(algorithm, self._algorithms),
                )


def _is_for_all(rule: Mapping[str, Any]) -> bool:
    """Whether a rule names an algorithm for calls outside of jobs too."""
    return "selector" not in rule and not is_placed(rule)


def unnamed_entry(algorithm: str) -> dict[str, object]:
    """The entry of an algorithm that ccl.yaml does not name."""
    key = next((key for key in KINDS if kind(key).claims(algorithm)), "module")
    return {key: kind(key).named(algorithm)}


def entry_overrides(name: str, entry: Mapping[str, object]) -> dict[str, object]:
    """Overrides that make `entry` the entry of an algorithm; its keys may be paths with dots."""
    return {f"algorithms.{name}.{key}": value for key, value in entry.items()}


def are_of(name: str, overrides: Mapping[str, object]) -> set[str]:
    """The overrides that are keys of the entry of an algorithm."""
    return {key for key in overrides if key.startswith(f"algorithms.{name}.")}


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
        elif root in _ROOTS or key in DEFAULTS:
            ccl[key] = value
        else:
            raise ConfigError(
                "AHBM-C107",
                f"override {key}: neither the topology nor ccl.yaml has a key {root!r}",
                hint=did_you_mean(root, {*topology_roots, *_ROOTS, *DEFAULTS}),
            )
    return topology, ccl


@cache
def _topology_roots() -> frozenset[str]:
    """Top-level keys of a topology; the packaged one has all but the machine that a file stands on."""
    text = packaged.TOPOLOGY.read_text(encoding="utf-8")
    return frozenset((*parse(text, "topology.yaml", packaged=True).values, "base"))


def _read(path: Path) -> Source:
    try:
        content = load_text(path)
    except OSError as error:
        raise ConfigError(
            "AHBM-C101", f"cannot read {path}: {error}", hint=f"give the path of a ccl.yaml, or unset {ENV}"
        ) from error
    own = path.is_relative_to(packaged.ROOT)
    return _parsed(content, f"packaged {path.name}" if own else str(path), own)


@lru_cache(16)
def _parsed(text: str, origin: str, own: bool) -> Source:
    """`parse`, once for equal texts: what reads the source writes nothing into it."""
    return parse(text, origin, packaged=own)


def _check_keys(source: Source, path: KeyPath, content: dict[str, Any], known: Mapping[str, Check]) -> None:
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
        "AHBM-C108",
        f"unknown key {_dotted(path)}",
        sites=(Site("written", source.place(path)),),
        hint=did_you_mean(str(path[-1]), known),
    )


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)
