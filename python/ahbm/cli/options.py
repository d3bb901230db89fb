"""Options that several commands share, and what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ahbm.errors import ConfigError

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the topology or of ccl.yaml by its dotted path; repeatable.",
    ),
]
Topology = Annotated[
    str | None,
    typer.Option("-t", "--topology", help="Packaged topology, path of a topology.yaml, or the name of a SIP network."),
]
Ccl = Annotated[Path | None, typer.Option("--ccl", help="Path of a ccl.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
Dtype = Annotated[str, typer.Option("-d", "--dtype", help="f16 bf16 f32 f64 i8..i64 u8..u64, or nccl-tests' names.")]
Op = Annotated[str, typer.Option("-o", "--op", help="sum prod min max avg.")]
Root = Annotated[int, typer.Option("-r", "--root", help="Root rank of rooted collectives.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Traces: leave out dependencies on nodes that do not exist.")]
Check = Annotated[
    str | None,
    typer.Option("--check", help="all, or some of race,uninit,leftover,deadlock,result,divergence."),
]
Limits = Annotated[
    list[str] | None, typer.Option("--limit", metavar="NAME=N", help="Files: raise a limit; repeatable.")
]
Quirks = Annotated[bool, typer.Option("--quirks", help="Files: follow the known defects of a format's runtime.")]
NoData = Annotated[bool, typer.Option("--no-data", help="Simulate the time only.")]


def parse_overrides(settings: list[str] | None) -> dict[str, object]:
    found: dict[str, object] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigError("AHBM-C142", f"--set {setting}: no KEY=VALUE", hint="--set system.sips.count=4")
        found[key] = value
    return found


def parse_slots(text: str | None) -> int | None:
    """Depth of a plan's queues; None is no bound."""
    from ahbm.config import SLOTS

    if text is None or text == "inf":
        return SLOTS if text is None else None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**32 - 1:
        raise ConfigError("AHBM-C146", f"--slots {text}: no depth of a queue", hint="--slots 2, or --slots inf")
    return int(text)
