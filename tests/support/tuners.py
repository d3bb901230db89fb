"""What libraries do with their tuning files, written down a second time and naively: text in, choice out.

Each function takes the text of a file and a call, and gives the chosen names, or None where the library decides.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

Chosen = tuple[str, str | None, int | None] | None
"""Algorithm, protocol, channels."""


@dataclass(frozen=True)
class Called:
    """A call by this project's name of its collective; bytes of one rank's array."""

    collective: str
    nbytes: int
    ranks: int
    nodes: int = 1


_json = lru_cache(4)(json.loads)
_yaml = lru_cache(4)(yaml.safe_load)


def nccl(text: str, call: Called) -> Chosen:
    """The example plugin, line by line; it is called once per collective, with buffers that are not registered."""
    name = call.collective.replace("_", "")
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        kind, least, most, algorithm, protocol, channels, nodes, ranks, *rest = line.split(",")
        pipe_ops, registered = [*map(int, rest), -1, -1][:2]
        if (
            kind == name
            and int(least) <= call.nbytes <= int(most)
            and int(nodes) in (-1, call.nodes)
            and int(ranks) in (-1, call.ranks)
            and pipe_ops in (-1, 1)
            and registered in (-1, 0)
        ):
            return algorithm, protocol, 1 if int(channels) == -1 else int(channels)
    return None


def _inside(text: str, number: int) -> bool:
    if text == "*":
        return True
    if text[0] not in "[(":
        return number == int(text)
    least, most = text[1:-1].split(",")
    above = least == "" or (number >= int(least) if text[0] == "[" else number > int(least))
    below = most == "" or (number <= int(most) if text[-1] == "]" else number < int(most))
    return above and below


def _ncclx(fields: list[str], call: Called) -> bool:
    kind, share, nodes, local = fields
    return (
        kind == call.collective.replace("_", "")
        and _inside(share, call.nbytes // call.ranks)
        and _inside(nodes, call.nodes)
        and _inside(local, call.ranks // call.nodes)
    )


def _kept(channels: int) -> int | None:
    return None if channels == -1 else channels


@lru_cache(4)
def _fields(text: str) -> list[list[str]]:
    rows = []
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        # Commas of intervals are those after which a bracket is open.
        fields, depth = [""], 0
        for letter in line:
            depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(letter, 0)
            if letter == "," and depth == 0:
                fields.append("")
            else:
                fields[-1] += letter
        rows.append(fields)
    return rows


def ncclx_csv(text: str, call: Called) -> Chosen:
    for fields in _fields(text):
        if _ncclx([fields[0], fields[1], fields[5], fields[6]], call):
            return fields[2], fields[3], _kept(int(fields[4]))
    return None


def ncclx_json(text: str, call: Called) -> Chosen:
    for rule in _json(text)["rules"]:
        wanted, given = rule["filter"], rule["config"]
        names = ("collective", "bytesPerRank", "nNodes", "nLocalRanks")
        if _ncclx([str(wanted.get(name, "*")) for name in names], call):
            return given["algorithm"], given["protocol"], _kept(given.get("channels", -1))
    return None


def mscclpp(text: str, call: Called) -> Chosen:
    """The entry at or below the size in the profile that says most about the machine."""
    fitting = [p for p in _json(text)["profiles"] if p.get("scale") in (None, call.ranks)]
    for profile in sorted(fitting, key=lambda p: -("scale" in p)):
        entries: list[dict[str, Any]] = profile["collectives"].get(call.collective.replace("_", ""), [])
        below = [entry for entry in entries if entry["message_size"] <= call.nbytes] or entries[:1]
        if below:
            entry = max(below, key=lambda entry: entry["message_size"]) if len(below) > 1 else below[0]
            return entry["algorithm"], None, entry.get("nblocks")
    return None


def mscclpp_nearest(text: str, call: Called) -> Chosen:
    """A reader that takes the nearest size instead."""
    for profile in _json(text)["profiles"]:
        entries = profile["collectives"].get(call.collective.replace("_", ""), [])
        if profile.get("scale") == call.ranks and entries:
            entry = min(entries, key=lambda entry: abs(entry["message_size"] - call.nbytes))
            return entry["algorithm"], None, entry.get("nblocks")
    return None


@lru_cache(4)
def _tokens(text: str) -> list[tuple[str, tuple[float, float], tuple[float, float], float, str]]:
    found = []
    (line,) = [line for line in text.splitlines() if line.startswith("UCC_TL_UCP_TUNE=")]
    for token in line.partition("=")[2].split("#"):
        kind, sizes, *others, algorithm = token.split(":")
        least, most = (float(end) for end in sizes.split("-"))
        low, high = next((part[1:-1].split("-") for part in others if part.startswith("[")), ["0", "inf"])
        score = float(next(part for part in others if not part.startswith("[")))
        found.append((kind, (least, most), (float(low), float(high)), score, algorithm.removeprefix("@")))
    return found


def ucc(text: str, call: Called) -> Chosen:
    """The highest score among the tokens that fit; at a border that two share, the range that begins there."""
    kinds = {"all_reduce": "allreduce", "all_gather": "allgather", "broadcast": "bcast", "all_to_all": "alltoall"}
    size = call.nbytes // call.ranks if call.collective == "reduce_scatter" else call.nbytes
    found = [
        (score, least, algorithm)
        for kind, (least, most), (low, high), score, algorithm in _tokens(text)
        if kind == kinds.get(call.collective, call.collective) and least <= size <= most and low <= call.ranks <= high
    ]
    return (max(found)[2], None, None) if found else None


def ccl(text: str, call: Called) -> Chosen:
    for rule in _yaml(text)["collectives"].get(call.collective, []):
        if call.nbytes <= rule.get("max_bytes", call.nbytes) and call.ranks == rule.get("ranks", call.ranks):
            return rule["algorithm"], None, None
    return None


READERS = {
    "nccl": nccl,
    "ncclx-csv": ncclx_csv,
    "ncclx-json": ncclx_json,
    "mscclpp": mscclpp,
    "ucc": ucc,
    "ccl": ccl,
}
