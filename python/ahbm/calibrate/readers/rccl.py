"""The JSON and CSV of rccl-tests."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ahbm.calibrate.readers.size import WHAT, Size, Way, check_line, refused


def is_csv(text: str) -> bool:
    """Whether the first line of a text names the columns of `-Z csv`."""
    names = {part.strip(" #").lower() for part in text[:4096].split("\n", 1)[0].split(",")}
    return {"size", "inplace", "time"} <= names


def rows(text: str, origin: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of `-Z csv` of rccl-tests by the names of its header."""
    names: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        check_line(line, origin, number)
        if not line.strip():
            continue
        parts = [part.strip() for part in next(csv.reader([line], skipinitialspace=True))]
        if not names:
            names = parts
            continue
        # With MPI, the header lacks the second of what the rows have.
        short = names[1:2] == ["ranks"] and len(parts) == len(names) + 1
        row = [*names[:1], "nodes", *names[1:]] if short else names
        if len(parts) != len(row):
            raise refused("AHBM-F211", f"a row of {len(parts)} columns of {len(row)}", origin, line=number)
        yield number, dict(zip(row, parts, strict=True))


def results(results: Iterable[tuple[int | str, Any]], origin: str, said: dict[str, str]) -> Iterator[Size]:
    """The results of rccl-tests, one for each way of a size.

    Its `nodes` are groups of ranks that do not speak with each other, and its `ranksPerNode` the processes of one.
    """
    waiting: Size | None = None
    for place, each in results:
        if not isinstance(each, dict):
            raise refused("AHBM-F210", "it is no result of rccl-tests", origin, WHAT, place)
        known = {key.lower().lstrip("#"): value for key, value in each.items()}
        missing = [key for key in ("size", "inplace", "time") if key not in known]
        if missing:
            raise refused("AHBM-F210", f"a result without {', '.join(missing)}", origin, WHAT, place)
        one = {"op": known.get("name", known.get("collective")), "ranks": _ranks(known)}
        for key, value in one.items():
            if value is not None and said.setdefault(key, str(value)) != str(value):
                message = f"{key} {str(value)[:60]} after {said[key][:60]}: a file is one table"
                raise refused("AHBM-F212", message, origin, line=place)
        said["counts"] = "received"
        way = Way(known["time"], known.get("wrong"))
        if waiting is not None and waiting.bytes == known["size"] and len(waiting.ways) == 1:
            yield replace(waiting, ways=(*waiting.ways, way))
            waiting = None
        else:
            if waiting is not None:
                yield waiting
            waiting = Size(known["size"], (way,), place)
    if waiting is not None:
        yield waiting


def _ranks(known: Mapping[str, object]) -> int | None:
    """The ranks of a result of rccl-tests: GPUs of all processes of a group."""
    processes, gpus = known.get("rankspernode", 1), known.get("gpusperrank", known.get("gpus"))
    both = [int(str(number)) for number in (processes, gpus) if re.fullmatch(r"\d{1,9}", str(number))]
    return both[0] * both[1] if len(both) == 2 else None
