"""Models learned from an oracle's table: a tree that names an algorithm, and estimates of the times of all of them.

scikit-learn (the extra `choose`) trains; what it learned is flat arrays, which need nothing. Both models see numbers
that have no unit: sizes against what a link carries in its latency, and times against the bound. So they speak of
machines that they have not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Machine
from ahbm.base.arguments import checked
from ahbm.base.optional import needed
from ahbm.choose.features import INPUTS, Describer, Features
from ahbm.choose.oracle import OracleTable

ESTIMATORS, DEPTH, RATE = 100, 3, 0.1
"""Trees of an estimate, their depth, and the share of each that counts."""
LEAST = 16
"""Rows of an algorithm from which its times are learned; with fewer, its program's floor is the estimate."""


@dataclass(frozen=True)
class Nodes:
    """Binary trees in flat arrays, one node after the other; children have greater numbers than their parent.

    An input of at most the threshold goes left. `feature` is -1 at leaves, whose answers are in `value`.
    """

    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[float, ...]

    @staticmethod
    def of(tree: Any, answer: Callable[[NDArray[Any]], float]) -> Nodes:
        """Of scikit-learn's arrays; `answer` is that of a leaf by its values."""
        leaf = tree.children_left < 0
        return Nodes(
            tuple(int(at) for at in np.where(leaf, -1, tree.feature)),
            tuple(float(at) for at in np.where(leaf, 0.0, tree.threshold)),
            tuple(int(at) for at in tree.children_left),
            tuple(int(at) for at in tree.children_right),
            tuple(float(answer(values)) if own else 0.0 for values, own in zip(tree.value, leaf, strict=True)),
        )

    def answer(self, inputs: Sequence[float]) -> float:
        """The value of the leaf that the inputs lead to. scikit-learn compares single precision, and so does this."""
        node = 0
        while self.feature[node] >= 0:
            goes_left = np.float32(inputs[self.feature[node]]) <= self.threshold[node]
            node = self.left[node] if goes_left else self.right[node]
        return self.value[node]

    def __len__(self) -> int:
        return len(self.feature)


@dataclass(frozen=True)
class TrainedTree:
    """Names an algorithm for a call on a machine, from `INPUTS`."""

    collective: str
    choices: tuple[str, ...]
    """By the values of leaves."""
    nodes: Nodes

    def choose(self, features: Features) -> str:
        """The algorithm for a call."""
        return self.choices[int(self.nodes.answer(features.inputs()))]

    @property
    def leaves(self) -> int:
        """Its leaves."""
        return sum(feature < 0 for feature in self.nodes.feature)

    def on(self, features: Features) -> dict[str, Any]:
        """The tree for one machine, as the mapping of a file that `ahbm.selectors.tree` reads: facts about the machine
        are numbers there, and only the sizes and ranks of calls are left open."""
        known = dict(zip(INPUTS, features.inputs(), strict=True))
        own, relative = INPUTS.index("log2_bytes"), INPUTS.index("log2_latency_bytes")
        # A call's bytes against those of a latency are its bytes, moved by what the machine says.
        moved = known["log2_bytes"] - known["log2_latency_bytes"]
        nodes = zip(self.nodes.feature, self.nodes.threshold, strict=True)
        shifted = [(own, at + moved) if feature == relative else (feature, at) for feature, at in nodes]
        inputs: list[str | float] = [name if name in ("log2_bytes", "log2_ranks") else known[name] for name in INPUTS]
        return {
            "inputs": inputs,
            "choices": list(self.choices),
            "feature": [feature for feature, _ in shifted],
            "threshold": [threshold for _, threshold in shifted],
            "left": list(self.nodes.left),
            "right": list(self.nodes.right),
            "value": [int(value) for value in self.nodes.value],
            "collective": self.collective,
        }


@dataclass(frozen=True)
class Estimate:
    """Estimates the time of one algorithm: its floor, times a factor of a sum of trees over `VECTOR`."""

    start: float
    trees: tuple[Nodes, ...] = field(repr=False)

    def ns(self, features: Features) -> float:
        """Estimated time."""
        vector = features.vector()
        logarithm = self.start + RATE * sum(tree.answer(vector) for tree in self.trees)
        # Nothing is quicker than its floor.
        return float(features.floor_ns * 2 ** max(logarithm, 0.0))


class Describes(Protocol):
    """What reads features: a `Describer`, or what has read them before."""

    def demand(self, machine: Machine, nbytes: int) -> Features:
        """See `Describer`."""

    def describe(self, machine: Machine, nbytes: int, name: str) -> Any:
        """See `Describer`."""


@dataclass(frozen=True)
class Ranking:
    """Estimates the times of the algorithms of a catalogue, on machines that it need not have seen."""

    estimates: Mapping[str, Estimate]

    def ns(self, features: Features, name: str) -> float:
        """Estimated time of an algorithm by its features; its floor, where its times were not learned."""
        known = self.estimates.get(name)
        return features.floor_ns if known is None else known.ns(features)

    def ranked(self, describer: Describes, machine: Machine, nbytes: int, names: Sequence[str]) -> dict[str, float]:
        """Estimated ns of those of some algorithms that run, the quickest first. Nothing is simulated."""
        found = {name: describer.describe(machine, nbytes, name) for name in names}
        times = {name: self.ns(one, name) for name, one in found.items() if isinstance(one, Features)}
        return dict(sorted(times.items(), key=lambda item: item[1]))


class Described:
    """The features of all rows of a table, each read once."""

    @checked
    def __init__(self, table: OracleTable, describer: Describer | None = None) -> None:
        self._describer = describer or Describer(table.catalogue, table.collective, table.dtype)
        self._known: dict[tuple[int, int, str], Any] = {}
        self._calls: dict[tuple[int, int], Features] = {}

    def demand(self, machine: Machine, nbytes: int) -> Features:
        """As `Describer.demand`."""
        key = (machine.hash, nbytes)
        if key not in self._calls:
            self._calls[key] = self._describer.demand(machine, nbytes)
        return self._calls[key]

    def describe(self, machine: Machine, nbytes: int, name: str) -> Any:
        """As `Describer.describe`."""
        key = (machine.hash, nbytes, name)
        if key not in self._known:
            self._known[key] = self._describer.describe(machine, nbytes, name)
        return self._known[key]


@checked
def train_tree(table: OracleTable, describer: Describes | None = None, *, leaves: int | None = None) -> TrainedTree:
    """A tree that chooses by `INPUTS`, for the least regret over a table; equal tables give equal trees.

    leaves: at most so many; None: as many as tell the points apart.
    Raises UnsupportedError (AHBM-U145) without scikit-learn, and as
    `OracleTable.none_left` for a table in which nothing runs.
    """
    tree = _sklearn("sklearn.tree")
    described = describer or Described(table)
    points = table.points()
    _refuse_empty(table)
    names = [entry.name for entry in table.catalogue.of_collective(table.collective)]
    inputs = [described.demand(table.machines[point.machine], point.nbytes).inputs() for point in points]
    losses = np.array([_losses(table.times(point.machine, point.nbytes), names) for point in points])
    # A leaf predicts the mean loss of every algorithm over its points: the least of them is its choice.
    learned = tree.DecisionTreeRegressor(max_leaf_nodes=leaves, random_state=0).fit(np.array(inputs), losses)
    nodes = Nodes.of(learned.tree_, lambda values: int(np.argmin(values.ravel())))
    return TrainedTree(table.collective, tuple(names), nodes)


@checked
def train_ranking(table: OracleTable, describer: Describes | None = None) -> Ranking:
    """Estimates of the times in a table, by `VECTOR`; equal tables give equal estimates.

    Raises UnsupportedError (AHBM-U145) without scikit-learn, and as
    `OracleTable.none_left` for a table in which nothing runs.
    """
    ensemble = _sklearn("sklearn.ensemble")
    described = describer or Described(table)
    _refuse_empty(table)
    rows: dict[str, list[tuple[tuple[float, ...], float]]] = {}
    for point in table.points():
        for name, ps in table.times(point.machine, point.nbytes).items():
            features = described.describe(table.machines[point.machine], point.nbytes, name)
            factor = log(max(ps / 1000 / features.floor_ns, 1.0), 2)
            rows.setdefault(name, []).append((features.vector(), factor))
    estimates = {}
    for name, found in rows.items():
        if len(found) < LEAST:
            continue
        regressor = ensemble.GradientBoostingRegressor(
            n_estimators=ESTIMATORS, max_depth=DEPTH, learning_rate=RATE, random_state=0
        )
        vectors, factors = np.array([vector for vector, _ in found]), np.array([factor for _, factor in found])
        regressor.fit(vectors, factors)
        trees = tuple(
            Nodes.of(one.tree_, lambda values: float(values.ravel()[0])) for one in regressor.estimators_[:, 0]
        )
        estimates[name] = Estimate(float(regressor.init_.constant_.ravel()[0]), trees)
    return Ranking(estimates)


def _losses(times: Mapping[str, int], names: Sequence[str]) -> list[float]:
    """Logarithms of the times by the least; what does not run is as slow as the slowest."""
    least, most = min(times.values()), max(times.values())
    return [log(times.get(name, most) / max(least, 1)) if times.get(name, most) else 0.0 for name in names]


def _refuse_empty(table: OracleTable) -> None:
    if not table.points():
        raise table.none_left("anywhere in the table, so there is nothing to learn from")


def _sklearn(module: str) -> Any:
    return needed(module, "scikit-learn is not installed: training needs it", "pip install ahbm[choose]")
