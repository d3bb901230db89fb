"""`ahbm.runs.testing`: what users write in their own tests."""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ["pytester"]

BROKEN = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):
    return (n_elem, world_size)

def kernel(t_ptr, n_elem, n, rank, kind, w, h, *, tl):
    acc = current = tl.load(t_ptr, shape=(n_elem,))
    for _ in range(n - 2):
        tl.send(dir="global_E", src=current)
        current = tl.recv(dir="global_W", shape=(n_elem,))
        acc = acc + current
    tl.store(t_ptr, acc)
"""


def run(pytester: pytest.Pytester, **files: str) -> Any:
    pytester.makepyfile(**files)
    return pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-p", "no:xdist", *PLUGIN)


PLUGIN = ["-p", "no:ahbm", "-p", "ahbm.runs.testing"]
"""Loads the plugin by name, installed or not."""


def test_a_matrix(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        test_mine="""
        import pytest

        @pytest.mark.ahbm_matrix(algorithm="ring_allreduce", topologies=["ring_1d", "fully_connected"],
                                 dtypes=["f16", "i32"], sizes=[1, 100], overrides={"system.sips.count": 3})
        def test_ring(case, run_collective):
            report = run_collective(**case)
            assert report.ranks == 3 and report.count == case["elements"]

        @pytest.mark.ahbm_matrix(algorithm="ring_all_gather", sizes=[5])
        def test_gather(case, run_collective):
            assert run_collective(**case).collective == "all_gather"
    """,
    )
    result.assert_outcomes(passed=9)


def test_machines(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        test_mine="""
        import pytest

        def test_default(machine):
            assert machine.sips == 2

        @pytest.mark.ahbm(topology="switch", overrides={"system.sips.count": 5})
        def test_chosen(machine, run_collective):
            assert machine.sips == 5 and machine.topology == "switch"
            assert run_collective(algorithm="tree_allreduce", elements=3).ranks == 5
    """,
    )
    result.assert_outcomes(passed=2)


def test_a_wrong_algorithm_is_explained(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        broken=BROKEN,
        test_mine="""
        import pytest

        @pytest.mark.ahbm(topology="ring_1d", overrides={"system.sips.count": 4})
        def test_broken(run_collective):
            run_collective(algorithm="broken.py", elements=64)
    """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*AHBM-V301 wrong result.*rank \d missing.*"])


def test_modules_of_the_package_are_imported_as_python_does(pytester: pytest.Pytester) -> None:
    """pytest marks them for rewriting where the package is installed, as `marking` does here."""
    pytester.makepyfile(
        marking="""
        def pytest_addoption(pluginmanager):
            pluginmanager.rewrite_hook.mark_rewrite("ahbm")
        """,
        test_mine="""
        import ahbm.ranks.session as one

        def test_loader():
            assert type(one.__loader__).__name__ == "SourceFileLoader"
        """,
    )
    plugins = ["-p", "marking", *PLUGIN]
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-p", "no:xdist", *plugins)
    result.assert_outcomes(passed=1)


def test_the_configuration_is_that_of_the_folder_where_pytest_was_started(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", ccl="algorithms:\n  mine: {module: ring_allreduce}\n")
    result = run(
        pytester,
        test_elsewhere="""
        def test_elsewhere(run_collective, tmp_path, monkeypatch):
            monkeypatch.chdir(tmp_path)
            assert run_collective(algorithm="mine").algorithm == "mine"
        """,
    )
    result.assert_outcomes(passed=1)
