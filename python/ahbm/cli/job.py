"""`ahbm job`: training jobs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.cli import completion
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Json, Place, output_option
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm._core import Workload


def _number(about: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="N", help=about)
    return option


@dataclass(frozen=True, kw_only=True)
class Model:
    """The numbers of a transformer, in place of those of a manifest."""

    layers: Annotated[int | None, _number("Layers.")] = None
    hidden: Annotated[int | None, _number("Width of the residual stream.")] = None
    heads: Annotated[int | None, _number("Attention heads; else one for every 128 of --hidden.")] = None
    kv_heads: Annotated[int | None, _number("Heads of keys and values; else as many as --heads.")] = None
    gated: Annotated[bool | None, typer.Option("--gated", help="The feed-forward part has a gate (SwiGLU).")] = None
    ffn: Annotated[int | None, _number("Width of the feed-forward part; else 4 times --hidden.")] = None
    sequence: Annotated[int | None, _number("Tokens of a sequence; else 2048.")] = None
    vocabulary: Annotated[int | None, _number("Tokens that exist; else 50304.")] = None
    micro_batch: Annotated[int | None, _number("Sequences of a micro-batch; else 1.")] = None
    micro_batches: Annotated[int | None, _number("Micro-batches of a step; else 8.")] = None
    dtype: Annotated[
        str | None,
        typer.Option(
            "-d", "--dtype", autocompletion=completion.dtypes, help="Of parameters and activations; else bf16."
        ),
    ] = None
    arithmetic: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Products are computed in f16 (default), f32, tf32, f64 or f8.")
    ] = None
    tp: Annotated[int | None, _number("Tensor-parallel ranks.")] = None
    cp: Annotated[int | None, _number("Context-parallel ranks, of which each has a part of a sequence.")] = None
    pp: Annotated[int | None, _number("Pipeline stages.")] = None
    virtual_stages: Annotated[int | None, _number("Chunks of layers of a pipeline rank (interleaved 1F1B).")] = None
    end_layers: Annotated[
        int | None, _number("Layers that embedding and head count as; stages may be uneven then.")
    ] = None
    dp: Annotated[int | None, _number("Data-parallel ranks.")] = None
    ep: Annotated[int | None, _number("Expert-parallel ranks, out of the data-parallel ones.")] = None
    experts: Annotated[int | None, _number("Experts of a layer.")] = None
    top_k: Annotated[int | None, _number("Experts that a token visits; else 2.")] = None
    skew: Annotated[
        float | None,
        typer.Option(metavar="X", help="The busiest expert-parallel rank gets X times an even share of the tokens."),
    ] = None
    schedule: Annotated[str | None, typer.Option(help="1f1b (default), gpipe, zb1, zbv or dualpipev.")] = None
    zero: Annotated[
        int | None, _number("Data-parallel ranks shard: 1 optimizer states, 2 also gradients, 3 also parameters.")
    ] = None
    shard: Annotated[int | None, _number("Data-parallel ranks that shard among themselves (HSDP); else all.")] = None
    prefetch: Annotated[
        bool | None,
        typer.Option(
            "--prefetch", help="Updated parameters are gathered while the next step's first micro-batch runs."
        ),
    ] = None
    sequence_parallel: Annotated[
        bool | None, typer.Option("--sequence-parallel", help="Norms work on parts of the sequence.")
    ] = None
    recompute: Annotated[
        bool | None, typer.Option("--recompute", help="Layers are computed again in the backward pass.")
    ] = None
    recompute_layers: Annotated[int | None, _number("So many layers of a rank are computed again; else all.")] = None
    materialized: Annotated[
        bool | None, typer.Option("--materialized", help="Attention without a fused kernel: its scores lie in memory.")
    ] = None
    unfused: Annotated[
        bool | None, typer.Option("--unfused", help="Activations and residuals are kernels of their own.")
    ] = None


@app.command(
    page="generate",
    examples=(
        "ahbm job new --layers 4 --hidden 1024 --tp 2 --dp 2 -o step",
        "ahbm job new --layers 8 --hidden 1024 --pp 2 --dp 4 --fsdp -o sharded",
        "ahbm job new --like llama3-8b --dp 8 --fsdp --micro-batches 1 -o step",
        "ahbm job run --like llama3-8b --tp 8 --dp 64 --zero 1 --micro-batches 2 -t h100_2_nodes",
    ),
)
@grouped
def job(
    action: Annotated[
        str,
        typer.Argument(
            help="new: write a training step of a transformer as a Chakra trace; run: replay it, unwritten."
        ),
    ],
    manifest: Annotated[
        Path | None, typer.Argument(help="A YAML file with the numbers; options replace them.", show_default=False)
    ] = None,
    *,
    model: Model,
    place: Place,
    model_name: Annotated[
        str | None, typer.Option("--like", metavar="MODEL", help="A public model, such as llama3-405b.")
    ] = None,
    fsdp: Annotated[bool, typer.Option("--fsdp", help="As --zero 3.")] = False,
    selective: Annotated[
        bool, typer.Option("--selective", help="What lies between the products of attention is computed again.")
    ] = False,
    bucket: Annotated[
        str | None, typer.Option("--bucket", metavar="SIZE", help="Gradients that are reduced together; else 25M.")
    ] = None,
    output: Annotated[Path | None, output_option("Prefix of the trace: PREFIX.<rank>.et.")] = None,
    as_json: Json = False,
) -> None:
    """Write a training job that nobody has recorded: a step of a transformer of any size, cut in any way."""
    from ahbm.base.elements import parse_dtype
    from ahbm.base.sizes import parse_size
    from ahbm.job.models import like
    from ahbm.job.transformer import read_manifest, transformer_of

    if action not in ("new", "run"):
        hint = "ahbm job new, ahbm job run"
        raise ConfigError("AHBM-C146", f"ahbm job {action[:40]}: there is no such action", hint=hint)
    if action == "run" and output is not None:
        raise ConfigError("AHBM-C146", f"ahbm job run writes no {str(output)[:40]}", hint="ahbm job new -o step")
    given = {"-t": place.topology, "--ranks": place.ranks, "--set": place.settings}
    if action == "new" and any(given.values()):
        names = ", ".join(name for name, value in given.items() if value)
        raise ConfigError("AHBM-C146", f"ahbm job new runs on no machine: {names}", hint="ahbm job run")
    if fsdp and model.zero not in (None, 3):
        raise ConfigError("AHBM-C146", f"--fsdp is --zero 3, and --zero {model.zero} is given")
    values = {} if model_name is None else like(model_name)
    values |= read_manifest(manifest) if manifest is not None else {}
    values |= {name: value for name, value in asdict(model).items() if value is not None}
    if model.dtype is not None:
        values["dtype"] = parse_dtype(model.dtype)
    if fsdp:
        values["zero"] = 3
    if selective:
        if model.recompute:
            raise ConfigError("AHBM-C146", "--selective is a part of --recompute: only one can be meant")
        values["recompute"] = "selective"
    if bucket is not None:
        values["bucket_bytes"] = parse_size(bucket)
    step = transformer_of(values)
    if action == "run":
        return _run(step.workload(model_name or "step"), place, as_json)
    if output is None:
        raise ConfigError("AHBM-C146", "ahbm job new writes a trace", hint="name its prefix: -o step")
    workload = step.workload(output.name.removesuffix(".et").encode(errors="replace").decode())
    files = workload.write(output)
    if as_json:
        summary = {"ranks": workload.ranks, "nodes": workload.nodes, "graphs": workload.graphs}
        typer.echo(json.dumps({**summary, "files": [str(path) for path in files]}))
        return
    total = sum(path.stat().st_size for path in files)
    typer.echo(
        f"{workload.name}: {workload.ranks} ranks, {workload.nodes} nodes, {workload.graphs} different graphs, "
        f"{len(files)} files of {total} bytes"
    )


def _run(workload: Workload, place: Place, as_json: bool) -> None:
    """Replays a step on the machine with as many SIPs as it has ranks, unless `place` says how many."""
    from ahbm.job.open import open_

    if place.ranks is None:
        place = replace(place, ranks=str(workload.ranks))
    report = open_(workload, topology=place.topology, overrides=place.overrides).run()
    typer.echo(json.dumps(report.to_json()) if as_json else str(report))
