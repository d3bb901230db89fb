"""Tests of the real torch.distributed; left out where torch is not installed."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")
