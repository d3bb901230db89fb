"""What ranks did, in few bytes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ahbm.ranks.history import ADVANCE, ARRIVE, WAIT, _Steps

STEP = st.tuples(st.sampled_from([ADVANCE, ARRIVE, WAIT]), st.integers(1, 2**62 - 1))


@given(st.lists(STEP, max_size=300))
def test_steps_come_back_as_they_were_taken(steps: list[tuple[int, int]]) -> None:
    packed, taken, calls = _Steps(), [], 0
    for kind, value in steps:
        if kind == WAIT and not calls:
            continue
        value = value if kind == ADVANCE else calls if kind == ARRIVE else value % calls
        calls += kind == ARRIVE
        packed.add(kind, value)
        taken.append((kind, value))
    operations = np.random.default_rng(len(steps)).integers(-1, 1000, calls)
    told = [(kind, value if kind == ADVANCE else int(operations[value])) for kind, value in taken]
    expected = [value << 2 | kind for kind, value in told if value >= 0]
    assert packed.resolved(operations).tolist() == expected
