"""Errors of operations as torch's own: launchers and training loops catch `torch.distributed.DistBackendError`."""

from __future__ import annotations

import torch.distributed as dist

from ahbm.errors import DistributedError, RankError


class BackendError(DistributedError, dist.DistBackendError):
    """A DistributedError of a call to torch."""


class BackendRankError(RankError, dist.DistBackendError):
    """A RankError of a call to torch."""


class BackendTypeError(DistributedError, TypeError):
    """A call that a backend refuses with a TypeError."""


class BackendValueError(DistributedError, ValueError):
    """A call that a backend refuses with a ValueError."""


class BackendIndexError(DistributedError, IndexError):
    """A call that a backend refuses with an IndexError."""


class BackendMissingError(DistributedError, NotImplementedError):
    """A call that a backend does not have."""


_KINDS: dict[type[Exception], type[DistributedError]] = {
    TypeError: BackendTypeError,
    ValueError: BackendValueError,
    RuntimeError: DistributedError,
    IndexError: BackendIndexError,
    NotImplementedError: BackendMissingError,
    dist.DistBackendError: BackendError,
}


def refused(kind: type[Exception], code: str, message: str, hint: str) -> DistributedError:
    """The error of torch's type `kind` for what it refuses in these words."""
    return _KINDS[kind](code, message, hint=hint)


def as_torchs(error: DistributedError) -> DistributedError:
    """`error` with everything that it knows, as one of torch's as well."""
    kind = BackendRankError if isinstance(error, RankError) else BackendError
    same = kind.__new__(kind)
    same.args = error.args
    same.__dict__.update(error.__dict__)
    same.__cause__ = error.__cause__
    return same.with_traceback(error.__traceback__)
