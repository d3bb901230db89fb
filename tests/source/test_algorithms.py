"""Every packaged algorithm on every kind of network against NumPy: bit for bit where the answer is exact, within the
rounding of the additions where it is not; one call and two calls back to back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ahbm import DPPolicy, Machine
from ahbm.config.ccl import CclConfig
from ahbm.config.topology import load_machine
from ahbm.core.buffers import requested
from ahbm.core.emulator import Emulator

Array = NDArray[Any]

ALGORITHM_FOLDER = Path(__file__).resolve().parents[2] / "python/ahbm/data/algorithms"

ALL_REDUCE = [
    "lrab_hierarchical_allreduce",
    "ring_allreduce",
    "bidirectional_ring_allreduce",
    "all_pairs_allreduce",
    "tree_allreduce",
    "recursive_doubling_allreduce",
    "hierarchical_ring_allreduce",
    "double_binary_tree_allreduce",
    "nccl_ring_allreduce",
    "nvls_allreduce",
    "nvls_tree_allreduce",
    "collnet_direct_allreduce",
]
ALGORITHMS = {
    **dict.fromkeys(ALL_REDUCE, "all_reduce"),
    "ring_all_gather": "all_gather",
    "ring_reduce_scatter": "reduce_scatter",
    "binomial_broadcast": "broadcast",
    "binomial_reduce": "reduce",
    "binomial_gather": "gather",
    "binomial_scatter": "scatter",
    "pairwise_all_to_all": "all_to_all",
    "grouped_all_to_all": "all_to_all",
    "direct_send_recv": "send_recv",
    "dissemination_barrier": "barrier",
    "nccl_ring_all_gather": "all_gather",
    "nccl_ring_reduce_scatter": "reduce_scatter",
    "nvls_all_gather": "all_gather",
    "nvls_reduce_scatter": "reduce_scatter",
    "pat_all_gather": "all_gather",
    "pat_reduce_scatter": "reduce_scatter",
    "ring_broadcast": "broadcast",
    "ring_reduce": "reduce",
}
REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
CHUNKED = {"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"}
DTYPES = ["float16", "bfloat16", "float32", "float64"]
DTYPES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
SIZES = {"one": 1, "fewer than cubes": 3, "not divisible": 37, "large": 3001}
TILES = [
    (dtype, size)
    for dtype in DTYPES
    for size in SIZES.values()
    if size == SIZES["not divisible"] or dtype in ("int8", "float16", "float64")
]
"""Every type, and every size of types of one, two and eight bytes: a kernel sees of a type no more than its bytes."""

CUBES = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2, "cube.pe_layout.corners": 1, "cube.pe_layout.pe_per_corner": 1}


def sips(count: int, *extents: int) -> dict[str, object]:
    named = {f"system.sips.{axis}": extent for axis, extent in zip("whd", extents, strict=False)}
    return {"system.sips.count": count, **named, **CUBES}


NETWORKS: dict[str, dict[str, object]] = {
    "ring_1d": sips(5),
    "torus_2d": sips(6, 3, 2),
    "mesh_2d_no_wrap": sips(6, 3, 2),
    "mesh_3d": sips(8, 2, 2, 2),
    "torus_3d": sips(6, 3, 1, 2),
    "hypercube": sips(8),
    "fully_connected": sips(7),
    "switch": sips(6) | {"system.sips.switch.reduces": True},
    "nodes": sips(6) | {f"system.sips.nodes.{key}": True for key in ("reduces", "spine_reduces")},
    "custom": sips(4) | {"system.sips.edges": [{"from": 0, "to": 1}, {"from": 1, "to": 2}, {"from": 1, "to": 3}]},
}
RANKS = {network: int(str(keys["system.sips.count"])) for network, keys in NETWORKS.items()}
NETWORKS["nodes"]["system.sips.nodes.size"] = 2
LRAB_NETWORKS = ("ring_1d", "torus_2d", "mesh_2d_no_wrap")
REDUCING_NETWORKS = ("switch", "nodes")
FITTING = {
    "lrab_hierarchical_allreduce": LRAB_NETWORKS,
    "nvls_allreduce": REDUCING_NETWORKS,
    "nvls_all_gather": REDUCING_NETWORKS,
    "nvls_reduce_scatter": REDUCING_NETWORKS,
    "nvls_tree_allreduce": ("nodes",),
    "collnet_direct_allreduce": REDUCING_NETWORKS,
}
"""The networks of algorithms that do not fit all of them."""
CASES = [
    (algorithm, network)
    for algorithm in ALGORITHMS
    for network in NETWORKS
    if network in FITTING.get(algorithm, NETWORKS)
]


Machines = Callable[[str], Machine]
Emulators = Callable[[str], Emulator]

TWICE = """

from functools import wraps

once = kernel


@wraps(once)
def kernel(*args, tl):
    once(*args, tl=tl)
    once(*args, tl=tl)
"""


LATE = """

from functools import wraps

punctual = kernel


@wraps(punctual)
def kernel(*args, tl):
    if args[-4] == {late}:  # sip_rank
        for _ in range(100_000):  # 1 ns each
            tl.program_id(axis=0)
    punctual(*args, tl=tl)
"""


@pytest.fixture(scope="module")
def machines() -> Machines:
    built: dict[str, Machine] = {}

    def machine(network: str) -> Machine:
        if network not in built:
            built[network] = load_machine(network, NETWORKS[network])
        return built[network]

    return machine


@pytest.fixture(scope="module")
def emulator(machines: Machines) -> Emulators:
    built: dict[str, Emulator] = {}

    def make(network: str) -> Emulator:
        if network not in built:
            built[network] = Emulator(machines(network), CclConfig.load())
        return built[network]

    return make


def reduced(x: Array, op: str) -> Array:
    """The reduction of `x` along axis 0, in its dtype."""
    if op in ("min", "max"):
        result: Array = getattr(x, op)(axis=0)
        return result
    wide = x if x.dtype.kind in "iu" else x.astype(np.float64)
    result = wide.prod(axis=0, dtype=wide.dtype) if op == "prod" else wide.sum(axis=0, dtype=wide.dtype)
    narrow: Array = (result / len(x) if op == "avg" else result).astype(x.dtype)
    return narrow


@dataclass(frozen=True)
class Call:
    """One collective: what goes in, and what must come out."""

    collective: str
    ranks: int
    n_elem: int
    op: str = "sum"
    root: int = 0
    src: int = 0
    dst: int = 0

    def shape(self) -> tuple[int, ...]:
        """(rank, chunk, element)."""
        elements = 1 if self.collective == "barrier" else self.n_elem
        return self.ranks, self.ranks if self.collective in CHUNKED else 1, elements

    def after(self, x: Array) -> Array:
        """The buffers afterwards; what the collective leaves unspecified stays as it was."""
        y, every = x.copy(), range(self.ranks)
        match self.collective:
            case "all_reduce":
                y[:] = reduced(x, self.op)
            case "all_gather":
                y[:] = x[every, every]
            case "reduce_scatter":
                y[every, every] = reduced(x, self.op)
            case "broadcast":
                y[:] = x[self.root]
            case "reduce":
                y[self.root] = reduced(x, self.op)
            case "gather":
                y[self.root] = x[every, every]
            case "scatter":
                y[every, every] = x[self.root]
            case "all_to_all":
                y[:] = x.swapaxes(0, 1)
            case "send_recv":
                y[self.dst] = x[self.src]
        return y

    def specified(self, x: Array) -> Array:
        """The part of the buffers that the collective defines."""
        every: Any = range(self.ranks)
        part: Any = ...
        if self.collective == "gather":
            part = self.root
        elif self.collective in ("scatter", "reduce_scatter"):
            part = every, every
        specified: Array = x[part]
        return specified


def exact_data(call: Call, dtype: Any, rng: np.random.Generator) -> Array:
    """Values whose reduction, and the reduction of it again, is exact in any order (or wraps, for integers)."""
    shape = call.shape()
    if call.op == "prod":  # every product is 2: each element has one contribution of 2 among ones
        owner = np.arange(np.prod(shape[1:])).reshape(shape[1:]) % call.ranks
        return np.where(owner == np.arange(call.ranks)[:, None, None], 2, 1).astype(dtype)
    step = call.ranks if call.op == "avg" else 1
    return (step * rng.integers(0, 4, shape)).astype(dtype)


def run(emulator: Emulator, call: Call, x: Array, algorithm: str) -> Array:
    """The buffers after one call."""
    y = x.copy()
    buffers = [y[rank].reshape(-1) for rank in range(call.ranks)]
    request = requested(call.collective, buffers, op=call.op, root=call.root, src=call.src, dst=call.dst)
    emulator.perform(request, buffers, algorithm)
    return y


def check_exact(emulator: Emulator, call: Call, algorithm: str, dtype: str) -> None:
    x = exact_data(call, numpy_dtype(dtype), np.random.default_rng(call.n_elem))
    once = run(emulator, call, x, algorithm)
    np.testing.assert_array_equal(call.specified(once), call.specified(call.after(x)), f"{call} {dtype}")
    again = call.after(x)
    twice = run(emulator, call, again, algorithm)
    np.testing.assert_array_equal(call.specified(twice), call.specified(call.after(again)), f"second {call} {dtype}")


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def call_of(algorithm: str, ranks: int, n_elem: int, **more: Any) -> Call:
    collective = ALGORITHMS[algorithm]
    if collective == "send_recv":
        more |= {"src": ranks - 1, "dst": ranks // 3}
    if collective in ("broadcast", "reduce", "gather", "scatter"):
        more = {"root": ranks // 2} | more
    return Call(collective, ranks, n_elem, **more)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "network"), CASES)
def test_exact(emulator: Emulators, algorithm: str, network: str) -> None:
    for dtype, n_elem in TILES:
        check_exact(emulator(network), call_of(algorithm, RANKS[network], n_elem), algorithm, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["prod", "min", "max", "avg"])
@pytest.mark.parametrize("algorithm", [name for name, collective in ALGORITHMS.items() if collective in REDUCING])
def test_operators(emulator: Emulators, algorithm: str, op: str) -> None:
    for dtype in DTYPES:
        if op != "avg" or "int" not in dtype:
            network = FITTING.get(algorithm, ("torus_2d",))[:2][-1]
            check_exact(emulator(network), call_of(algorithm, RANKS[network], 37, op=op), algorithm, dtype)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if "int" not in name])
@pytest.mark.parametrize("algorithm", [name for name, collective in ALGORITHMS.items() if collective in REDUCING])
def test_rounding(emulator: Emulators, algorithm: str, dtype: str) -> None:
    """n positive terms, added in any order, end within n - 1 roundings of the true sum."""
    kind = numpy_dtype(dtype)
    for network in FITTING.get(algorithm, LRAB_NETWORKS):
        call = call_of(algorithm, RANKS[network], 517)
        x = np.random.default_rng(7).uniform(0.5, 1.0, call.shape()).astype(kind)
        wide = call.specified(call.after(x.astype(np.float64)))
        got = call.specified(run(emulator(network), call, x, algorithm)).astype(np.float64)
        changed = wide != call.specified(x.astype(np.float64))
        finfo: Any = ml_dtypes.finfo
        ulp = float(finfo(kind).eps) * wide
        assert (np.abs(got - wide) <= np.where(changed, (call.ranks - 1) * ulp, 0)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "network"), [case for case in CASES if case[0] in ALL_REDUCE])
def test_placed_tensors(emulator: Emulators, algorithm: str, network: str) -> None:
    """Every cube's tile is one contribution, and every cube ends with the result."""
    ranks, cubes = RANKS[network], 4
    for dtype in ("float16", "bfloat16", "int32"):
        for n_elem in (1, 5, 300):
            x = np.random.default_rng(n_elem).integers(0, 4, (ranks, cubes, n_elem)).astype(numpy_dtype(dtype))
            y = x.copy()
            request = requested("all_reduce", list(y), placement=DPPolicy(cube="row_wise"))
            emulator(network).perform(request, list(y), algorithm)
            want = reduced(x.reshape(ranks * cubes, n_elem), "sum")
            np.testing.assert_array_equal(y, np.broadcast_to(want, y.shape))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 9, 16])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_world_sizes_and_roots(algorithm: str, ranks: int) -> None:
    network = FITTING.get(algorithm, ("ring_1d",))[0]
    overrides = {key: value for key, value in NETWORKS[network].items() if "nodes" in key or "reduces" in key}
    if ranks % 2 and ranks > 1:
        overrides = {key: ranks if key.endswith("size") else value for key, value in overrides.items()}
    emulator = Emulator(load_machine(network, sips(ranks) | overrides), CclConfig.load())
    rooted = ALGORITHMS[algorithm] in ("broadcast", "reduce", "gather", "scatter")
    for root in range(ranks) if rooted else (0,):
        check_exact(emulator, call_of(algorithm, ranks, 7, root=root), algorithm, "float16")


@pytest.mark.slow
@pytest.mark.parametrize("n_slots", [1, 4])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_calls_in_one_launch(machines: Machines, tmp_path: Path, algorithm: str, n_slots: int) -> None:
    """A second call finds the queues of the first one in order, even when it overtakes it on other ranks."""
    source = (ALGORITHM_FOLDER / f"{algorithm}.py").read_text(encoding="utf-8")
    module = tmp_path / f"{algorithm}_twice.py"
    module.write_text(source + TWICE, encoding="utf-8")
    ccl = CclConfig.load(overrides={"defaults.n_slots": n_slots})
    for network in FITTING.get(algorithm, ("ring_1d", "torus_2d"))[:2]:
        call = call_of(algorithm, RANKS[network], 37)
        x = exact_data(call, np.float32, np.random.default_rng(3))
        y = run(Emulator(machines(network), ccl), call, x, str(module))
        np.testing.assert_array_equal(call.specified(y), call.specified(call.after(call.after(x))))


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 9])
def test_nobody_leaves_a_barrier_before_the_last_one_comes(tmp_path: Path, ranks: int) -> None:
    emulator = Emulator(load_machine("switch", sips(ranks)), CclConfig.load())
    source = (ALGORITHM_FOLDER / "dissemination_barrier.py").read_text(encoding="utf-8")
    for late in range(ranks):
        module = tmp_path / f"barrier_late_{late}.py"
        module.write_text(source + LATE.format(late=late), encoding="utf-8")
        buffers = [np.zeros(1, np.float16) for _ in range(ranks)]
        timeline = emulator.perform(requested("barrier", buffers), buffers, str(module)).timeline(record=True)
        assert timeline is not None
        assert min(timeline.ends_ps) > 100_000_000


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_modules_are_small_and_say_what_they_cost(algorithm: str) -> None:
    lines = (ALGORITHM_FOLDER / f"{algorithm}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 180
    assert any(line.startswith("Cost") and "alpha" in " ".join(lines[n : n + 3]) for n, line in enumerate(lines))
    assert f'COLLECTIVE = "{ALGORITHMS[algorithm]}"' in lines


def test_every_packaged_algorithm_is_tested() -> None:
    assert sorted(ALGORITHMS) == sorted(path.stem for path in ALGORITHM_FOLDER.glob("*.py"))


def test_an_unknown_topology_kind_is_an_error() -> None:
    names: dict[str, Any] = {}
    exec((ALGORITHM_FOLDER / "lrab_hierarchical_allreduce.py").read_text(encoding="utf-8"), names)
    with pytest.raises(ValueError, match="unsupported topology kind 9"):
        names["kernel"](0, 8, 1, 1, 2, "sum", "f16", 0, 9, 0, 0, tl=MagicMock(program_id=lambda axis: 0))
