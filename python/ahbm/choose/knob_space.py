"""Algorithms with the knobs that the emulator models: what makes a difference is an entry of a catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from ahbm.base.arguments import refused, whole
from ahbm.choose.catalogue import Catalogue, Entry
from ahbm.config.ccl import CclConfig, entry_overrides

AS_IT_IS = None
"""The value of a knob that leaves it to the algorithm's entry."""
Value = int | None
KNOBS = ("chunks", "slots", "slice")
"""`chunks`: parts that a synthesized schedule cuts a share into; `slots`: messages that a queue holds; `slice`: bytes
of the largest message of a plan or a synthesized schedule."""
KEYS: Mapping[str, Mapping[str, str]] = {
    "synth": {"chunks": "synth.chunks", "slots": "n_slots", "slice": "slice_bytes"},
    "plan": {"slots": "n_slots", "slice": "slice_bytes"},
    "dsl": {"slots": "n_slots", "slice": "slice_bytes"},
    "module": {"slots": "n_slots"},
}
"""By kind of algorithm, the keys of ccl.yaml that its knobs are."""


@dataclass(frozen=True)
class KnobSpace:
    """The algorithms and the values of every knob. The first value of a knob is `AS_IT_IS`."""

    base: Catalogue
    """Of named algorithms."""
    chunks: Sequence[Value] = (AS_IT_IS, 2, 4)
    slots: Sequence[Value] = (AS_IT_IS, 1, 2, 8)
    slices: Sequence[Value] = (AS_IT_IS, 1 << 16, 1 << 20)

    def __post_init__(self) -> None:
        """Raises ConfigError (AHBM-C129) for values that are none, and for functions, which no file names."""
        for name, values in zip(KNOBS, self._values, strict=True):
            if not isinstance(values, Sequence) or not values or values[0] is not AS_IT_IS:
                raise refused(name, "a list that begins with None", values)
            for value in values[1:]:
                whole(name, value, 1, 1 << 40)
        for entry in self.base:
            if entry.given is not None:
                raise refused("base", "a catalogue of named algorithms", entry.name)

    @property
    def _values(self) -> tuple[Sequence[Value], ...]:
        return (self.chunks, self.slots, self.slices)

    @property
    def axes(self) -> tuple[Sequence[Any], ...]:
        """The values of an action's parts: algorithms, chunks, slots, bytes of a slice."""
        return ([entry.name for entry in self.base], *self._values)

    @cached_property
    def _made(self) -> tuple[Catalogue, dict[tuple[int, ...], int]]:
        """The entries, and for each combination that makes a difference the position of its entry."""
        config = CclConfig.load(self.base.ccl, self.base.overrides)
        overrides = dict(self.base.overrides)
        names: list[tuple[str, str]] = []
        places: dict[tuple[int, ...], int] = {}
        for at, entry in enumerate(self.base):
            keys = KEYS[config.settings(entry.name).kind]
            knobs = list(zip(KNOBS, self._values, strict=True))
            for chosen in product(*(range(len(values)) if knob in keys else (0,) for knob, values in knobs)):
                chosen_knobs = {knob: values[n] for (knob, values), n in zip(knobs, chosen, strict=True) if n}
                name = "+".join([entry.name, *(f"{knob}={value}" for knob, value in chosen_knobs.items())])
                if chosen_knobs:
                    written = _flat(config.entry(entry.name)) | {
                        keys[knob]: value for knob, value in chosen_knobs.items()
                    }
                    overrides |= entry_overrides(name, written)
                places[(at, *chosen)] = len(names)
                names.append((entry.collective, name))
        by_name: dict[tuple[str, str], Entry] = {}
        for collective in dict.fromkeys(collective for collective, _ in names):
            asked = [name for of, name in names if of == collective]
            made = Catalogue.of(collective, asked, ccl=self.base.ccl, overrides=overrides)
            by_name |= {(collective, entry.name): entry for entry in made}
        return Catalogue([by_name[name] for name in names], self.base.ccl, overrides), places

    @property
    def catalogue(self) -> Catalogue:
        """Every combination that makes a difference, each an entry of its own."""
        return self._made[0]

    @property
    def plain(self) -> tuple[int, ...]:
        """The entries of the algorithms as they are, in the order of `base`."""
        return tuple(self._made[1][at, 0, 0, 0] for at in range(len(self.base)))

    @cached_property
    def of_algorithms(self) -> tuple[tuple[int, ...], ...]:
        """The entries of each algorithm, in the order of `base`."""
        return tuple(
            tuple(entry for key, entry in self._made[1].items() if key[0] == at) for at in range(len(self.base))
        )

    def entry(self, action: Sequence[int]) -> tuple[int, tuple[str, ...]]:
        """The entry of an action, and the knobs of it that its algorithm does not have.

        action: positions in `axes`.
        """
        key = tuple(action)
        place = self._made[1].get(key)
        if place is not None:
            return place, ()
        idle = tuple(
            knob
            for at, knob in enumerate(KNOBS, 1)
            if key[at] and (key[0], *(key[n] if n == at else 0 for n in range(1, len(key)))) not in self._made[1]
        )
        kept = (key[0], *(0 if knob in idle else n for knob, n in zip(KNOBS, key[1:], strict=True)))
        return self._made[1][kept], idle


def _flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """An entry of ccl.yaml with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in entry.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
