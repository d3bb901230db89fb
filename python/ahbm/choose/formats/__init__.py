"""The files by which libraries are told what to run: each read to `ahbm.choose.rules.Rules`, and written from them."""

from __future__ import annotations

from pathlib import Path

from ahbm.base.yaml_source import did_you_mean
from ahbm.choose.formats import ccl, msccl, mscclpp, nccl, nccl_env, nccl_sweep, ncclx, ucc
from ahbm.choose.formats.format import Format, Read, load
from ahbm.errors import FormatError

FORMATS = {
    format.name: format
    for format in (
        nccl.FORMAT,
        nccl_sweep.FORMAT,
        ncclx.CSV,
        ncclx.JSON,
        mscclpp.FORMAT,
        ucc.FORMAT,
        ccl.FORMAT,
    )
}
"""By name, in the order in which a text is offered to them."""
NAMES = (*FORMATS, nccl_env.NAME, msccl.NAME)


def read(path: str | Path, format: str | None = None) -> Read:
    """The rules in a file, or in a folder of MSCCL-IR files; without `format`, of the one that its content shows.

    Raises FormatError: AHBM-F101 for a file that cannot be read, F189 for an unknown format, F190 for a line that is no
    rule; BudgetError (AHBM-B214); and for MSCCL-IR what reading a plan raises.
    """
    path = Path(path)
    if format is not None and format not in NAMES:
        hint = did_you_mean(format, NAMES) or f"one of {', '.join(NAMES)}"
        raise FormatError("AHBM-F189", f"there is no format {format[:40]!r} of tuning files", hint=hint)
    if format == msccl.NAME or (format is None and path.is_dir()):
        return msccl.read(path)
    text = load(path)
    if format is None and text.lstrip().startswith("<"):
        return msccl.read(path)
    if format == nccl_env.NAME or (format is None and nccl_env.claims(text)):
        return nccl_env.read(text, str(path))
    return (FORMATS[format] if format is not None else claimed(text, path)).read(text, str(path))


def claimed(text: str, path: Path) -> Format:
    """The format of a text. Raises FormatError (AHBM-F189) where it is of none."""
    for format in FORMATS.values():
        if format.claims(text):
            return format
    hint = f"--format with one of {', '.join(NAMES)}"
    raise FormatError("AHBM-F189", f"{path} is no tuning file of a format that is known", hint=hint)
