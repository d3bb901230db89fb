"""Selectors that learn from the training side of a split by scikit-learn, as agents of `Select-v0`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.optional import needed
from ahbm.base.request import Request
from ahbm.choose.environment import Observation, Select
from ahbm.choose.observation import Asked, Floats, Observer
from ahbm.choose.outcomes import Outcomes
from ahbm.choose.policies import Policy, Selecting, allowed
from ahbm.choose.splits import Split, points
from ahbm.selectors.protocol import Call, CostTable, Selector
from ahbm.selectors.shortlist import Shortlist

LEAVES = 64
"""Of the decision tree."""
CANDIDATES = 3
"""That the shortlist has."""
TREES = 50
"""Of the regression behind the shortlist."""


def learner(name: str) -> Any:
    """A model of scikit-learn by its class. Raises UnsupportedError (AHBM-U145) where it is not installed."""
    missing = "scikit-learn is not installed", "pip install 'ahbm[baselines]'"
    return getattr(needed("sklearn.tree", *missing), name, None) or getattr(needed("sklearn.ensemble", *missing), name)


class Tree(Policy):
    """A decision tree of 64 leaves over the numbers of call and machine. A leaf has the mean loss of candidates over
    its calls, the logarithm of its time by the least; the least of those that run is the choice."""

    learns = True

    def learn(self, split: Split, outcomes: Outcomes) -> None:
        seen = Observer(outcomes, ())
        rows, losses = [], []
        for machine, request in points(split.train, outcomes):
            rows.append(np.concatenate([seen.call(Asked(request)), seen.machine(machine, request)]))
            found = outcomes.of(machine, request)
            # What does not run is as slow as the slowest.
            times = [ps or found.ps[found.slowest] or 1 for ps in found.ps]
            losses.append(np.log2(np.array(times) / min(times)))
        made = learner("DecisionTreeRegressor")
        self._tree = made(max_leaf_nodes=LEAVES, random_state=self._seed).fit(np.array(rows), np.array(losses))
        self._known: dict[bytes, NDArray[np.float64]] = {}

    def act(self, env: Select, observation: Observation) -> int:
        row = np.concatenate([observation["call"], observation["machine"]])
        key = row.tobytes()
        if key not in self._known:
            self._known[key] = self._tree.predict(row[None])[0]
        return int(min(allowed(observation), key=lambda at: self._known[key][at]))


class Shortlisted(Selecting):
    """`ahbm.selectors.shortlist` with a regression over the numbers of each candidate: three are emulated."""

    learns = True

    def learn(self, split: Split, outcomes: Outcomes) -> None:
        seen = Observer(outcomes, range(len(outcomes.catalogue)))
        rows: list[Floats] = []
        times: list[float] = []
        for machine, request in points(split.train, outcomes):
            found, numbers = outcomes.of(machine, request), _numbers(seen, machine, request)
            for at, ps in enumerate(found.ps):
                if ps is not None:
                    rows.append(numbers[at])
                    times.append(np.log2(ps / found.bound_ps))
        made = learner("ExtraTreesRegressor")
        self._model = made(TREES, min_samples_leaf=2, random_state=self._seed, n_jobs=1).fit(np.array(rows), times)

    def _selector(self, env: Select) -> Selector:
        machine, catalogue = env.described, env.outcomes.catalogue
        seen = Observer(env.outcomes, range(len(catalogue)))

        def model(call: Call, table: CostTable) -> Mapping[str, float]:
            assert call.request is not None
            request = call.request
            self.runs += min(CANDIDATES, sum(map(table.allows, table.algorithms)))
            logs = self._model.predict(_numbers(seen, machine, request))
            bound_us = env.outcomes.bound(machine, request) / 1e6
            named = [(entry.name, at) for at, entry in enumerate(catalogue) if entry.collective == call.collective]
            return {name: float(2.0 ** logs[at] * bound_us) for name, at in named}

        return Shortlist(model, CANDIDATES)


def _numbers(seen: Observer, machine: str, request: Request) -> Floats:
    """What a regression learns from: of each candidate its numbers, the call's size and ranks, and the machine's."""
    candidates = seen.candidates(machine, request)
    shared = np.concatenate([seen.call(Asked(request))[:2], seen.machine(machine, request)[-1:]])
    return np.hstack([candidates, np.tile(shared, (len(candidates), 1))])
