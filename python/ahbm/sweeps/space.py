"""What a sweep measures: lists that are combined each with each, points drawn from ranges, and cases of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base.arguments import checked, fields_fit, refused, shown, whole
from ahbm.base.arguments import overrides as overrides_of
from ahbm.base.collectives import require_collective
from ahbm.base.elements import parse_dtype
from ahbm.base.load import load_text
from ahbm.base.sizes import parse_size
from ahbm.base.yaml_source import did_you_mean, parse
from ahbm.config.ccl import split_overrides
from ahbm.config.checks import Check, integer, mapping, schema_of, switch, text, texts
from ahbm.errors import AhbmError, ConfigError, Site
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.located import refuse_kernel
from ahbm.sweeps.sample import Range, ranged, sampled
from ahbm.sweeps.values import either, mapping_of, plain_values, several, sizes
from ahbm.table.cases import Sweep
from ahbm.table.columns import STORED
from ahbm.table.expressions import Expression
from ahbm.table.files import KINDS, kind_of

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.source.algorithm import Algorithm

SIZES = ("1K", "32K", "1M")
AXES: dict[str, Check] = {
    "collectives": texts,
    "algorithms": texts,
    "topologies": texts,
    "overrides": mapping_of(plain_values, "dotted paths of the topology or of ccl.yaml, and their values"),
    "sizes": sizes,
    "dtypes": texts,
    "ops": texts,
    "roots": several(integer(0)),
    "seeds": several(integer(0, 2**63 - 1)),
    "jobs": texts,
}
"""The keys whose values are combined, and what each must be in a file."""
KEYS: dict[str, Check] = {
    **AXES,
    "ccl": text,
    "data": switch,
    "check": either(switch, text),
    "ranges": mapping_of(ranged, "dotted paths or `sizes`, each with a range such as [10, 400]"),
    "random": integer(0, 10_000_000),
    "sobol": integer(0, 10_000_000),
    "sample_seed": integer(0, 2**63 - 1),
    "cost": mapping_of(text, "names, each with an expression such as links * 20"),
    "cases": several(mapping(AXES, f"mappings with keys of {', '.join(AXES)}")),
}


@dataclass(frozen=True)
class Space:
    """What a sweep measures. Every axis takes one value or a list of them, and all are combined each with each."""

    collectives: str | Sequence[str] | None = None
    """None: all_reduce, unless there are jobs."""
    algorithms: AnyAlgorithm | Sequence[AnyAlgorithm] = None
    """Names, paths of modules, plans or scripts, `synth:METHOD`, functions; None takes what ccl.yaml chooses."""
    topologies: str | Path | Machine | Sequence[str | Path | Machine] | None = None
    overrides: Mapping[str, object] | None = None
    """Dotted path -> value; a list is several values, each of which is a machine or configuration of its own."""
    sizes: int | str | Sequence[int | str] = SIZES
    """Bytes of one rank's array, numbers or texts such as "64K"; rounded down to what the collective can divide."""
    dtypes: str | Sequence[str] = "f16"
    ops: str | Sequence[str] = "sum"
    roots: int | Sequence[int] = 0
    seeds: int | Sequence[int] = 0
    """Of the data."""
    jobs: str | Path | Sequence[str | Path] = ()
    """Traces of training jobs, replayed on every machine; `algorithms` run their all_reduces."""
    ccl: str | Path | None = None
    data: bool = True
    """Whether data moves and is compared with NumPy."""
    check: bool | str = False
    """Checks to make of every case, as for `ahbm.run`."""
    ranges: Mapping[str, object] | None = None
    """Dotted path, or `sizes` -> [least, most] or {from, to, log}: what the samples are drawn from."""
    random: int = 0
    """Points to draw from the ranges at random; all lists are combined with every point."""
    sobol: int = 0
    """Points of a Sobol sequence (scipy, of the extra `sweep`)."""
    sample_seed: int = 0
    cost: Mapping[str, object] | None = None
    """Name -> arithmetic on columns, such as "links * 20 + system.sips.link.bandwidth_gbs * 3": a column of what a case
    costs, computed when rows are asked."""
    cases: Sequence[Mapping[str, object]] = ()
    """In place of one combination of all: each has axes that replace those of the space, and is combined by itself."""

    def __post_init__(self) -> None:
        """Raises ConfigError: AHBM-C129 for values of wrong types, C105, C107, C143, C147, C185."""
        fields_fit(Space, vars(self))
        for size in several_of(self.sizes):
            if isinstance(size, str):
                parse_size(size)
        for name, value in (("dtypes", self.dtypes), ("ops", self.ops), ("collectives", self.collectives)):
            if "" in several_of(value):
                raise refused(name, "a text", "")
        for dtype in several_of(self.dtypes):
            parse_dtype(dtype)
        for collective in self.measured:
            refuse_kernel(collective)
            require_collective(collective)
        for name in ("roots", "seeds"):
            for number in several_of(getattr(self, name)):
                if number < -(2**31):
                    raise refused(name, "integers", number)
        for name in ("random", "sobol", "sample_seed"):
            if getattr(self, name) < 0:
                raise refused(name, "an integer of at least 0", getattr(self, name))
        split_overrides(overrides_of(self.overrides))
        split_overrides({key: 0 for key in self.drawn if key != "sizes"})
        for case in self.cases:
            self._with(case)
        known = {column.name for column in STORED if column.kind is not str}
        for name, one in self.costs.items():
            if name in KINDS or name in self.varied:
                raise ConfigError("AHBM-C185", f"cost: {shown(name)} is the name of a column")
            for column in one.columns:
                if column not in known and column not in self.varied:
                    names = ", ".join([*sorted(known), *self.varied])
                    hint = f"one of {names}; write what is the same everywhere as a number"
                    message = f"cost: {name} names {column}, which is no column of numbers"
                    raise ConfigError("AHBM-C185", message, hint=hint)
        if self.random and self.sobol:
            raise ConfigError("AHBM-C185", "random and sobol are both given", hint="give one of them")
        if bool(self.drawn) != bool(self.random or self.sobol):
            have, lack = ("ranges", "random or sobol") if self.drawn else ("random or sobol", "ranges")
            raise ConfigError("AHBM-C185", f"{have} without {lack}", hint="ranges: {KEY: [10, 400]}, random: 100")

    @staticmethod
    @checked
    def of(value: Space | Mapping[str, Any] | str | Path) -> Space:
        """A space, a mapping of its fields, or the path of a YAML file with them.

        Raises ConfigError: AHBM-C185 for a key that there is not or a value that is none, with its line in a file;
        C102 for what is no YAML; and as `Space`.
        """
        if isinstance(value, Space):
            return value
        if isinstance(value, str | Path):
            return _read(Path(value))
        _refuse_keys(value, KEYS)
        return Space(**value)

    @property
    def measured(self) -> tuple[str, ...]:
        """The collectives that are measured."""
        if self.collectives is None:
            return () if several_of(self.jobs) else ("all_reduce",)
        return tuple(several_of(self.collectives))

    @cached_property
    def drawn(self) -> dict[str, Range]:
        """The ranges by key."""
        return {key: Range.of(key, value) for key, value in (self.ranges or {}).items()}

    @cached_property
    def costs(self) -> dict[str, Expression]:
        """The columns that are computed, by name."""
        return {str(name): Expression.of(f"cost: {name}", text) for name, text in (self.cost or {}).items()}

    def spaces(self) -> list[Space]:
        """The space itself; or those of its cases, in order."""
        return [self._with(case) for case in self.cases] if self.cases else [self]

    def _with(self, case: Mapping[str, object]) -> Space:
        _refuse_keys(case, AXES)
        laid: dict[str, Any] = dict(case)
        if "overrides" in laid:
            laid["overrides"] = {**(self.overrides or {}), **(overrides_of(laid["overrides"]) or {})}
        return replace(self, cases=(), cost=None, **laid)

    @cached_property
    def _drawn_points(self) -> Sequence[dict[str, float | int]]:
        return sampled(self.drawn, self.random, self.sobol, self.sample_seed)

    @cached_property
    def machines(self) -> int:
        """Machines and configurations: topologies, each with all overrides and every point of the ranges."""
        lists = (len(several_of(value)) for value in (self.overrides or {}).values())
        return (len(several_of(self.topologies)) or 1) * prod(lists) * (self.random or self.sobol or 1)

    def on(self, number: int) -> Sweep:
        """A sweep on one of the `machines`, of what is the same for all cases there. Their order: topologies, then
        overrides, then the points of the ranges. Raises AHBM-C129 for a number that is none."""
        number = whole("number", number, 0, self.machines - 1)
        given = overrides_of(self.overrides) or {}
        chosen: dict[str, Any] = {}
        number, drawn = divmod(number, len(self._drawn_points))
        for key, value in reversed(list(given.items())):
            values = several_of(value)
            number, at = divmod(number, len(values))
            chosen[key] = values[at]
        topology = (several_of(self.topologies) or [None])[number]
        sample = self._drawn_points[drawn]
        sizes = (int(sample["sizes"]),) if "sizes" in sample else self.bytes
        terms: dict[str, Any] = {"listed": sizes, "ccl": self.ccl, "check": self.check}
        overrides = {key: chosen[key] for key in given} | {key: v for key, v in sample.items() if key != "sizes"}
        return Sweep("all_reduce", 1, 1, topology=topology, overrides=overrides, **terms)

    @property
    def varied(self) -> tuple[str, ...]:
        """The overrides that differ from case to case, in order."""
        found: dict[str, None] = {}
        for space in self.spaces():
            lists = (key for key, value in (space.overrides or {}).items() if isinstance(value, list | tuple))
            laid = space.overrides or {}
            own = (key for key in laid if self.cases and laid[key] != (self.overrides or {}).get(key))
            found |= dict.fromkeys([*lists, *own, *(key for key in space.drawn if key != "sizes")])
        return tuple(found)

    @property
    def kinds(self) -> dict[str, str]:
        """The type of each column of overrides."""
        values: dict[str, list[Any]] = {name: [] for name in self.varied}
        for one in self.spaces():
            for key, value in (one.overrides or {}).items():
                if key in values:
                    values[key] += several_of(value)
            for key, found in one.drawn.items():
                if key in values:
                    values[key] += [found.least, found.most]
        return {name: kind_of(found) for name, found in values.items()}

    @property
    def count(self) -> int:
        """Cases, those that turn out to be equal counted each."""
        total = 0
        for space in self.spaces():
            axes = (space.dtypes, space.ops, space.roots, space.seeds)
            each = prod(len(several_of(axis)) for axis in axes) * (1 if "sizes" in space.drawn else len(space.bytes))
            by = len(several_of(space.algorithms)) or 1
            total += space.machines * by * (len(space.measured) * each + len(several_of(space.jobs)))
        return total

    @property
    def bytes(self) -> tuple[int, ...]:
        """`sizes` as numbers."""
        return tuple(parse_size(size) if isinstance(size, str) else size for size in several_of(self.sizes))

    def named(self) -> tuple[tuple[str | None, ...], dict[str, Algorithm]]:
        """Names of the algorithms, one None for the choice of ccl.yaml; and those that are not names, by name.

        Raises ConfigError (AHBM-C129) for two of one name.
        """
        given = several_of(self.algorithms)
        if not given or (len(given) == 1 and given[0] is None):
            return (None,), {}
        found: dict[str, Algorithm] = {}
        names: list[str] = []
        for value in map(as_algorithm, given):
            if value is None:
                raise refused("algorithms", "a list of algorithms", list(given))
            name = value if isinstance(value, str) else value.name
            if name in names:
                what = f"two algorithms of the sweep are called {name}"
                raise ConfigError("AHBM-C129", what, hint="ahbm.algorithm(kernel, name=...)")
            names.append(name)
            if not isinstance(value, str):
                found[name] = value
        return tuple(names), found

    def to_json(self) -> dict[str, Any]:
        """The fields that are not as they are by default, as JSON-serialisable data; what is no plain value, in
        words."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        stated = {name: value for name, value in given.items() if value != defaults[name]}
        plain: dict[str, Any] = json.loads(json.dumps(stated, default=_in_words))
        return plain


def several_of(values: Any) -> list[Any]:
    """The values of an axis, one or several; none for None."""
    if values is None:
        return []
    return list(values) if isinstance(values, list | tuple | range) else [values]


def _in_words(value: object) -> str | None:
    if isinstance(value, Path):
        return str(value)
    if type(value).__name__ == "Machine":
        return f"machine {getattr(value, 'hash', 0):016x}"
    found = as_algorithm(value)
    return found if isinstance(found, str) or found is None else f"{found.name} {found.identity}"


def _refuse_keys(given: Mapping[str, object], known: Mapping[str, object]) -> None:
    for key in given:
        if key not in known:
            raise ConfigError("AHBM-C185", f"unknown key {shown(key)} of a space", hint=did_you_mean(str(key), known))


def _read(path: Path) -> Space:
    try:
        source = parse(load_text(path), str(path))
    except OSError as error:
        hint = "a YAML file with keys such as collectives, algorithms and sizes"
        raise ConfigError("AHBM-C185", f"{path} cannot be read: {error.strerror or error}", hint=hint) from None
    for key, value in source.values.items():
        site = Site("written", source.place((key,)))
        if key not in KEYS:
            hint = did_you_mean(key, KEYS)
            raise ConfigError("AHBM-C185", f"unknown key {key} of a space", sites=(site,), hint=hint)
        wanted = KEYS[key](value)
        if wanted is not None:
            raise ConfigError("AHBM-C185", f"{key} must be {wanted}, not {shown(value)}", sites=(site,))
    try:
        return Space(**source.values)
    except AhbmError as error:
        first = error.findings[0]
        raise AhbmError.of(
            [replace(first, sites=(*first.sites, Site("read from", str(path)))), *error.findings[1:]]
        ) from None


def space_schema() -> str:
    """JSON schema of the file of a space, pretty-printed; `data/schemas/sweep.schema.json` is this text."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AHBM sweep",
        "description": "The space of a sweep: lists that are combined each with each, ranges, and cases of their own.",
        "type": "object",
        "additionalProperties": False,
        "properties": {key: schema_of(check) for key, check in sorted(KEYS.items())},
    }
    return json.dumps(schema, indent=2) + "\n"
