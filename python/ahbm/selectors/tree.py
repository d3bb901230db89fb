"""A decision tree in flat arrays, walked natively; scikit-learn's trees have the same arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ahbm._core import DecisionTree
from ahbm.base.arguments import shown
from ahbm.base.elements import element
from ahbm.core.choice import Choice
from ahbm.errors import ConfigError
from ahbm.selectors.files import digest
from ahbm.selectors.protocol import BaseSelector, Call, CostTable
from ahbm.selectors.static import choice_of

ARRAYS = ("feature", "threshold", "left", "right", "value")


class Tree(BaseSelector):
    """Chooses what the leaf of a call says; where that is masked, the call is left to ccl.yaml."""

    name = "tree"
    pure = True

    def __init__(
        self,
        inputs: Sequence[str | float],
        choices: Sequence[str | Mapping[str, Any] | Choice],
        *,
        feature: Sequence[int],
        threshold: Sequence[float],
        left: Sequence[int],
        right: Sequence[int],
        value: Sequence[int],
        collective: str = "all_reduce",
    ) -> None:
        """inputs: names of facts about the call (`ahbm._core.DecisionTree.inputs()`), or numbers: facts about the
        machine. choices: what leaves choose, by their value: a name, or a mapping of algorithm and knobs. The arrays
        have an entry per node, as scikit-learn's: `feature` indexes the inputs, negative for a leaf; `left` is the way
        where the input is at most `threshold`.

        Raises ConfigError (AHBM-C181) for arrays that are no tree, and for values without a choice.
        """
        self._choices = [choice_of(one) for one in choices]
        self._collective = collective
        arrays = (list(feature), list(threshold), list(left), list(right), list(value))
        self._tree = DecisionTree(list(inputs), *arrays)
        leaves = {answer for at, answer in zip(feature, value, strict=True) if at < 0}
        if any(answer >= len(self._choices) for answer in leaves):
            raise ConfigError("AHBM-C181", f"leaf value {max(leaves)} of a tree with {len(self._choices)} choices")
        texts = [str(one) for one in self._choices]
        self._digest = digest(json.dumps([list(inputs), texts, *arrays, collective]))

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Tree:
        """A tree of the mapping that a file holds: `inputs`, `choices`, the five arrays, `collective`. Raises
        ConfigError (AHBM-C181, C129)."""
        known = {"inputs", "choices", "collective", *ARRAYS}
        missing, unknown = sorted(known - {"collective"} - facts.keys()), sorted(map(str, facts.keys() - known))
        if missing or unknown:
            problems = [f"has no {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(unknown)}"] * bool(unknown)
            raise ConfigError(
                "AHBM-C181", f"a tree {' and '.join(problems)}", hint=f"it has {', '.join(sorted(known))}"
            )
        for name in known - {"collective"}:
            if not isinstance(facts[name], list):
                raise ConfigError("AHBM-C181", f"{name} of a tree must be a list, not {shown(facts[name])}")
        arrays = {name: facts[name] for name in ARRAYS}
        return Tree(facts["inputs"], facts["choices"], **arrays, collective=facts.get("collective", "all_reduce"))

    @property
    def fingerprint(self) -> str:
        """Digest of the tree."""
        return self._digest

    def __deepcopy__(self, _: object) -> Tree:
        return self  # It never changes.

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | None:
        """See `Selector`."""
        if call.collective != self._collective:
            return None
        leaf = self._tree.choose(call.nbytes, call.ranks, call.nodes, element(call.dtype).storage.itemsize)
        chosen = self._choices[leaf]
        return None if table.reasons and chosen.algorithm in table.reasons else chosen
