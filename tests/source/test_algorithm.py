"""Algorithm modules: where they are found, and what is said when they break the contract."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ahbm
from ahbm import distributed
from ahbm.base.request import Request
from ahbm.cli import app
from ahbm.config.ccl import CclConfig
from ahbm.errors import ConfigError, KernelError, UnsupportedError
from ahbm.source.algorithm import AlgorithmLoader
from ahbm.source.module import ModuleAlgorithm

GOOD = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):
    return (n_elem, world_size)

def kernel(t_ptr, n_elem, n_sips, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    pass
"""


@pytest.fixture(autouse=True)
def with_algorithms(here: Path) -> Path:
    (here / "algorithms").mkdir()
    return here


def write(text: str, name: str = "algorithms/mine.py") -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)


def load(module: str, loader: AlgorithmLoader | None = None) -> ModuleAlgorithm:
    return (loader or AlgorithmLoader()).load(CclConfig.load().settings(module))


@pytest.mark.parametrize("name", ["mine", "algorithms.mine", "algorithms/mine.py", "./algorithms/mine.py"])
def test_found_by_bare_dotted_and_path(name: str) -> None:
    write(GOOD)
    before = list(sys.path), set(sys.modules)
    assert load(name).path == Path("algorithms/mine.py").resolve()
    assert sys.path == before[0]
    assert {module for module in set(sys.modules) - before[1] if "mine" in module} == set()


def test_packaged_and_local_precedence() -> None:
    packaged = load("ring_allreduce")
    assert packaged.collectives == ("all_reduce",)
    write(GOOD, "algorithms/ring_allreduce.py")
    assert load("ring_allreduce").digest != packaged.digest


def test_path_is_relative_to_the_file_that_names_it() -> None:
    write(GOOD, "sub/mine.py")
    write("algorithms:\n  mine: {module: ./mine.py}\n", "sub/ccl.yaml")
    loaded = AlgorithmLoader().load(CclConfig.load("sub/ccl.yaml").settings("mine"))
    assert loaded.path == Path("sub/mine.py").resolve()


def test_relative_imports_and_siblings() -> None:
    write("N = 3", "pack/helper.py")
    write("", "pack/__init__.py")
    write("from .helper import N\nimport sibling\n" + GOOD, "pack/mine.py")
    write("", "pack/sibling.py")
    assert load("pack.mine").kernel.__globals__["N"] == 3


def test_a_loader_goes_on_with_what_it_has_loaded() -> None:
    loader = AlgorithmLoader()
    write(GOOD)
    first = load("mine", loader)
    write(GOOD + "COLLECTIVE = 'broadcast'\n")
    assert load("mine", loader) is first
    assert load("mine").collectives == ("broadcast",)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (GOOD.replace("def kernel(", "def kernal("), "AHBM-C112", ["no symbol kernel", "kernel = my_function"]),
        (GOOD.replace("kernel_args", "kernel_arg"), "AHBM-C112", ["no symbol kernel_args"]),
        (GOOD + "kernel = 3\n", "AHBM-C113", ["not callable"]),
        (GOOD + "COLLECTIVE = 'allreduce'\n", "AHBM-C113", ["did you mean all_reduce"]),
        (GOOD + "TOPO_NAME_TO_KIND = 3\n", "AHBM-C113", ["must be a dict"]),
        (GOOD + "TOPO_NAME_TO_KIND = {'ring_1d': 'ring'}\n", "AHBM-C113", ["ring_1d must be an integer, not 'ring'"]),
        (GOOD + "TOPO_NAME_TO_KIND = {'ring_1d': True}\n", "AHBM-C113", ["must be an integer, not True"]),
        (GOOD + "TOPO_NAME_TO_KIND = {'ring_1d': 0, 'torus': 1}\n", "AHBM-C113", ["no network 'torus'", "torus_2d"]),
        (GOOD + "TOPO_NAME_TO_KIND = {('ring_1d',): 0}\n", "AHBM-C113", ["no network ('ring_1d',)"]),
        ("import nothing_like_it\n", "AHBM-C111", ["algorithms/mine.py:1", "ModuleNotFoundError"]),
        ("x = 1\ndef (:\n", "AHBM-C111", ["algorithms/mine.py:2", "SyntaxError"]),
        ("\n\n1 / 0\n", "AHBM-C111", ["algorithms/mine.py:3", "ZeroDivisionError"]),
    ],
)
def test_broken_modules(text: str, code: str, words: list[str]) -> None:
    write(text)
    with pytest.raises(ConfigError) as caught:
        load("mine")
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["absent", "absent.module", "absent.py", "mine.absent"])
def test_absent_modules(name: str) -> None:
    with pytest.raises(ConfigError, match="AHBM-C110"):
        load(name)


def test_a_package_that_is_not_found_is_named_with_the_entry() -> None:
    write("\nalgorithms:\n  mine: {module: nowhere.at.all}\n", "./ccl.yaml")
    with pytest.raises(ConfigError, match="No module named 'nowhere'") as caught:
        load("mine")
    assert [site.origin for site in caught.value.sites] == ["ccl.yaml:3"]
    assert "PYTHONPATH" in str(caught.value.hint)


def test_a_package_that_fails_is_told_as_it_fails() -> None:
    write("1 / 0\n", "./broken_package/__init__.py")
    with pytest.raises(ConfigError, match=r"AHBM-C110.*ZeroDivisionError"):
        load("broken_package.mine")


def test_arity_names_both_sides() -> None:
    write(GOOD.replace("return (n_elem, world_size)", "return (n_elem, cube_w, cube_h, world_size)"))
    with pytest.raises(KernelError) as caught:
        load("mine").arguments(Request("all_reduce", range(2), 8), 8, 1, 1)
    assert caught.value.code == "AHBM-K111"
    assert "takes 7 positional arguments, but gets 9" in caught.value.message
    assert {site.origin for site in caught.value.sites} == {"algorithms/mine.py:2", "algorithms/mine.py:5"}


def test_kernel_args_must_give_a_tuple_and_not_raise() -> None:
    write(GOOD.replace("return (n_elem, world_size)", "return [n_elem]"))
    with pytest.raises(KernelError, match="not list"):
        load("mine").arguments(Request("all_reduce", range(2), 8), 8, 1, 1)
    write(GOOD.replace("return (n_elem, world_size)", "return 1 / 0"))
    with pytest.raises(KernelError, match="ZeroDivisionError"):
        load("mine").arguments(Request("all_reduce", range(2), 8), 8, 1, 1)


def test_keywords_are_passed_only_where_they_are_accepted() -> None:
    write(GOOD)
    algorithm = load("mine")
    assert algorithm.arguments(Request("all_reduce", range(2), 8), 8, 1, 1) == (8, 2)
    for request in (Request("all_reduce", range(2), 8, op="max"), Request("all_reduce", range(2), 8, dtype="f32")):
        with pytest.raises(UnsupportedError, match="add the keyword"):
            algorithm.check(request)
    with pytest.raises(ConfigError, match="AHBM-C115"):
        algorithm.check(Request("broadcast", range(2), 8))
    write(GOOD.replace("cube_h=4", "cube_h=4, op='sum', dtype='f16'").replace("(n_elem, world_size)", "(op, dtype)"))
    algorithm = load("mine")
    algorithm.check(Request("all_reduce", range(2), 8, "f32", "max"))
    assert algorithm.arguments(Request("all_reduce", range(2), 8, "f32", "max"), 8, 1, 1) == ("max", "f32")


MOODY = """
import itertools, random, time
COLLECTIVE = "all_gather"
turns = itertools.count()

def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):
    return (ARGUMENT,)

def kernel(t_ptr, number, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    tl.store(t_ptr, tl.load(t_ptr, 8) * (VALUE))
"""


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("0", "random.random()"),
        ("0", "time.perf_counter_ns()"),
        ("0", "next(turns)"),
        ("0", "next(turns) % 2"),
        ("0", "id(object()) + next(turns)"),
        ("next(turns)", "number"),
        ("random.random()", "number"),
    ],
)
@pytest.mark.parametrize("ranks", [2, 8, 30])
def test_a_kernel_that_does_something_else_every_time(argument: str, value: str, ranks: int) -> None:
    write(MOODY.replace("ARGUMENT", argument).replace("VALUE", value))
    with pytest.raises(KernelError, match=r"AHBM-K21[67]") as caught:
        ahbm.run(
            "all_gather",
            "mine",
            "npu_ring_8",
            data=False,
            bytes_per_rank=16 * ranks,
            overrides={"system.sips.count": ranks},
        )
    # What is no argument is read in one line; what a call leaves to the next differs in one line of two calls.
    both = ["mine.py:10"] * 2
    read = ["mine.py:7" if "random" in argument else "mine.py:10"]
    expected = both if caught.value.code == "AHBM-K216" else read
    assert [site.origin for site in caught.value.sites][: len(expected)] == expected
    assert (caught.value.code == "AHBM-K216") == ("next" in argument + value and "id(" not in value)


def test_every_door_asks_twice() -> None:
    write(MOODY.replace("ARGUMENT", "0").replace("VALUE", "next(turns)"))
    write("collectives: {all_gather: algorithms/mine.py}\n", "./ccl.yaml")

    def worker(rank: int) -> None:
        distributed.init_process_group()
        distributed.all_gather_into_tensor(np.zeros(2 * 8, "f2"), np.zeros(8, "f2"))

    doors: list[Callable[[], object]] = [
        lambda: ahbm.run("all_gather", topology="npu_ring_8", bytes_per_rank=256),
        lambda: ahbm.open("all_gather", topology="npu_ring_8", bytes_per_rank=256).explain(),
        lambda: ahbm.spawn(worker, nprocs=2, topology="npu_ring_8"),
    ]
    for door in doors:
        with pytest.raises(KernelError, match="AHBM-K216"):
            door()
    told = CliRunner().invoke(app, ["bench", "all_gather", "-t", "npu_ring_8", "-b", "1K", "-e", "1K", "--no-data"])
    assert "AHBM-K216" in told.output + str(told.exception)


@pytest.mark.parametrize(
    "text",
    [
        "COLLECTIVE = 5",
        "COLLECTIVE = [['all_reduce']]",
        "kernel = max",
        "kernel_args = max",
        "def __getattr__(name):\n    raise SystemExit(0)",
        "class Odd:\n    def __getattr__(self, name):\n        raise SystemExit(0)\n"
        "    def __call__(self):\n        pass\nkernel = Odd()",
    ],
)
def test_symbols_that_are_not_what_they_should_be(text: str) -> None:
    write(GOOD + text)
    with pytest.raises(ConfigError, match="AHBM-C113"):
        load("mine")


@pytest.mark.parametrize("returned", ["[n_elem]", "None", "(n for n in ())", "{}", "3", "'ab'"])
def test_kernel_args_return_a_tuple(returned: str) -> None:
    for declared in ("def kernel_args", "async def kernel_args"):
        write(GOOD.replace("(n_elem, world_size)", returned).replace("def kernel_args", declared))
        with pytest.raises(KernelError, match="AHBM-K110"):
            load("mine").arguments(Request("all_reduce", range(2), 8), 8, 1, 1)


def test_topology_kinds() -> None:
    write(GOOD)
    assert load("mine").topology_kind("hypercube") == 0
    write(GOOD + "TOPO_NAME_TO_KIND = {'ring_1d': 0, 'torus_2d': 1}\n")
    assert load("mine").topology_kind("torus_2d") == 1
    with pytest.raises(ConfigError, match="ring_1d, torus_2d"):
        load("mine").topology_kind("hypercube")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("def kernel_args", "raise SystemExit(0)\n\n\ndef kernel_args", "AHBM-C111"),
        ("return (n_elem, world_size)", "raise SystemExit(0)", "AHBM-K110"),
        (
            "def kernel(t_ptr",
            "def kernel(*all_of_them, tl):\n    raise SystemExit(0)\n\n\ndef unused(t_ptr",
            "AHBM-K210",
        ),
    ],
)
def test_leaving_the_program_is_an_error_like_any_other(old: str, new: str, code: str) -> None:
    """A check that ended in silence would be taken for a success."""
    assert old in GOOD
    write(GOOD.replace(old, new))
    result = CliRunner().invoke(app, ["check", "-a", "mine"])
    told = result.stdout + str(result.exception)
    assert code in told and result.exit_code != 0


TUNED = GOOD.replace("cube_h=4)", "cube_h=4, root_cube=3, ways=(1, 2))").replace(
    "return (n_elem, world_size)", "SEEN.append((root_cube, ways))\n    return (n_elem, world_size)"
)


def entry(text: str) -> AlgorithmLoader:
    Path("ccl.yaml").write_text(f"algorithms:\n  mine: {{module: mine, {text}}}\n")
    return AlgorithmLoader()


def test_parameters_of_an_entry_reach_kernel_args() -> None:
    write(f"SEEN = []\n{TUNED}")
    plain = load("mine")
    tuned = load("mine", entry("root_cube: 5, ways: [4, 6]"))
    assert plain.identity != tuned.identity, "what is cached for one is not for the other"
    request = Request("all_reduce", range(2), 8, "f16", "sum")
    for algorithm, seen in ((plain, (3, (1, 2))), (tuned, (5, (4, 6)))):
        algorithm.arguments(request, 8, 4, 4)
        assert algorithm.kernel.__globals__["SEEN"][-1] == seen
    report = ahbm.run(algorithm="mine", overrides={"algorithms.mine.root_cube": 7}, data=False)
    again = ahbm.open(report).run(data=False)
    assert again.timeline_hash == report.timeline_hash and again.spec is not None and report.spec is not None
    assert again.spec.digest == report.spec.digest != ahbm.run(algorithm="mine", data=False).spec.digest


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("root_cub: 5", "AHBM-C108", "did you mean root_cube"),
        ("n_slot: 5", "AHBM-C108", "did you mean n_slots"),
        ("dtype: f32", "AHBM-C108", "the run gives it"),
        ("cube_w: 2", "AHBM-C108", "the run gives it"),
        ("root_cube: {a: 1}", "AHBM-C103", "a number, a text"),
        ("method: ring", "AHBM-C108", "algorithms.mine.method"),
        ("instances: 4", "AHBM-C103", "are for plan"),
    ],
)
def test_parameters_that_nobody_takes(text: str, code: str, words: str) -> None:
    write(f"SEEN = []\n{TUNED}")
    loader = entry(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load("mine", loader)
    assert caught.value.code == code


@pytest.mark.parametrize("where", ["kernel", "kernel_args"])
def test_a_value_error_of_an_algorithm_is_one_to_its_caller(where: str) -> None:
    """As the contract asks for topologies that an algorithm does not support."""
    told = 'raise ValueError(f"unsupported topology kind {7}")'
    write(
        GOOD.replace("    pass", f"    {told}")
        if where == "kernel"
        else GOOD.replace("    return", f"    {told}\n    return")
    )
    with pytest.raises(ValueError, match="unsupported topology kind 7") as caught:
        ahbm.run(algorithm="mine")
    assert isinstance(caught.value, KernelError) and isinstance(caught.value.__cause__, ValueError)

    def worker(rank: int) -> bool:
        distributed.init_process_group(backend="ahbm", algorithm="mine")
        with pytest.raises(ValueError, match="unsupported topology kind 7"):
            distributed.all_reduce(np.ones(16, np.float16))
        return True

    assert ahbm.spawn(worker) == [True, True]
    write(GOOD.replace("    pass", "    raise OSError(7)"))
    with pytest.raises(KernelError) as other:
        ahbm.run(algorithm="mine")
    assert not isinstance(other.value, ValueError)


def test_a_module_without_a_collective_is_told_how_to_name_it() -> None:
    write(GOOD)
    with pytest.raises(ConfigError, match='write COLLECTIVE = "broadcast"'):
        ahbm.run("broadcast", "mine")
