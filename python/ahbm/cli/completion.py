"""The names that a shell may put in place of the beginning of one. A configuration that is broken has none."""

from __future__ import annotations

from collections.abc import Iterable


def collectives(incomplete: str) -> list[str]:
    """Collectives."""
    from ahbm.base.collectives import COLLECTIVES

    return _fitting(COLLECTIVES, incomplete)


def explainable(incomplete: str) -> list[str]:
    """Collectives, and error codes where one is begun."""
    from ahbm._core import codes

    known = [code for code, *_ in codes()] if incomplete.startswith("AHBM-") else []
    return [*collectives(incomplete), *_fitting(known, incomplete)]


def algorithms(incomplete: str) -> list[str]:
    """Algorithms of ccl.yaml, and the modules that come with the package."""
    from ahbm.config.ccl import CclConfig
    from ahbm.errors import AhbmError
    from ahbm.source.located import available

    try:
        return _fitting(sorted({*CclConfig.load().algorithms, *available()}), incomplete)
    except AhbmError:
        return []


def topologies(incomplete: str) -> list[str]:
    """Packaged topologies, and networks."""
    from ahbm.config.topology import DEFAULT, NETWORKS, names

    return _fitting([DEFAULT, *names(), *NETWORKS], incomplete)


def dtypes(incomplete: str) -> list[str]:
    """Element types, by our names and by those of nccl-tests."""
    from ahbm.base.elements import NCCL_TYPES

    return _fitting([*NCCL_TYPES, *NCCL_TYPES.values()], incomplete)


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
