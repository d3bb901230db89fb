"""PyTorch's own DistributedTest against backend "ahbm": the tests of the installed wheel that need no GPU.

    python tests/torch_acceptance/run.py [--quick] [--markdown] [NAME...]

Three processes per test, bytes moved by the emulator. Prints one line per test, with the reason where one was skipped,
and fails when a test fails or fewer pass than expected. `--quick` runs a subset, `--markdown` prints a table.
BACKEND=gloo runs the same tests on gloo, WORLD_SIZE=8 those that ask for eight ranks as well.

Some tests are for a backend's name alone ("only gloo", "only MPI"). Those that move tensors of the host are run
on any backend: the condition is lifted, the test is as it is.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
import socket
import sys
import tempfile
import textwrap
import time
import unittest
from collections.abc import Callable
from typing import Any

os.environ.update(OMP_NUM_THREADS="1")
os.environ.setdefault("BACKEND", "ahbm")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
with socket.create_server(("127.0.0.1", 0)) as free:
    os.environ.setdefault("MASTER_PORT", str(free.getsockname()[1]))

import torch
from torch.testing._internal.common_distributed import DistTestCases

import ahbm.torch

# The suite's own list of what a backend can do, to be told about this one before the tests are defined.
for feature in ("ddp", "subgroup", "plugin"):
    DistTestCases.backend_feature[feature].add("ahbm")

from torch.testing._internal.distributed import distributed_test as suite

EXPECTED = 95
"""Tests that must pass at three ranks."""
LIFTED = re.compile(
    r"requires backend \w+ to be one of \{'gloo'\}|^Only gloo backend supports timeouts$"
    r"|^GLOO Batch Send Recv CPU$|^Only MPI supports (CPU )?all_to_all(_single)?$"
    r"|^Only Gloo backend supports sparse all reduce$"
)
"""Reasons to skip that are no more than the name of a backend."""

NEEDS_GPU = re.compile(
    r"skip_if_no_gpu|skip_if_lt_x_gpu|skip_if_odd|require_n_gpu|require_exact_n_gpu|requires_ddp|nccl_version|!= .nccl"
    r"|no_cuda|TEST_CUDA|backend_feature\[.(gpu|cuda).\]|[Oo]nly N(ccl|CCL)|not in [(\[].nccl|requires_(nccl|gpu|acc)"
)
"""In a test's decorators."""

HOST = ("test_all_gather_object_default_pg", "test_all_gather_object_subgroup")
"""Tests whose decorators ask for a backend of GPUs, gloo among them, and which gather objects of the host."""

QUICK = (
    "test_all_gather",
    "test_all_reduce_full_group_max",
    "test_all_reduce_sum",
    "test_barrier_full_group",
    "test_broadcast_full_group",
    "test_DistributedDataParallelCPU",
    "test_gather",
    "test_irecv",
    "test_reduce_sum",
    "test_scatter",
    "test_send_recv_any_source",
)


class Forked(unittest.TestCase):
    """Ranks forked from here."""

    _start_processes: Callable[[object], None]

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()


Suite: Any = type("Suite", (Forked, suite.TestDistBackend, suite.DistributedTest._DistTestBase), {})


for _test in vars(suite.DistributedTest._DistTestBase).values():
    if getattr(_test, "__unittest_skip__", False) and (
        LIFTED.search(_test.__unittest_skip_why__) or _test.__name__ in HOST
    ):
        _test.__unittest_skip__ = False


def names() -> list[str]:
    """The tests that need no GPU, in the order of the suite."""
    source = textwrap.dedent(inspect.getsource(suite.DistributedTest._DistTestBase))
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    tests = [node for node in body.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [
        test.name
        for test in tests
        if not re.search("cuda|nccl|gpu", test.name)
        and (
            test.name in HOST
            or not NEEDS_GPU.search(" ".join(ast.unparse(decorator) for decorator in test.decorator_list))
        )
    ]


def run(name: str) -> tuple[str, str]:
    """("pass" | "skip" | "fail", reason)."""
    result = unittest.TestResult()
    Suite(name).run(result)
    if result.failures or result.errors:
        return "fail", (result.failures + result.errors)[0][1].strip()
    return ("skip", result.skipped[0][1]) if result.skipped else ("pass", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    chosen = asked.names or (QUICK if asked.quick else names())
    outcomes = {}
    for name in chosen:
        began = time.monotonic()
        outcomes[name] = run(name)
        verdict, reason = outcomes[name]
        line = reason.splitlines()[-1] if reason else ""
        if not asked.markdown:
            print(f"{verdict}  {name}  {time.monotonic() - began:.1f} s  {line}", flush=True)
    count = {verdict: sum(v == verdict for v, _ in outcomes.values()) for verdict in ("pass", "fail", "skip")}
    if asked.markdown:
        for name, (verdict, reason) in outcomes.items():
            print(f"| `{name}` | {verdict} | {reason.splitlines()[-1] if reason else ''} |")
    for name, (verdict, reason) in outcomes.items():
        if verdict == "fail":
            print(f"\n{name}\n{reason}")
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped, torch {torch.__version__}")
    enough = count["pass"] >= (EXPECTED if chosen == names() else len(QUICK) if asked.quick else 0)
    return int(count["fail"] > 0 or not enough)


if __name__ == "__main__":
    ahbm.torch.register()
    sys.exit(main())
