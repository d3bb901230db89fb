"""The algorithms that a selector may choose, each under the digest of what it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ahbm._core import Machine
from ahbm.base.arguments import checked, refused
from ahbm.base.arguments import overrides as overrides_of
from ahbm.base.collectives import require_collective
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.settings import Settings
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError
from ahbm.runs.plans import Options, free_name, is_file, settings_of, source_of
from ahbm.source.algorithm import Algorithm, AlgorithmLoader
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.located import refuse_kernel
from ahbm.source.plan import PlanAlgorithm, depth
from ahbm.source.synth import SYNTH
from ahbm.source.synthesis import METHODS, SYNTHESIZED
from ahbm.table.ladder import with_schedules

Knob = int | str | None


@dataclass(frozen=True)
class Entry:
    """An algorithm of a catalogue."""

    id: str
    """16 hex digits: equal ids are equal algorithms with equal settings, in every process and on every computer."""
    name: str
    """Unique in the catalogue, and the name in its configuration."""
    source: str
    """The origin, for people: a file, a line, "synthesized by greedy"."""
    collective: str
    ranks: int | None
    """The only number of ranks that it is for; None: any."""
    knobs: Mapping[str, Knob]
    """What its entry sets: `protocol`, `channels` (instances), `chunks`, `chunk_bytes` (slice), `slots`; None: open."""
    min_bytes: int = 0
    max_bytes: int | None = None
    """The sizes of one rank's array that its file says it is for; None: no limit."""
    given: Algorithm | None = field(default=None, compare=False, repr=False)
    """The algorithm itself, where it is a function, which no configuration names."""


class Catalogue(Sequence[Entry]):
    """Entries of one collective or of several, and the configuration that names them."""

    def __init__(
        self,
        entries: Sequence[Entry],
        ccl: str | Path | None = None,
        overrides: Mapping[str, object] | None = None,
    ) -> None:
        self._entries = tuple(entries)
        self.ccl = ccl
        self.overrides = dict(overrides or {})
        """Of ccl.yaml: what names the entries that the file does not."""
        seen: set[tuple[str, str]] = set()
        for entry in self._entries:
            if (entry.collective, entry.name) in seen:
                raise ConfigError(
                    "AHBM-C129", f"two algorithms of the catalogue are called {entry.name}", hint="rename one of them"
                )
            seen.add((entry.collective, entry.name))

    @staticmethod
    @checked
    def of(
        collective: str = "all_reduce",
        algorithms: Sequence[AnyAlgorithm] | None = None,
        *,
        ccl: str | Path | None = None,
        overrides: Mapping[str, object] | None = None,
    ) -> Catalogue:
        """The catalogue of some algorithms, in their order.

        algorithms: names of ccl.yaml, paths of modules, of plans and of scripts that lower one, `synth:METHOD`, kernel
        functions; None: all of ccl.yaml that compute the collective, and a schedule of every synthesis method.
        overrides: dotted keys of ccl.yaml.

        Raises ConfigError: AHBM-C105 for an unknown collective, C107 for an override that is none of ccl.yaml, C115 for
        an algorithm of another collective, C129 for two of one name; and what loading an algorithm raises.
        """
        refuse_kernel(collective)
        require_collective(collective)
        of_machine, given = split_overrides(overrides_of(overrides))
        if of_machine:
            hint = "machines are given to the oracle, with their overrides"
            raise ConfigError("AHBM-C107", f"override {next(iter(of_machine))} is none of ccl.yaml", hint=hint)
        loader, known = AlgorithmLoader(), CclConfig.load(ccl, given)
        asked = list(_all(collective, known, loader) if algorithms is None else algorithms)
        names, functions = [], {}
        for value in map(as_algorithm, asked):
            if value is None:
                raise refused("algorithms", "a list of algorithms", asked)
            if not isinstance(value, str):
                names.append(value.name)
                functions[value.name] = value
            elif value.startswith(SYNTH):
                made, entries = with_schedules([value])
                names += made
                given |= entries
            elif value not in known.algorithms and is_file(value):
                name = free_name(value, ccl, given)
                # A plan's number of ranks is no wish to run on so many.
                given |= settings_of(source_of(value), name, Options(), None)
                names.append(name)
            else:
                names.append(value)
        config = CclConfig.load(ccl, given)
        found = [_entry(collective, name, functions.get(name), config, loader) for name in names]
        return Catalogue(found, ccl, given)

    def entry(self, name: str) -> Entry:
        """The entry of a name, or of an id. Raises ConfigError (AHBM-C129) where there is none."""
        for entry in self._entries:
            if name in (entry.name, entry.id):
                return entry
        hint = did_you_mean(name, [entry.name for entry in self._entries])
        raise ConfigError("AHBM-C129", f"the catalogue has no algorithm {name!r}", hint=hint)

    def of_collective(self, collective: str) -> tuple[Entry, ...]:
        """The entries that compute a collective."""
        return tuple(entry for entry in self._entries if entry.collective == collective)

    def __add__(self, other: Catalogue) -> Catalogue:
        """The entries of both. Raises ConfigError (AHBM-C129) for catalogues of different files."""
        if not isinstance(other, Catalogue):
            return NotImplemented
        if self.ccl != other.ccl:
            raise ConfigError("AHBM-C129", f"a catalogue of {self.ccl} and one of {other.ccl} have no sum")
        return Catalogue([*self, *other], self.ccl, self.overrides | other.overrides)

    @property
    def id(self) -> str:
        """16 hex digits of all entries in their order."""
        return _digest([(entry.collective, entry.name, entry.id) for entry in self._entries])

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> Entry:  # type: ignore[override]
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __repr__(self) -> str:
        return f"<Catalogue of {', '.join(entry.name for entry in self._entries)}>"


def configured(
    collective: str,
    machines: Sequence[Machine],
    ccl: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> list[str]:
    """Names of the algorithms of ccl.yaml that compute a collective and that one of the machines can have, sorted."""
    first = Emulator(machines[0], CclConfig.load(ccl, overrides))
    return sorted({name for machine in machines for name in first.on(machine).algorithms(collective)})


def _all(collective: str, config: CclConfig, loader: AlgorithmLoader) -> Iterator[str]:
    for name in config.algorithms:
        if collective in loader.load(config.settings(name)).collectives:
            yield name
    # `auto` is one of the others.
    yield from (f"{SYNTH}{method}" for method in METHODS[1:] if collective in SYNTHESIZED)


def _entry(collective: str, name: str, given: Algorithm | None, config: CclConfig, loader: AlgorithmLoader) -> Entry:
    if given is None:
        settings = config.settings(name)
        algorithm = loader.load(settings)
    else:
        algorithm = given
        settings = config.unnamed(name, "plan" if given.is_plan else "module", given.identity)
    if collective not in algorithm.collectives:
        computes = ", ".join(algorithm.collectives)
        raise ConfigError(
            "AHBM-C115", f"{name} implements {computes}, not {collective}", hint="choose another algorithm"
        )
    content = [
        settings.kind,
        repr(settings.queues),
        settings.op_budget,
        settings.event_budget,
        repr(settings.parameters),
    ]
    plan = algorithm.read if isinstance(algorithm, PlanAlgorithm) else None
    least, most = (0, None) if plan is None else plan.sizes
    return Entry(
        _digest([collective, content, repr(algorithm.identity)]),
        name,
        algorithm.source,
        collective,
        None if plan is None else plan.ranks,
        _knobs(algorithm, settings),
        least,
        most,
        given,
    )


def _knobs(algorithm: Algorithm, settings: Settings) -> dict[str, Knob]:
    how, synth = getattr(algorithm, "how", None), getattr(algorithm, "synth", None)
    return {
        "protocol": getattr(how, "protocol", None),
        "channels": getattr(how, "instances", None),
        "chunks": getattr(synth, "chunks", None),
        "chunk_bytes": getattr(how, "slice_bytes", None),
        "slots": depth(algorithm, settings),
    }


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
