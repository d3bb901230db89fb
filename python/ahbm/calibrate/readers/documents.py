"""The JSON of nccl-tests, of rccl-tests and of `ahbm bench`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ahbm.calibrate.readers import rccl
from ahbm.calibrate.readers.size import MOST_ROWS, PROGRAMS, WHAT, Size, Way, of_cpu, refused


def printed(text: str) -> str:
    """What a program printed, where each line of a text is an object that has a line of it as `log` (Docker's
    json-file); else the text."""
    if not re.match(r"\s*\{\s*\"log\"\s*:", text):
        return text
    lines = []
    for line in text.split("\n"):
        try:
            found = json.loads(line) if line.strip() else {"log": ""}
        except (ValueError, RecursionError):
            return text
        if not isinstance(found, dict) or not isinstance(found.get("log"), str):
            return text
        lines.append(found["log"])
    return "".join(lines)


def sizes(text: str, origin: str, said: dict[str, str]) -> Iterator[Size]:
    """`-J` of nccl-tests, `-Z json` of rccl-tests, and `ahbm bench --json`."""
    try:
        data, lines = _parsed(text)
    except (ValueError, RecursionError) as error:
        raise refused("AHBM-F210", f"it is no JSON: {error}", origin) from error
    if any(isinstance(each, dict) and "results" in each for _, each in lines):
        raise refused("AHBM-F212", f"{len(lines)} documents one after the other", origin, "a file for each run")
    if lines:
        yield from rccl.results(lines, origin, said)
        return
    if isinstance(data, list):
        data = {"results": data}
    results = data.get("results")
    if not isinstance(results, list) or len(results) > MOST_ROWS:
        raise refused("AHBM-F210", f"JSON without a list of up to {MOST_ROWS} results", origin, WHAT)
    placed = [(f"result {number}", each) for number, each in enumerate(results, 1)]
    if results and isinstance(results[0], dict) and "inPlace" in results[0]:
        yield from rccl.results(placed, origin, said)
        return
    config = data.get("config")
    found: dict[str, Any] = dict(config) if isinstance(config, dict) else {}
    program = " ".join(map(str, data["args"][:64])) if isinstance(data.get("args"), list) else ""
    for name, op in PROGRAMS.items():
        if re.search(rf"\b{name}\b", f"{program} {str(data.get('program', ''))[:200]}"):
            said["op"] = op
    if isinstance(found.get("collective"), str):
        said["op"] = found["collective"]
    if isinstance(nodes := found.get("nodes"), int):
        said["nodes"] = str(nodes)
    devices = data.get("ranks", data.get("devices", found.get("devices")))
    if isinstance(devices, list) and devices:
        _devices([each if isinstance(each, dict) else {} for each in devices], found, said)
    for place, each in placed:
        if not isinstance(each, dict) or "error" in each:
            continue
        report = each.get("report")
        if isinstance(report, dict) and isinstance(report.get("ranks"), int):
            said["ranks"] = str(report["ranks"])
        ways = [way for name in ("out_of_place", "in_place") if isinstance(way := each.get(name), dict)]
        if any("cpu_time" in way for way in ways):
            raise of_cpu(origin, place)
        times = [Way(way["time"], way.get("nwrong")) for way in ways if way.get("time") not in (None, "N/A")]
        of = " ".join(str(each[key])[:40] for key in ("type", "redop", "root") if each.get(key) is not None)
        yield Size(each.get("size"), tuple(times), place, of)


def _parsed(text: str) -> tuple[Any, list[tuple[int, Any]]]:
    """A document, or else those on the lines of a file, of which rccl-tests writes one for each result."""
    try:
        return json.loads(text), []
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
    return None, [(at, json.loads(line)) for at, line in enumerate(text.split("\n"), 1) if line.strip()]


def _devices(devices: list[dict[str, Any]], config: Mapping[str, Any], said: dict[str, str]) -> None:
    """What the list of devices says: there is one of each rank, or the first one of each process."""
    each = [config.get(name) for name in ("nthreads", "ngpus")]
    threads, gpus = (number if isinstance(number, int) else 1 for number in each)
    listed = len(devices) > 1 and [device.get("rank") for device in devices] == [*range(len(devices))]
    said["ranks"] = str(len(devices) * (1 if listed else threads * gpus))
    said["nodes"] = str(len({str(device.get("host", device.get("hostname", ""))) for device in devices}))
    names = (devices[0].get(key) for key in ("device_name", "device_info", "name"))
    said["accelerator"] = next((str(name) for name in names if name), "")
