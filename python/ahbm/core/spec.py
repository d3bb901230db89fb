"""A run as a value: enough to run it again, anywhere, to the same hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakValueDictionary

from ahbm._core import Machine
from ahbm.base.request import Request
from ahbm.config.ccl import CclConfig
from ahbm.config.settings import Settings
from ahbm.config.topology import name_of
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError
from ahbm.source.algorithm import Algorithm

_alive: WeakValueDictionary[tuple[int, str], Emulator] = WeakValueDictionary()
_latest: list[Emulator] = []
"""The emulator that was remembered last: what is asked about the latest run compiles nothing anew."""

FIELDS = tuple(Request.__dataclass_fields__)


@dataclass(frozen=True, eq=False)
class Spec:
    """A run: machine, configuration, request, algorithm, checks, seed. Picklable; equal where its digest is."""

    machine: Machine
    config: CclConfig
    request: Request
    algorithm: str
    """The entry that runs, or the module's text."""
    content: str
    """Digest of what the algorithm is: its file's content."""
    checks: tuple[str, ...] = ()
    data: bool = True
    """Whether data moves and is compared."""
    mode: str = "integers"
    """Kind of the data."""
    seed: int = 0
    kind: str = ""
    """The kind of an algorithm that ccl.yaml does not name, such as a function; empty where it names it."""
    given: Algorithm | None = field(default=None, repr=False)
    """That algorithm, in the process that has it."""

    @staticmethod
    def of(emulator: Emulator, request: Request, algorithm: str | Algorithm) -> Spec:
        """A run of `request` by `algorithm` on `emulator`, without data and checks."""
        _alive[_key(emulator.machine, emulator.ccl)] = emulator
        _latest[:] = [emulator]
        content = _content(emulator, algorithm)
        if isinstance(algorithm, str):
            return Spec(emulator.machine, emulator.ccl, request, algorithm, content, data=False)
        kind = emulator.settings(algorithm).kind
        return Spec(
            emulator.machine, emulator.ccl, request, algorithm.name, content, data=False, kind=kind, given=algorithm
        )

    @property
    def digest(self) -> str:
        """64 hex digits: equal digests are equal runs, in every process and on every computer."""
        settings = (
            self.config.unnamed(self.algorithm, self.kind, self.content)
            if self.kind
            else self.config.settings(self.algorithm)
        )
        request = {
            # Shares are part of the digests of requests that have them.
            **{
                name: value for name in FIELDS if (value := getattr(self.request, name)) is not None or name != "shares"
            },
            "ranks": list(self.request.ranks),
            "placement": repr(self.request.placement),
        }
        facts = [
            *_facts(self.machine, settings, self.content),
            request,
            [sorted(self.checks), self.data, self.mode, self.seed],
        ]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def emulator(self) -> Emulator:
        """An emulator of this machine and configuration: the one that ran it while that is alive, else a new one.

        Raises ConfigError (AHBM-C163) when the algorithm is not what it was, or was a
        function and the spec was pickled.
        """
        if self.kind and self.given is None:
            raise ConfigError(
                "AHBM-C163",
                f"the algorithm {self.algorithm} was a function, which a pickled report leaves behind, as it "
                "does the knobs of a selector",
                hint="write it into a file: what algorithm='./algorithms/NAME.py' ran can be opened in every process; "
                "knobs are keys of its entry in ccl.yaml",
            )
        key = _key(self.machine, self.config)
        emulator = _alive.get(key)
        if emulator is None:
            emulator = _alive[key] = Emulator(self.machine, self.config)
            _latest[:] = [emulator]
        if _content(emulator, self.given or self.algorithm) != self.content:
            raise ConfigError(
                "AHBM-C163", f"the algorithm {self.algorithm} is not what it was when it ran", hint="run it again"
            )
        return emulator

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "given": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.digest == other.digest

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)


def machine_name(machine: Machine) -> str:
    """A machine in words: its topology, and the overrides that changed it; `load_machine` takes it as a topology."""
    return ", ".join([name_of(machine), *(f"{key}={value}" for key, value in machine.overrides)])


def runs_by(emulator: Emulator, algorithm: str | Algorithm) -> list[object]:
    """The part of what `Spec.digest` digests that is common to all requests: machine, settings and content of the
    algorithm, as JSON-serialisable data. Raises as loading the algorithm."""
    return _facts(emulator.machine, emulator.settings(algorithm), _content(emulator, algorithm))


def _facts(machine: Machine, settings: Settings, content: str) -> list[object]:
    budgets = [settings.kind, repr(settings.queues), settings.world_size, settings.op_budget, settings.event_budget]
    return [f"{machine.hash:016x}", budgets, content]


def _key(machine: Machine, config: CclConfig) -> tuple[int, str]:
    return machine.hash, config.fingerprint


def _content(emulator: Emulator, algorithm: str | Algorithm) -> str:
    return _digest(repr(emulator.algorithm(algorithm).identity))


@lru_cache(64)
def _digest(identity: str) -> str:
    return hashlib.sha256(identity.encode()).hexdigest()
