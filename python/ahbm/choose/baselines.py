"""The scores of the usual ways to choose, each by one command: `python -m ahbm.choose.baselines NAME --split SPLIT`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ahbm.base.arguments import whole
from ahbm.base.yaml_source import did_you_mean
from ahbm.choose import policies
from ahbm.choose.environment import Select
from ahbm.choose.policies import Policy
from ahbm.choose.regret import Loss, Point, Regret
from ahbm.choose.splits import SPLITS, Split, split_of
from ahbm.errors import AhbmError, ConfigError

CALLS = 1000
"""Calls of an episode that is scored."""


def _optional(module: str, name: str) -> Callable[[int], Policy]:
    """A policy of a module that needs more than others."""

    def make(seed: int) -> Policy:
        made: Policy = getattr(import_module(f"ahbm.choose.{module}"), name)(seed)
        return made

    return make


BASELINES: dict[str, Callable[[int], Policy]] = {
    "random": policies.Random,
    "static": policies.Static,
    "prior": policies.ByPrior,
    "nccl": policies.Nccl,
    "ladder": policies.Ladder,
    "tree": _optional("learners", "Tree"),
    "shortlist-3": _optional("learners", "Shortlisted"),
    "ucb": policies.Ucb,
    "thompson": policies.Thompson,
    "ppo": _optional("ppo", "MaskablePPO"),
}
"""By name, what makes a policy of a seed."""


@dataclass(frozen=True)
class Score:
    """What a policy did in the episodes of the test side of a split."""

    baseline: str
    split: str
    """With its version."""
    reward: float
    """Mean of -log(time / bound) over all calls."""
    regret: Regret
    """Over all calls, the first ones of an episode too."""
    runs: int
    """Simulations that the policy asked for while it chose."""

    def to_json(self) -> dict[str, Any]:
        """The score as JSON-serialisable data; regrets are shares."""
        regret = {name: getattr(self.regret, name) for name in ("mean", "p95", "within_1_percent")}
        return {
            "baseline": self.baseline,
            "split": self.split,
            "reward": self.reward,
            "regret": regret,
            "calls": self.regret.points,
            "runs": self.runs,
        }

    def __str__(self) -> str:
        return f"{self.baseline} on {self.split}: reward {self.reward:.4f}, regret {self.regret}, {self.runs} runs"


def score(
    baseline: str,
    split: Split,
    *,
    calls: int = CALLS,
    seed: int = 0,
    store: str | Path | None = None,
    jobs: int | None = None,
) -> Score:
    """The score of a baseline: it learns from the training side, then plays one episode of `calls` calls for every
    machine, and job, of the test side. The same arguments give the same score.

    store, jobs: as of `ahbm.sweep`, for the tables of the split.

    Raises ConfigError (AHBM-C129) for a baseline that there is not, UnsupportedError (AHBM-U145) for one whose packages
    are not installed, and what measuring the split raises.
    """
    if baseline not in BASELINES:
        raise ConfigError("AHBM-C129", f"there is no baseline {baseline!r}", hint=did_you_mean(baseline, BASELINES))
    policy = BASELINES[baseline](whole("seed", seed, 0, 2**32 - 1))
    if policy.learns:
        policy.learn(split, split.train.outcomes(split.catalogue, store, jobs))
    env = Select(split.test.outcomes(split.catalogue, store, jobs), calls=calls, jobs=split.test.jobs)
    rewards: list[float] = []
    losses: list[Loss] = []
    refusals = 0
    plays = [(machine, job) for machine in env.outcomes.machines for job in range(len(split.test.jobs) or 1)]
    for episode, (machine, job) in enumerate(plays):
        options: dict[str, Any] = {"machine": machine} | ({"job": job} if split.test.jobs else {})
        observation, _ = env.reset(seed=episode, options=options)
        policy.begin(episode)
        ended = False
        while not ended:
            request = env.asked().request
            observation, reward, terminated, truncated, info = env.step(policy.act(env, observation))
            policy.observe(info)
            rewards.append(reward)
            topology = env.outcomes.machine(machine).topology
            point = Point(machine, topology, request.world_size, request.nbytes, request.collective, request.dtype)
            times = (round(info["time_ns"] * 1000), round(info["oracle_ns"] * 1000))
            losses.append(Loss(point, info["algorithm"], times[0], info["oracle"], times[1]))
            refusals += "refused" in info
            ended = terminated or truncated
    return Score(baseline, split.id, sum(rewards) / len(rewards), Regret.of(losses, refusals), policy.runs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the score of a baseline; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ahbm.choose.baselines", description=(__doc__ or "").split(":")[0])
    parser.add_argument("baseline", choices=BASELINES)
    parser.add_argument("--split", choices=SPLITS, default="networks")
    parser.add_argument("--seed", type=int, default=0, help="of what the baseline draws")
    parser.add_argument("--store", metavar="DIR", help="keep what was measured, and do not measure it again")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes that measure")
    parser.add_argument("--small", action="store_true", help="a part of the split, for a quick look")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        split = split_of(asked.split)
        found = score(
            asked.baseline,
            split.small() if asked.small else split,
            seed=asked.seed,
            store=asked.store,
            jobs=asked.jobs,
        )
    except AhbmError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(found.to_json()) if asked.json else found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
