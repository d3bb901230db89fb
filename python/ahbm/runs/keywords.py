"""The keywords that all functions which prepare a run have in common, written out once: type, default, meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from ahbm.base.placement import DPPolicy
from ahbm.base.sizes import one_size
from ahbm.base.yaml_source import did_you_mean
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError
from ahbm.selectors.protocol import AnySelector

if TYPE_CHECKING:
    _Function = TypeVar("_Function", bound=Callable[..., Any])


class Arguments(TypedDict, total=False):
    """Keywords of `run` and of all functions that prepare a run, besides collective, algorithm and topology.

    `KEYWORDS` says what each of them means, and its default."""

    size: int | str | None
    bytes_per_rank: int | str | None
    bytes_per_pe: int | str | None
    dtype: str
    op: str
    root: int
    src: int
    dst: int
    placement: DPPolicy | None
    overrides: Mapping[str, object] | None
    ccl: str | Path | None
    selector: AnySelector
    emulator: Emulator | None


KEYWORDS: dict[str, tuple[object, str]] = {
    "size": (
        None,
        'that of one rank\'s array in the sense of nccl-tests, all chunks included: bytes, or a text such as "64K". A '
        "rest that does not divide into equal chunks is left out, as nccl-tests does; of less than that, one element "
        "per chunk runs. Without it and bytes_per_pe, n_elem of ccl.yaml elements per PE.",
    ),
    "bytes_per_rank": (None, "the same as size, which is its name everywhere."),
    "bytes_per_pe": (None, "the same for each PE that takes part."),
    "dtype": ("f16", "the kernels' name of an element type."),
    "op": ("sum", "the reduction operator."),
    "root": (0, "rank; of rooted collectives."),
    "src": (0, "rank; of send_recv."),
    "dst": (1, "rank; of send_recv."),
    "placement": (None, "None for host arrays; a policy for device tensors, one tile per cube."),
    "overrides": (None, "dotted path -> value for the keys of the topology and of ccl.yaml."),
    "ccl": (None, "path of a ccl.yaml; None looks for one."),
    "selector": (
        None,
        "chooses the algorithm by the request, among the configured ones; where it answers None, ccl.yaml does.",
    ),
    "emulator": (
        None,
        "use this one (and what it has captured) instead of making one from topology, ccl and overrides.",
    ),
}
"""Default and meaning of each of `Arguments`."""


def spelled(function: _Function) -> _Function:
    """`function`, whose signature and docstring have `KEYWORDS` in place of `**arguments`, and which hears of a size by
    one name."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    types = {name: getattr(kind, "__forward_arg__", kind) for name, kind in Arguments.__annotations__.items()}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, (default, _) in KEYWORDS.items()
    ]
    lines = [fill(f"{name}: {meaning}", 116, subsequent_indent="    ") for name, (_, meaning) in KEYWORDS.items()]

    def called(*args: Any, **given: Any) -> Any:
        return function(*args, **one_size(given))

    wraps(function)(called)
    called.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    called.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Keywords:", *lines])
    return cast("_Function", called)


def refuse_unknown(given: Mapping[str, object]) -> None:
    """Raises ConfigError (AHBM-C129) for a keyword that is not in `KEYWORDS`."""
    for name in given:
        if name not in KEYWORDS:
            raise ConfigError("AHBM-C129", f"there is no keyword {name!r}", hint=did_you_mean(name, KEYWORDS))
