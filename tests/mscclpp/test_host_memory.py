"""Buffers and their addresses, without torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ahbm import mscclpp
from ahbm.errors import ConfigError, DistributedError
from ahbm.mscclpp.memory import at


def test_addresses_are_those_of_live_buffers() -> None:
    buffer = mscclpp.RawGpuBuffer(64)
    assert (buffer.bytes(), buffer.nelems(), buffer.device_id()) == (64, 64, 0)
    start = buffer.data()
    tail, offset = at(start + 16, 48, "input buffer")
    tail[:] = 7
    assert offset == 16
    assert at(start, 64, "input buffer")[0].tolist() == [0] * 16 + [7] * 48
    for address, nbytes in ((start, 65), (start - 1, 2), (start + 64, 1), (0, 8)):
        with pytest.raises(DistributedError, match="AHBM-X130"):
            at(address, nbytes, "input buffer")
    for wrong in (-1, "x", 1.5, None):
        with pytest.raises(ConfigError, match="AHBM-C129"):
            at(wrong, 8, "input buffer")  # type: ignore[arg-type]
    del buffer
    with pytest.raises(DistributedError, match="AHBM-X130"):
        at(start, 64, "input buffer")


def test_an_array_in_a_buffer_tells_its_address() -> None:
    made = mscclpp.GpuBuffer((4, 8), dtype=np.int32)
    assert isinstance(made, np.ndarray) and made.shape == (4, 8) and not made.any()
    start, part = made.data.ptr, made[2:]
    assert at(start, made.nbytes, "input buffer")[1] == 0
    assert at(part.data.ptr, part.nbytes, "input buffer")[1] == 64
    made.set(np.arange(32).reshape(4, 8))
    assert at(part.data.ptr, 4, "input buffer")[0].view(np.int32).tolist() == [16]
    copy = made.get()
    assert type(copy) is np.ndarray and copy.tolist() == made.tolist() == np.arange(32).reshape(4, 8).tolist()
    with pytest.raises(DistributedError, match="AHBM-X130"):  # memory of its own
        at((made + 1).data.ptr, 128, "input buffer")
    del made
    at(start, 128, "input buffer")
    del part
    with pytest.raises(DistributedError, match="AHBM-X130"):
        at(start, 128, "input buffer")


def test_arrays_in_buffers_have_shapes_and_strides_as_of_numpy() -> None:
    assert mscclpp.GpuBuffer(3).dtype == np.float64
    assert mscclpp.GpuBuffer([2, 3], np.float16, order="F").strides == (2, 4)
    assert mscclpp.GpuBuffer((2, 2), "u1", strides=(2, 1)).strides == (2, 1)
    wrong: list[Any] = [0, -1, (4, 0), 1.5, "8", None, (2, None), 2**60]
    for shape in wrong:
        with pytest.raises((ConfigError, TypeError)):
            mscclpp.GpuBuffer(shape)
    with pytest.raises(TypeError):
        mscclpp.GpuBuffer(4, object)
    with pytest.raises(ValueError, match="strides"):
        mscclpp.GpuBuffer(4, np.uint8, strides=(64,))
    with pytest.raises(ValueError, match="shape"):
        mscclpp.GpuBuffer(4).set(np.ones(1))
