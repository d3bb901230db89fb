# tests/test_my_allreduce.py
import pytest


@pytest.mark.ahbm_matrix(algorithm="my_allreduce", topologies=["ring_1d"], dtypes=["f16", "i32"], sizes=[1, 2, 4096])
def test_my_allreduce(case, run_collective):
    run_collective(**case)
