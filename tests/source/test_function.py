"""Functions as algorithms: of notebooks and generated code, in every place that takes an algorithm."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import types
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError, KernelError
from ahbm.runs.report import Report
from ahbm.runs.verdict import check_kernel
from ahbm.source.function import fingerprint

SMALL: dict[str, object] = {"system.sips.count": 4, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
CELL = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    return (n_elem, world_size, op, dtype)

ROUNDS = 1

def rounds(n):
    return n - ROUNDS

def ring(t_ptr, n_elem, n, op, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    acc = current = tl.load(t_ptr, shape=(n_elem,), dtype=dtype)
    for _ in range(rounds(n)):
        tl.send(dir=f"sip{(sip_rank + 1) % n}", src=current)
        current = tl.recv(dir=f"sip{(sip_rank - 1) % n}", shape=(n_elem,), dtype=dtype)
        acc = tl.combine(acc, current, op)
    tl.store(t_ptr, acc)
"""


def cell(text: str = CELL, filename: str = "/tmp/ipykernel_12/345.py") -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, filename, "exec"), names)
    return names


def run(algorithm: Any, **more: Any) -> Report:
    return ahbm.run("all_reduce", algorithm, bytes_per_rank=512, **({"overrides": SMALL} | more))


def test_a_function_runs_in_every_form() -> None:
    names = cell()
    module = types.ModuleType("mine")
    vars(module).update(names, kernel=names["ring"], __name__="mine")

    @ahbm.algorithm(kernel_args=names["kernel_args"], name="decorated")
    def decorated(*args: Any, tl: ahbm.Tl) -> None:
        names["ring"](*args, tl=tl)

    forms = [names["ring"], module, ahbm.algorithm(names["ring"]), decorated]
    reports = [run(form, check=True) for form in forms]
    assert [report.algorithm for report in reports] == ["ring", "mine", "ring", "decorated"]
    assert len({report.timeline_hash for report in reports}) == 1
    assert ahbm.open("all_reduce", algorithm=names["ring"], overrides=SMALL).run().wrong == 0


def test_the_operations_of_a_wrong_kernel_are_known_and_those_of_none_are_left_out() -> None:
    good = cell()["ring"]

    def wrong(*args: Any, tl: ahbm.Tl) -> None:
        t_ptr, n_elem = args[:2]
        tl.store(t_ptr, tl.load(t_ptr, shape=(n_elem,), dtype="f16"))

    def broken(*args: Any, tl: ahbm.Tl) -> None:
        raise ValueError("no program")

    args = cell()["kernel_args"]
    kernels = [ahbm.algorithm(kernel_args=args)(one) for one in (good, wrong, broken)]
    found = [check_kernel(kernel, overrides=SMALL, checks="result") for kernel in kernels]
    assert [one.verdict for one in found] == ["correct", "wrong", "malformed"]
    assert found[0].ops and "(kernel, all_reduce, 4 ranks, 8 ops, " in str(found[1])
    assert found[2].ops is None and "ops" not in str(found[2]).splitlines()[0]


def test_a_reports_function_is_run_again_explained_and_checked() -> None:
    report = run(cell()["ring"], check="race,uninit")
    assert check_kernel(cell()["ring"], overrides=SMALL, checks="race").verdict == "correct"
    again = ahbm.open(report)
    assert again.run() == report
    assert {step.origin for step in again.explain().steps} == {f"<cell>:{line}" for line in (11, 13, 14, 15, 16)}


def test_ranks_take_functions_that_are_made_in_each_of_them() -> None:
    def worker(rank: int) -> float:
        dist.init_process_group(algorithm=cell()["ring"])
        array = np.ones(8, np.float16)
        dist.all_reduce(array)
        return float(array[0])

    def plain(rank: int) -> float:
        dist.init_process_group()
        array = np.ones(8, np.float16)
        dist.all_reduce(array)
        return float(array[0])

    assert ahbm.spawn(worker, overrides=SMALL) == [4.0] * 4
    assert ahbm.spawn(plain, overrides=SMALL, algorithm=cell()["ring"]) == [4.0] * 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ROUNDS = 1", "ROUNDS = 2"),
        ("n - ROUNDS", "n - ROUNDS - 1"),
        ("acc, current, op", "acc, acc, op"),
        ("world_size, op", "world_size, 'max'"),
        ("t_ptr, acc", "t_ptr, current"),
    ],
)
def test_one_emulator_never_runs_what_a_function_was(old: str, new: str) -> None:
    emulator = Emulator.load(overrides=SMALL)
    first = run(cell()["ring"], overrides=None, emulator=emulator)
    changed = run(cell(CELL.replace(old, new))["ring"], overrides=None, emulator=emulator)
    assert first.wrong == 0
    assert changed.wrong
    assert run(cell()["ring"], overrides=None, emulator=emulator) == first


def test_a_global_that_is_set_anew_counts() -> None:
    emulator, names = Emulator.load(overrides=SMALL), cell()
    assert run(names["ring"], overrides=None, emulator=emulator).wrong == 0
    names["ROUNDS"] = 2
    assert run(names["ring"], overrides=None, emulator=emulator).wrong


def test_equal_cells_have_one_fingerprint_and_objects_their_own() -> None:
    first, second = cell(), cell(filename="/tmp/ipykernel_12/999.py")
    assert fingerprint(first["ring"], first) == fingerprint(second["ring"], second)
    objects = [{"f": None, "__name__": "x", "lock": iter([])} for _ in range(2)]
    found = {fingerprint(names["lock"], names) for names in objects}
    assert len(found) >= 1
    loop: list[Any] = []
    loop.append(loop)
    assert len(fingerprint({"f": loop, "g": {1, 2}, "h": json, "i": Report}, {})) == 64


def returned(_: int) -> Report:
    return run("ring_allreduce")


def test_reports_pass_between_processes() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        report = pool.submit(returned, 0).result(timeout=60)
    assert report == run("ring_allreduce")
    assert ahbm.open(report).run() == report
    assert copy.deepcopy(report) == report


def test_a_pickled_report_of_a_function_says_that_it_cannot_be_opened() -> None:
    report = run(cell()["ring"])
    known = pickle.loads(pickle.dumps(report))
    assert known == report
    assert known.spec == report.spec
    with pytest.raises(ConfigError, match="was a function, which a pickled report leaves behind") as caught:
        ahbm.open(known).run()
    assert caught.value.code == "AHBM-C163"


def test_the_collective_and_the_networks_come_with_the_function() -> None:
    names = cell(CELL + "\nTOPO_NAME_TO_KIND = {'ring_1d': 0}\n")
    assert run(names["ring"]).wrong == 0
    with pytest.raises(ConfigError, match="AHBM-C116"):
        run(names["ring"], overrides={**SMALL, "system.sips.topology": "fully_connected"})
    gather = ahbm.algorithm(names["ring"], collective="all_gather")
    with pytest.raises(ConfigError, match="AHBM-C115"):
        run(gather)


@pytest.mark.parametrize(
    ("value", "code", "told"),
    [
        (3, "AHBM-C110", "not 3"),
        (int, "AHBM-C110", "<class 'int'>"),
        (json, "AHBM-C112", "module json has no symbol kernel"),
        (lambda *args, tl: None, "AHBM-C112", "kernel_args=my_kernel_args"),
        (print, "AHBM-C112", "print has no kernel_args"),
    ],
)
def test_what_is_no_kernel_says_what_to_write(value: Any, code: str, told: str) -> None:
    for use in (run, lambda value: ahbm.open("all_reduce", algorithm=value).run()):
        with pytest.raises(ConfigError) as caught:
            use(value)
        assert caught.value.code == code
        assert told in str(caught.value)


def test_options_of_wrong_types_are_refused() -> None:
    names = cell()
    for options in ({"collective": 3}, {"collective": "all_reduc"}, {"topologies": {"ring_1d": "a"}}):
        with pytest.raises(ConfigError):
            ahbm.algorithm(names["ring"], **options)  # type: ignore[call-overload]


def test_a_misspelt_name_of_tl_is_answered_with_the_right_one() -> None:
    with pytest.raises(KernelError, match=r"(?s)no attribute 'combin'.*did you mean combine") as caught:
        run(cell(CELL.replace("tl.combine", "tl.combin"))["ring"])
    assert "<cell>:15" in str(caught.value)
    with pytest.raises(KernelError, match="did you mean dtype"):
        run(cell(CELL.replace("tl.combine(acc, current, op)", "acc.dtyp"))["ring"])


def test_kernel_args_without_the_extents_of_cubes_says_how_it_is_called() -> None:
    with pytest.raises(KernelError, match=r"(?s)AHBM-K110.*unexpected keyword.*hint: .*cube_w=4, cube_h=4"):
        run(cell(CELL.replace("cube_w=4, cube_h=4, ", ""))["ring"])
    with pytest.raises(KernelError, match="AHBM-K110") as caught:
        run(cell(CELL.replace("return (n", "raise OSError(n"))["ring"])
    assert caught.value.findings[0].hint is None


def test_the_package_lists_its_public_names() -> None:
    shown = {name for name in dir(ahbm) if not name.startswith("__")}
    assert shown | {"__version__"} == {*ahbm.__all__, "distributed"}


def test_editors_show_what_tl_says_of_itself() -> None:
    stub = ast.parse((Path(ahbm.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))
    (tl,) = (node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Tl")
    named = (node for node in tl.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"))
    methods = {node.name: ast.get_docstring(node) or "" for node in named}
    assert set(methods) == {name for name in dir(ahbm.Tl) if not name.startswith("_")}
    for name, told in methods.items():
        assert told.split() == str(getattr(ahbm.Tl, name).__doc__).split()
