"""What is said where no candidate is left to choose from."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ahbm.errors import AhbmError, ConfigError, DataError


def none_left(
    of: str, candidates: Iterable[str], wrong: Collection[str], at: str, *, why: str = "", hint: str | None = None
) -> AhbmError:
    """The error for `candidates` of which none is left, such as `of` the 3 candidates for all_reduce, `at` 64 bytes.

    wrong: those whose result is wrong; the others did not run. With any, a DataError (AHBM-V417) that names them, else
    a ConfigError (AHBM-C151). why: further words on the reasons.
    """
    more = f": {why}" if why else ""
    if not wrong:
        return ConfigError("AHBM-C151", f"{of}, none runs {at}{more}", hint=hint)
    names = list(candidates)
    rest = [name for name in names if name not in wrong]
    message = f"the results of all are wrong {at}" if not rest else f"none gives a right result {at}"
    named = f" ({', '.join(name for name in names if name in wrong)}"
    named += f"; {', '.join(rest)} did not run)" if rest else ")"
    return DataError("AHBM-V417", f"{of}, {message}{named}{more}", hint=hint)
