"""The pytest plugin: your own algorithm tested in three lines.

    @pytest.mark.ahbm_matrix(algorithm="my_allreduce", topologies=["ring_1d", "switch"], sizes=[1, 1000])
    def test_my_allreduce(case, run_collective):
        run_collective(**case)

Fixtures: `run_collective` (runs, checks against NumPy, raises DataError with a diff of contributions) and `machine`.
`@pytest.mark.ahbm(topology=..., overrides={...})` chooses the machine for both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.runs.report import Report

_AXES = ("topologies", "dtypes", "sizes")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Leaves the package's modules as they are.

    pytest rewrites the assertions of all modules of a distribution that has a plugin, without Python's bytecode cache.
    """
    hook = early_config.pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("ahbm")
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    config.addinivalue_line(
        "markers", "ahbm(topology=None, overrides=None): the machine of the fixtures `machine` and `run_collective`"
    )
    config.addinivalue_line(
        "markers",
        "ahbm_matrix(topologies=[None], dtypes=['f16'], sizes=[1024], **fixed): one test "
        "per combination, as keywords for `run_collective` in the argument `case`; sizes are "
        "elements of a chunk, `fixed` is passed on as it is (algorithm, collective, op, overrides)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turns `ahbm_matrix` into cases."""
    cases: list[Any] = []
    for marker in metafunc.definition.iter_markers("ahbm_matrix"):
        fixed = {key: value for key, value in marker.kwargs.items() if key not in _AXES}
        for topology in marker.kwargs.get("topologies", [None]):
            for dtype in marker.kwargs.get("dtypes", ["f16"]):
                for elements in marker.kwargs.get("sizes", [1024]):
                    case = {**fixed, "topology": topology, "dtype": dtype, "elements": elements}
                    labels = [
                        str(part) for part in (fixed.get("algorithm"), topology, dtype, elements) if part is not None
                    ]
                    cases.append(pytest.param(case, id="-".join(labels)))
    if cases:
        metafunc.parametrize("case", cases)


def _chosen(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("ahbm")
    return dict(marker.kwargs) if marker is not None else {}


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Machine:
    """The machine of the test's `ahbm` marker, else the default one."""
    from ahbm.config.topology import load_machine

    chosen = _chosen(request)
    return load_machine(chosen.get("topology"), chosen.get("overrides"))


@pytest.fixture
def run_collective(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """`ahbm.run` that fails with DataError (AHBM-V301), a diff of contributions, when the result is wrong.

    Takes what `ahbm.run` takes, with three differences: `elements` gives the size in elements of a chunk, the
    collective defaults to the one that the algorithm implements, and without `ccl` the ccl.yaml of the folder in which
    pytest was started counts, wherever a test has gone.
    """
    chosen, started = _chosen(request), request.config.invocation_params.dir / "ccl.yaml"

    def run(
        collective: str | None = None,
        algorithm: str | None = None,
        topology: Any = None,
        *,
        elements: int | None = None,
        overrides: Any = None,
        ccl: Any = None,
        dtype: str = "f16",
        **more: Any,
    ) -> Report:
        __tracebackhide__ = True
        import ahbm
        from ahbm.base.collectives import COLLECTIVES
        from ahbm.base.elements import element
        from ahbm.config.ccl import ENV
        from ahbm.core.emulator import Emulator
        from ahbm.errors import AhbmError

        if topology is None:
            topology = chosen.get("topology")
        if ccl is None and not os.environ.get(ENV) and not Path("ccl.yaml").exists() and started.exists():
            ccl = started
        emulator = Emulator.load(topology, ccl, {**chosen.get("overrides", {}), **(overrides or {})})
        if collective is None:
            collective = emulator.algorithm(algorithm).collectives[0] if algorithm else "all_reduce"
        if elements is not None:
            ranks = emulator.settings(algorithm).world_size or emulator.world_size
            chunks = COLLECTIVES[collective].chunks(ranks) if collective in COLLECTIVES else 1
            more["size"] = elements * chunks * element(dtype).storage.itemsize
        try:
            return ahbm.run(collective, algorithm, dtype=dtype, check=True, emulator=emulator, **more)
        except AhbmError as error:
            # A test that fails shows its own line and the kernel's, which the error names: none of this package.
            raise error.with_traceback(None)  # noqa: B904

    return run
