"""Errors of operations as torch's own: launchers and training loops catch `torch.distributed.DistBackendError`."""

from __future__ import annotations

import torch.distributed as dist

from ahbm.errors import DistributedError, RankError


class BackendError(DistributedError, dist.DistBackendError):
    """A DistributedError of a call to torch."""


class BackendRankError(RankError, dist.DistBackendError):
    """A RankError of a call to torch."""


def as_torchs(error: DistributedError) -> DistributedError:
    """`error` with everything that it knows, as one of torch's as well."""
    kind = BackendRankError if isinstance(error, RankError) else BackendError
    same = kind.__new__(kind)
    same.args = error.args
    same.__dict__.update(error.__dict__)
    same.__cause__ = error.__cause__
    return same.with_traceback(error.__traceback__)
