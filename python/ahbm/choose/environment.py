"""`ahbm/Select-v0`, `ahbm/SelectKnobs-v0` and `-v1` for Gymnasium: an agent chooses who performs each call, and how.

Importing this module registers them. `docs/select-env.md` says what they show, take and reward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ahbm.base.arguments import checked, refused, whole
from ahbm.choose.episodes import AnyJob, Known, Mix
from ahbm.choose.knob_space import KnobSpace
from ahbm.choose.library import PARTS, LiveKnobs
from ahbm.choose.observation import CALL, CANDIDATE, MACHINE, MOST, Asked, Floats, Observer, log_share
from ahbm.choose.outcomes import Outcome, Outcomes
from ahbm.errors import UnsupportedError

try:
    import gymnasium
    from gymnasium import spaces
except ImportError as error:
    raise UnsupportedError("AHBM-U145", "gymnasium is not installed", hint="pip install 'ahbm[rl]'") from error

MOST_CALLS = 1 << 20
"""Calls of the longest episode."""
MOST_HISTORY = 4096
OPTIONS = ("machine", "job")
"""Options of `reset`."""
Observation = dict[str, NDArray[Any]]
Mask = NDArray[np.int8]


class Calls(Protocol):
    """The calls of an episode on a machine."""

    def calls(self, outcomes: Outcomes, machine: str) -> list[Asked]:
        """All of them."""


class _Row:
    """A call on a machine, and what comes of every choice there."""

    def __init__(self, asked: Asked, outcome: Outcome, bound_ps: int, seen: tuple[Floats, ...], mask: Mask) -> None:
        self.asked, self.outcome, self.seen, self.mask = asked, outcome, seen, mask
        # What does not run is performed by the slowest that does.
        self.taken = [at if ps is not None else outcome.slowest for at, ps in enumerate(outcome.ps)]
        times = [outcome.ps[at] or 0 for at in self.taken]
        self.rewards = [-log_share(ps, outcome.bound_ps) for ps in times]
        self.logs = [log_share(ps, bound_ps) for ps in times]
        self.infos: dict[int, dict[str, Any]] = {}
        self.shares: dict[int, NDArray[np.float64]] = {}


class _Choosing(gymnasium.Env[Observation, Any], ABC):
    """What both environments share: episodes, observations, rewards, faults."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as gymnasium declares it

    @checked
    def __init__(
        self,
        outcomes: Outcomes,
        *,
        calls: int = 256,
        mix: Mix | None = None,
        jobs: Sequence[AnyJob] = (),
        faults: Sequence[Mapping[str, object]] = (),
        history: int = 8,
        per_chunk: bool = False,
    ) -> None:
        """outcomes: `Recorded` tables, or `Live`. calls: after so many an episode is truncated.

        mix or jobs: the calls of an episode; without either, all that the tables have of its machine.
        faults: overrides of machines, such as {"faults.links": "[{from: 0, to: 1, slowdown: 8}]"}; in every episode one
        of them strikes before some call after the first, and nothing but the times says so.
        history: times of so many calls before are shown. per_chunk: `info` has the shares of chunks, which simulates.

        Raises ConfigError (AHBM-C129).
        """
        if not isinstance(outcomes, Outcomes):
            raise refused("outcomes", "Recorded tables or Live", outcomes)
        for name, values, kind in (
            ("mix", [mix] if mix else [], Mix),
            ("jobs", jobs, AnyJob),
            ("faults", faults, Mapping),
        ):
            if not isinstance(values, Sequence) or not all(isinstance(value, kind) for value in values):
                raise refused(name, f"of the type {kind.__name__}", values)
        if mix is not None and jobs:
            raise refused("an environment", "of a mix or of jobs", mix)
        self.outcomes = outcomes
        self.action_space, shown = self._actions(), self._shown()
        self._length = whole("calls", calls, 1, MOST_CALLS)
        self._history = whole("history", history, 0, MOST_HISTORY)
        self._per_chunk = per_chunk
        self._jobs = tuple(jobs)
        self._mix: Calls = mix or Known()
        self._faults = [dict(fault) for fault in faults]
        self._machines = list(outcomes.machines)
        self._observer = Observer(outcomes, shown)
        self._rows: dict[tuple[str, str, Asked], _Row] = {}
        self._lists: dict[tuple[str, int | None], list[Asked]] = {}
        self._faulty: dict[tuple[str, int], str] = {}
        self._order: list[Asked] = []
        self._at = 0
        self._described = ""
        shapes = {"call": (len(CALL),), "machine": (len(MACHINE),), "candidates": (len(shown), len(CANDIDATE))}
        boxes: dict[str, gymnasium.Space[Any]] = {
            name: spaces.Box(-MOST, MOST, shape, np.float32) for name, shape in shapes.items()
        }
        boxes["recent"] = spaces.Box(-MOST, MOST, (self._history,), np.float32)
        boxes["action_mask"] = spaces.MultiBinary(len(shown))
        self.observation_space = spaces.Dict(boxes)  # type: ignore[assignment]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode on a machine that is drawn, with a job and a fault that are drawn where there are any.

        options: `machine`, the name of one of `outcomes.machines`, and `job`, a position in `jobs`, are not drawn then.

        Raises ConfigError (AHBM-C129) for other options, and what finding the outcomes of the first call raises.
        """
        super().reset(seed=seed)
        given = {} if options is None else options
        if not isinstance(given, Mapping) or not set(given) <= set(OPTIONS):
            raise refused("options", f"a mapping of {' and '.join(OPTIONS)}", given)
        draw = self.np_random
        # Every episode draws equally often, whatever is given: seeds mean the same with options and without.
        at_machine, at_job, at_fault, strikes = (int(n) for n in draw.integers(1 << 62, size=4))
        self._described = given.get("machine", self._machines[at_machine % len(self._machines)])
        if self._described not in self._machines:
            raise refused("machine", f"one of {', '.join(self._machines[:8])}", self._described)
        job = None
        if self._jobs:
            job = whole("job", given.get("job", at_job % len(self._jobs)), 0, len(self._jobs) - 1)
        elif "job" in given:
            raise refused("job", "left out where there are no jobs", given["job"])
        listed = self._calls_of(self._described, job)
        if job is None:
            self._order = [listed[at] for at in draw.integers(len(listed), size=self._length).tolist()]
        else:
            self._order = listed[: self._length]
        self._ends = job is not None and len(listed) <= self._length
        self._strikes, self._actual = len(self._order), self._described
        if self._faults:
            self._strikes = 1 + strikes % max(len(self._order) - 1, 1)
            self._struck = self._with_fault(self._described, at_fault % len(self._faults))
        self._at = 0
        self._recent: Floats = np.zeros(self._history, np.float32)
        self._row = self._row_of(self._order[0])
        return self._observed(), {"machine": self._described, "action_mask": self._mask()}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Performs the call as the action says, and goes on to the next; the last call of an episode is shown again.

        Raises gymnasium's ResetNeeded before the first `reset` and after the end of an episode, ConfigError
        (AHBM-C129) for an action that there is not, and what finding the outcomes of the next call raises.
        """
        if self._at >= len(self._order):
            raise gymnasium.error.ResetNeeded("the episode has ended: call reset")
        row, (entry, idle) = self._row, self._entry(action)
        info = self._info(row, entry)
        if idle:
            info["without_effect"] = idle
        self._at += 1
        ends = self._at == len(self._order)
        if self._history:
            self._recent[1:] = self._recent[:-1]
            self._recent[0] = row.logs[entry]
        if self._at == self._strikes:
            self._actual = self._struck if self._faults else self._described
        if not ends:
            self._row = self._row_of(self._order[self._at])
        info["action_mask"] = self._mask()
        return self._observed(), row.rewards[entry], ends and self._ends, ends and not self._ends, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which values each part of an action may have, all parts one after the other: shape (values,). It is what
        sb3-contrib asks an environment for."""
        mask = self._mask()
        parts = tuple(mask.values()) if isinstance(mask, dict) else mask if isinstance(mask, tuple) else (mask,)
        return np.concatenate(parts).astype(bool)

    def outcome(self) -> Outcome:
        """What every entry of the catalogue takes for the call that is shown."""
        return self._row.outcome

    def asked(self) -> Asked:
        """The call that is shown."""
        return self._row.asked

    @property
    def described(self) -> str:
        """The machine of the episode, by name, as it was before any fault."""
        return self._described

    @abstractmethod
    def _actions(self) -> gymnasium.Space[Any]:
        """What an action may be."""

    @abstractmethod
    def _shown(self) -> Sequence[int]:
        """The entries of the catalogue that are shown."""

    @abstractmethod
    def _entry(self, action: Any) -> tuple[int, tuple[str, ...]]:
        """The entry of an action, and the parts of it that change nothing there."""

    @abstractmethod
    def _mask(self) -> Mask | tuple[Mask, ...] | dict[str, Mask]:
        """Which values each part of an action may have, as the action space's `sample` takes it."""

    @abstractmethod
    def _runs(self, outcome: Outcome) -> list[bool]:
        """Which of the candidates that are shown run."""

    def _calls_of(self, machine: str, job: int | None) -> list[Asked]:
        key = (machine, job)
        if key not in self._lists:
            source: Calls = self._mix if job is None else self._jobs[job]
            self._lists[key] = source.calls(self.outcomes, machine)
        return self._lists[key]

    def _with_fault(self, machine: str, fault: int) -> str:
        key = (machine, fault)
        if key not in self._faulty:
            self._faulty[key] = self.outcomes.with_fault(machine, self._faults[fault])
        return self._faulty[key]

    def _row_of(self, asked: Asked) -> _Row:
        key = (self._described, self._actual, asked)
        if key not in self._rows:
            request = asked.request
            outcome = self.outcomes.of(self._actual, request)
            bound = self.outcomes.bound(self._described, request)
            seen = (
                self._observer.call(asked),
                self._observer.machine(self._described, request),
                self._observer.candidates(self._described, request),
            )
            mask = np.array(self._runs(outcome), np.int8)
            mask.flags.writeable = False
            self._rows[key] = _Row(asked, outcome, bound, seen, mask)
        return self._rows[key]

    def _observed(self) -> Observation:
        # Copies: whoever keeps an observation may change it.
        call, machine, candidates = self._row.seen
        return {
            "call": call.copy(),
            "machine": machine.copy(),
            "candidates": candidates.copy(),
            "recent": self._recent.copy(),
            "action_mask": self._row.mask.copy(),
        }

    def _info(self, row: _Row, entry: int) -> dict[str, Any]:
        """What is said of a call that an entry performs."""
        if entry not in row.infos:
            outcome, taken, catalogue = row.outcome, row.taken[entry], self.outcomes.catalogue
            ps, best = outcome.ps[taken] or 0, outcome.ps[outcome.best] or 0
            info = {
                "collective": row.asked.request.collective,
                "bytes": row.asked.request.nbytes,
                "algorithm": catalogue[entry].name,
                "time_ns": ps / 1000,
                "bound_ns": outcome.bound_ps / 1000,
                "oracle": catalogue[outcome.best].name,
                "oracle_ns": best / 1000,
                "regret": ps / best - 1,
            }
            if taken != entry:
                info["refused"] = outcome.refusals[entry]
                info["instead"] = catalogue[taken].name
            row.infos[entry] = info
        found = {"machine": self._actual, **row.infos[entry]}
        if self._per_chunk:
            if entry not in row.shares:
                row.shares[entry] = self.outcomes.shares(self._actual, row.asked.request, row.taken[entry])
            found["per_chunk"] = row.shares[entry].copy()
        return found


class Select(_Choosing):
    """`ahbm/Select-v0`: an action is an entry of the catalogue."""

    def _actions(self) -> spaces.Discrete:
        return spaces.Discrete(len(self.outcomes.catalogue))

    def _shown(self) -> Sequence[int]:
        return range(len(self.outcomes.catalogue))

    def _entry(self, action: Any) -> tuple[int, tuple[str, ...]]:
        return whole("an action", action, 0, len(self.outcomes.catalogue) - 1), ()

    def _mask(self) -> Mask:
        return self._row.mask.copy()

    def _runs(self, outcome: Outcome) -> list[bool]:
        return [ps is not None for ps in outcome.ps]


class SelectKnobs(_Choosing):
    """`ahbm/SelectKnobs-v0`: an action is an algorithm and a value of each knob that the emulator models."""

    @checked
    def __init__(self, outcomes: Outcomes, knobs: KnobSpace, **episodes: Any) -> None:
        """outcomes: of `knobs.catalogue`. A knob that an algorithm does not have changes nothing, and
        `info["without_effect"]` names it. All else as of `Select`.

        Raises ConfigError (AHBM-C129).
        """
        if isinstance(outcomes, Outcomes) and outcomes.catalogue.id != knobs.catalogue.id:
            raise refused("outcomes", "outcomes of the catalogue of the knobs", outcomes.catalogue)
        self.knobs = knobs
        self._any = tuple(np.ones(len(values), np.int8) for values in knobs.axes[1:])
        super().__init__(outcomes, **episodes)

    def _actions(self) -> spaces.MultiDiscrete:
        return spaces.MultiDiscrete([len(values) for values in self.knobs.axes])

    def _shown(self) -> Sequence[int]:
        return self.knobs.plain

    def _entry(self, action: Any) -> tuple[int, tuple[str, ...]]:
        try:
            parts = list(action)
        except TypeError:
            parts = []
        if len(parts) != len(self.knobs.axes):
            raise refused("an action", f"{len(self.knobs.axes)} integers", action)
        at = [whole("an action", part, 0, len(axis) - 1) for part, axis in zip(parts, self.knobs.axes, strict=True)]
        return self.knobs.entry(at)

    def _mask(self) -> tuple[Mask, ...]:
        return (self._row.mask.copy(), *(part.copy() for part in self._any))

    def _runs(self, outcome: Outcome) -> list[bool]:
        return [any(outcome.ps[at] is not None for at in entries) for entries in self.knobs.of_algorithms]


class SelectLibrary(_Choosing):
    """`ahbm/SelectKnobs-v1`: an action is what a library's tuner says of a call: algorithm, protocol, channels, threads
    of a channel, and bytes of a chunk."""

    @checked
    def __init__(self, outcomes: LiveKnobs, **episodes: Any) -> None:
        """outcomes: of the algorithms under the knobs of `outcomes.knobs`. `info["without_effect"]` names the knobs
        that change nothing for a call. All else as of `Select`.

        Raises ConfigError (AHBM-C129).
        """
        if not isinstance(outcomes, LiveKnobs):
            raise refused("outcomes", "LiveKnobs", outcomes)
        self._library = outcomes
        self.knobs = outcomes.knobs
        self._each = len(self.knobs.combinations) // len(self.knobs.base)
        super().__init__(outcomes, **episodes)

    def _actions(self) -> spaces.Dict:
        return spaces.Dict({name: spaces.Discrete(len(values)) for name, values in self.knobs.axes.items()})

    def _shown(self) -> Sequence[int]:
        return range(0, len(self.knobs.combinations), self._each)

    def _entry(self, action: Any) -> tuple[int, tuple[str, ...]]:
        axes = self.knobs.axes
        if not isinstance(action, Mapping) or set(action) != set(axes):
            raise refused("an action", f"a mapping of {', '.join(axes)}", action)
        at = {name: whole(name, action[name], 0, len(values) - 1) for name, values in axes.items()}
        entry = self.knobs.position(at)
        return entry, self._library.idle(self._actual, self._row.asked.request, entry)

    def _mask(self) -> dict[str, Mask]:
        open_ = {name: np.ones(len(values), np.int8) for name, values in self.knobs.axes.items()}
        return open_ | {PARTS[0]: self._row.mask.copy()}

    def _runs(self, outcome: Outcome) -> list[bool]:
        places = range(0, len(outcome.ps), self._each)
        return [any(ps is not None for ps in outcome.ps[at : at + self._each]) for at in places]


gymnasium.register("ahbm/Select-v0", entry_point=f"{__name__}:Select")
gymnasium.register("ahbm/SelectKnobs-v0", entry_point=f"{__name__}:SelectKnobs")
gymnasium.register("ahbm/SelectKnobs-v1", entry_point=f"{__name__}:SelectLibrary")
