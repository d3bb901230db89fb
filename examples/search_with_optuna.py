"""A search instead of a sweep: Optuna asks for one machine after the other, and the lower bound prunes.

The bound of a case is known without simulating it: a machine that could not win is not simulated.
Needs `pip install optuna`.
"""

import optuna

import ahbm
from ahbm.runs.measure import prepare

optuna.logging.set_verbosity(optuna.logging.WARNING)
SIZE = 1 << 20


def price(gbs: int) -> float:
    """What links of this bandwidth cost, in nanoseconds that one would wait instead."""
    return 40.0 * gbs


def objective(trial: optuna.Trial) -> float:
    gbs = trial.suggest_int("gbs", 10, 400, log=True)
    topology = trial.suggest_categorical("topology", ["npu_ring_8", "npu_switch_8", "npu_fully_connected_8"])
    algorithm = trial.suggest_categorical("algorithm", ["ring_allreduce", "tree_allreduce"])
    overrides = {"system.sips.link.bandwidth_gbs": gbs}
    case = prepare("all_reduce", algorithm, topology, size=SIZE, overrides=overrides)
    bound = case.emulator.bound(case.request).ps
    done = [one.value for one in trial.study.trials if one.value is not None]
    if bound is not None and done and bound / 1000 + price(gbs) >= min(done):
        raise optuna.TrialPruned("no algorithm is quick enough there")
    report = ahbm.run("all_reduce", algorithm, emulator=case.emulator, size=SIZE, data=False)
    return report.latency_ns + price(gbs)


study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
study.optimize(objective, n_trials=60)
pruned = [trial for trial in study.trials if trial.state is optuna.trial.TrialState.PRUNED]
print(f"best {study.best_value:,.0f} ns with {study.best_params}; {len(pruned)} of 60 were not simulated")
assert pruned
