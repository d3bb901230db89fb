"""Proximal policy optimisation with masks, by sb3-contrib, as a baseline."""

from __future__ import annotations

from typing import Any

from ahbm.base.optional import needed
from ahbm.choose.environment import Observation, Select
from ahbm.choose.outcomes import Outcomes
from ahbm.choose.policies import Policy
from ahbm.choose.splits import Split

STEPS = 50_000
"""Calls that it learns from."""
EPISODE = 256


class MaskablePPO(Policy):
    """MaskablePPO with the defaults of sb3-contrib, on one thread of the processor, seeded.

    S. Huang, S. Ontañón, A Closer Look at Invalid Action Masking in Policy Gradient Algorithms, FLAIRS 35, 2022.
    """

    learns = True

    def __init__(self, seed: int = 0, steps: int = STEPS) -> None:
        """steps: calls that it learns from. Raises UnsupportedError (AHBM-U145) where sb3-contrib is not installed."""
        super().__init__(seed)
        self._steps = steps
        missing = "sb3-contrib is not installed", "pip install 'ahbm[baselines]'"
        sb3_contrib, torch = (needed(name, *missing) for name in ("sb3_contrib", "torch"))
        # The order of sums depends on the number of threads.
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self._made: Any = sb3_contrib.MaskablePPO

    def learn(self, split: Split, outcomes: Outcomes) -> None:
        env = Select(outcomes, calls=EPISODE, jobs=split.train.jobs)
        self._model = self._made("MultiInputPolicy", env, seed=self._seed, device="cpu")
        self._model.learn(self._steps)

    def act(self, env: Select, observation: Observation) -> int:
        action, _ = self._model.predict(observation, action_masks=env.action_masks(), deterministic=True)
        return int(action)
