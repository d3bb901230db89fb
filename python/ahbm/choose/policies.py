"""Ways to choose that every learner is compared with, as agents of `Select-v0`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.request import Request
from ahbm.choose import priors
from ahbm.choose.environment import Observation, Select
from ahbm.choose.outcomes import Outcomes
from ahbm.choose.splits import Split, points
from ahbm.selectors.nccl_model import NcclModel
from ahbm.selectors.prior import Prior
from ahbm.selectors.protocol import UNKNOWN, Call, Comm, CostTable, Selector
from ahbm.selectors.ranges import Range, Ranges
from ahbm.source.switches import count_nodes

SMALL = 16 << 10
"""Bytes up to which `Static` takes few steps rather than few bytes."""
EXPLORATION = 0.5
"""Weight of what UCB does not know: rewards of candidates that anybody would compare differ by about so much."""
SPREAD = 0.5
"""Standard deviation of the rewards of a candidate, and of candidates among each other, as `Thompson` supposes."""


class Policy(ABC):
    """Chooses an action for every call. What it learns from episodes it forgets when the next begins."""

    learns = False
    """Whether it learns before the first episode."""

    def __init__(self, seed: int = 0) -> None:
        """seed: of whatever it draws."""
        self._seed = seed
        self.runs = 0
        """Simulations that it asked for while it chose."""

    def learn(self, split: Split, outcomes: Outcomes) -> None:
        """Learns from the training side of a split; `outcomes` are those of that side."""
        return None

    def begin(self, episode: int) -> None:
        """An episode of this number begins."""
        return None

    @abstractmethod
    def act(self, env: Select, observation: Observation) -> int:
        """The action for the call that `env` shows."""

    def observe(self, info: dict[str, Any]) -> None:
        """What came of the last action."""
        return None


def allowed(observation: Observation) -> NDArray[np.int64]:
    """The actions that run, in order."""
    return np.flatnonzero(observation["action_mask"])


class Random(Policy):
    """Any candidate that runs."""

    def begin(self, episode: int) -> None:
        self._draw = np.random.default_rng((self._seed, episode))

    def act(self, env: Select, observation: Observation) -> int:
        return int(self._draw.choice(allowed(observation)))


class Selecting(Policy):
    """A selector of `ahbm.selectors`, a new one for every episode. Calls that it leaves get the first candidate that
    runs."""

    def begin(self, episode: int) -> None:
        self._asked: Selector | None = None
        self._number = 0

    def act(self, env: Select, observation: Observation) -> int:
        request, catalogue = env.asked().request, env.outcomes.catalogue
        emulator = env.outcomes.emulator(env.described)
        nodes = count_nodes(emulator.machine, request.ranks)
        if self._asked is None:
            self._asked = self._selector(env)
            self._asked.init(Comm(request.world_size, nodes, emulator=emulator))
        outcome, runs = env.outcome(), allowed(observation).tolist()
        entries = [at for at, entry in enumerate(catalogue) if entry.collective == request.collective]
        names = tuple(catalogue[at].name for at in entries)
        table = CostTable(names, [UNKNOWN] * len(names))
        for at, name in zip(entries, names, strict=True):
            if at not in runs:
                table.mask(name, outcome.refusals[at][1])
        chosen = self._asked.get_coll_info(Call.of(request, nodes, number=self._number), table) or table.best()
        self._number += 1
        if chosen is None:
            return int(runs[0])
        return entries[names.index(chosen if isinstance(chosen, str) else chosen.name)]

    @abstractmethod
    def _selector(self, env: Select) -> Selector:
        """One for the machine of the episode."""


class Static(Selecting):
    """The usual rule: of all_reduce recursive doubling up to `SMALL`, a ring above; of the others a ring."""

    def _selector(self, env: Select) -> Selector:
        return Ranges(
            [
                Range("all_reduce", "recursive_doubling_allreduce", max_bytes=SMALL),
                Range("all_reduce", "ring_allreduce"),
                Range("all_gather", "ring_all_gather"),
                Range("reduce_scatter", "ring_reduce_scatter"),
            ]
        )


class ByPrior(Selecting):
    """What is known before anything is measured: `ahbm.selectors.Prior`, fitted to the training side alone."""

    learns = True

    def learn(self, split: Split, outcomes: Outcomes) -> None:
        self._ways = priors.fit(priors.seen(outcomes, points(split.train, outcomes)))

    def _selector(self, env: Select) -> Selector:
        return Prior.of(self._ways)


class Nccl(Selecting):
    """NCCL's own cost model, of the candidates that NCCL has; its constants are those of GPUs."""

    def _selector(self, env: Select) -> Selector:
        return NcclModel()


class Ladder(Policy):
    """The quickest at the nearest size that was learned, on the same machine, or on average over the machines that were
    learned if this is none of them."""

    learns = True

    def learn(self, split: Split, outcomes: Outcomes) -> None:
        self._known: dict[tuple[str, str, int], dict[int, list[float]]] = {}
        for machine, request in points(split.train, outcomes):
            found = outcomes.of(machine, request)
            logs = {at: math.log(ps / found.bound_ps) for at, ps in enumerate(found.ps) if ps is not None}
            for who in (machine, ""):
                sums = self._known.setdefault((who, *_kind(request)), {})
                for at, log in logs.items():
                    sums.setdefault(at, []).append(log)

    def act(self, env: Select, observation: Observation) -> int:
        collective, size = _kind(env.asked().request)
        runs = allowed(observation).tolist()
        for who in (env.described, ""):
            sizes = [at for machine, kind, at in self._known if (machine, kind) == (who, collective)]
            for near in sorted(sizes, key=lambda at: (abs(at - size), at)):
                sums = self._known[who, collective, near]
                some = [at for at in runs if at in sums]
                if some:
                    return int(min(some, key=lambda at: (float(np.mean(sums[at])), at)))
        return int(runs[0])


class Bandit(Policy):
    """Learns in the episode alone, for each size of each collective apart; tries every candidate once, then `pick`s."""

    def begin(self, episode: int) -> None:
        self._draw = np.random.default_rng((self._seed, episode))
        self._rewards: dict[tuple[str, int], dict[int, list[float]]] = {}

    def act(self, env: Select, observation: Observation) -> int:
        runs = allowed(observation).tolist()
        self._here = self._rewards.setdefault(_kind(env.asked().request), {})
        untried = [at for at in runs if at not in self._here]
        self._chosen = int(untried[0] if untried else max(runs, key=self._worth()))
        return self._chosen

    def observe(self, info: dict[str, Any]) -> None:
        self._here.setdefault(self._chosen, []).append(-math.log(info["time_ns"] / info["bound_ns"]))

    @abstractmethod
    def _worth(self) -> Callable[[int], float]:
        """What each candidate is worth trying now."""


class Ucb(Bandit):
    """UCB1 (P. Auer, N. Cesa-Bianchi, P. Fischer, Machine Learning 47, 2002), its second term times `EXPLORATION`."""

    def _worth(self) -> Callable[[int], float]:
        total = sum(map(len, self._here.values()))

        def worth(at: int) -> float:
            found = self._here[at]
            return sum(found) / len(found) + EXPLORATION * math.sqrt(2 * math.log(total) / len(found))

        return worth


class Thompson(Bandit):
    """Thompson sampling of rewards that are normal: their mean is drawn from what is known of it (D. Russo et al., A
    Tutorial on Thompson Sampling, 2018, section 4)."""

    def _worth(self) -> Callable[[int], float]:
        noise = self._draw.standard_normal(max(self._here) + 1)

        def worth(at: int) -> float:
            found = self._here[at]
            return sum(found) / len(found) + SPREAD / math.sqrt(len(found)) * float(noise[at])

        return worth


def _kind(request: Request) -> tuple[str, int]:
    """Collective and size bin, log2 of the bytes."""
    return request.collective, request.nbytes.bit_length() - 1
