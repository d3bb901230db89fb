"""One training step of a transformer, made a job from a few numbers (`ahbm job new`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ahbm._core import Workload
from ahbm.base.elements import ELEMENTS
from ahbm.base.load import load_text
from ahbm.base.yaml_source import did_you_mean, parse
from ahbm.errors import ConfigError, Site

SCHEDULES = ("1f1b", "gpipe", "zb1", "zbv", "dualpipev")
"""Orders of micro-batches in a pipeline stage."""
V_SCHEDULES = ("zbv", "dualpipev")
"""Those of which the second of two chunks goes back through the ranks."""
SPLIT_SCHEDULES = ("zb1", *V_SCHEDULES)
"""Those in which gradients of weights may be computed at any time: no stage waits for them."""
RECOMPUTE = ("none", "selective", "full")
"""What the backward pass computes again: nothing, what lies between the products of attention, or whole layers."""
ARITHMETIC = ("f16", "f32", "tf32", "f64", "f8")
"""Types that products are computed in."""


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A transformer, how a step of its training is cut, and how its state is sharded.

    docs/generate.md has the formulae. Ranks are numbered as Megatron-LM numbers them: rank = t + tp * (d + dp * p).
    """

    layers: int
    """Layers of all pipeline stages."""
    hidden: int
    """Width of the residual stream."""
    heads: int | None = None
    """Attention heads; without it, one for every 128 of `hidden`."""
    kv_heads: int | None = None
    """Heads of keys and values (grouped-query attention); without it, as many as `heads`."""
    ffn: int | None = None
    """Width between the two products of the feed-forward part, of one expert; without it, 4 * `hidden`."""
    gated: bool = False
    """The first product of the feed-forward part has twice the columns: one half is the gate of the other (SwiGLU)."""
    sequence: int = 2048
    """Tokens of a sequence."""
    vocabulary: int = 50304
    """Tokens that exist."""
    micro_batch: int = 1
    """Sequences of a micro-batch."""
    micro_batches: int = 8
    """Micro-batches of a step, for each data-parallel rank."""
    dtype: str = "bf16"
    """Of parameters, activations and gradients."""
    arithmetic: str = "f16"
    """Type that products are computed in: "f16" (bf16 too), "f32", "tf32", "f64" or "f8"."""
    tp: int = 1
    """Tensor-parallel ranks."""
    cp: int = 1
    """Context-parallel ranks: each has a part of every sequence, keys and values go around them in a ring."""
    pp: int = 1
    """Pipeline stages."""
    virtual_stages: int = 1
    """Chunks of layers of a pipeline rank, which stand apart (interleaved 1F1B)."""
    end_layers: int = 0
    """Layers that the embedding, and the head, count as where layers are divided; above 0 stages may be uneven."""
    dp: int = 1
    """Data-parallel ranks."""
    ep: int = 1
    """Expert-parallel ranks, out of the data-parallel ones."""
    experts: int = 0
    """Experts of a layer; 0 for a dense model."""
    top_k: int = 2
    """Experts that a token visits."""
    skew: float = 1.0
    """How many times an even share of the tokens the first of the expert-parallel ranks gets, to hundredths; the others
    share the rest. From 1 to `ep`."""
    schedule: str = "1f1b"
    """Order of micro-batches in a stage: "1f1b", "gpipe", "zb1" (gradients of weights fill the bubble), "zbv" (that,
    and the second of two chunks goes back through the ranks) or "dualpipev" (that V, both ways side by side)."""
    zero: int = 0
    """What data-parallel ranks shard: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters (FSDP)."""
    shard: int = 0
    """Data-parallel ranks that shard among themselves (hybrid sharding, HSDP): others have the same shards, and
    gradients are added over them; 0 for all."""
    prefetch: bool = False
    """Parameters that an optimizer of shards has updated are gathered while the first micro-batch of the next step
    computes (--overlap-param-gather of Megatron-LM), and not behind the optimizer; with `zero` of 1 or 2."""
    sequence_parallel: bool = False
    """Norms work on parts of the sequence: all_gather and reduce_scatter take the place of all_reduce."""
    recompute: bool | str = False
    """What the backward pass computes again: "none" (False), "selective", what lies between the products of attention,
    or "full" (True), whole layers."""
    recompute_layers: int = 0
    """So many layers of a rank are computed again, the first ones; 0 for all."""
    materialized: bool = False
    """The scores of attention lie in memory: products, softmax and dropout are kernels of their own."""
    unfused: bool = False
    """Activations, and residuals with dropout, are kernels of their own; else norms and products contain them."""
    bucket_bytes: int = 25 << 20
    """Gradients that are reduced together, at least; where parameters are sharded, it is a layer's."""

    def workload(self, name: str = "step", *, thin: bool = False) -> Workload:
        """The step as a job, which `.write(prefix)` makes a Chakra trace. thin: one of the ranks that are copies of
        each other stands for all of them, as in a large job; no time is another.

        Raises ConfigError (AHBM-C157) for numbers that are out of range, do not divide each other as they must, or make
        too large a job.
        """
        sizes = asdict(self)
        dtype, schedule, arithmetic = sizes.pop("dtype"), sizes.pop("schedule"), sizes.pop("arithmetic")
        recompute, skew = sizes.pop("recompute"), sizes.pop("skew")
        if isinstance(skew, bool) or not isinstance(skew, int | float) or not 1 <= skew < 1 << 16:
            raise ConfigError("AHBM-C157", f"skew is {str(skew)[:40]!r}, not a number from 1 to ep")
        if isinstance(recompute, bool):
            recompute = "full" if recompute else "none"
        for key, value in sizes.items():
            flag = isinstance(getattr(type(self), key, None), bool)
            if value is not None and (isinstance(value, bool) is not flag or not _is_count(value)):
                wanted = "true or false" if flag else "a whole number from 0"
                raise ConfigError("AHBM-C157", f"{key} is {str(value)[:40]!r}, not {wanted}")
        words = {"schedule": schedule, "recompute": recompute, "arithmetic": arithmetic}
        for (key, word), known in zip(words.items(), (SCHEDULES, RECOMPUTE, ARITHMETIC), strict=True):
            if word not in known:
                raise ConfigError("AHBM-C157", f"{key} is {str(word)[:40]!r}", hint=f"one of {', '.join(known)}")
        if not isinstance(dtype, str) or dtype not in ELEMENTS:
            hint = f"one of {', '.join(ELEMENTS)}"
            raise ConfigError("AHBM-C157", f"dtype is {str(dtype)[:40]!r}", hint=hint)
        if skew > max(self.ep, 1):
            raise ConfigError("AHBM-C157", f"skew is {skew}, not a number from 1 to ep, {self.ep}")
        if self.heads is None:
            sizes["heads"] = max(self.hidden // 128, 1)
        if self.kv_heads is None:
            sizes["kv_heads"] = sizes["heads"]
        if self.ffn is None:
            sizes["ffn"] = 4 * self.hidden
        if sizes["ffn"] >= 1 << 64:
            raise ConfigError("AHBM-C157", f"hidden is {self.hidden}: too wide")
        sizes["skew"] = round(100 * skew)
        return Workload.transformer(name, sizes, (dtype, ELEMENTS[dtype].storage.itemsize), words, thin=thin)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 64


def read_manifest(path: str | Path) -> dict[str, Any]:
    """The fields of a `Transformer` in a YAML file.

    Raises ConfigError: AHBM-C157 for a file that cannot be read and for keys that are no fields, C102 for what is no
    YAML mapping.
    """
    try:
        source = parse(load_text(path), str(path))
    except OSError as error:
        raise ConfigError("AHBM-C157", f"{path}: {error.strerror or error}") from None
    known = [field.name for field in fields(Transformer)]
    for key in source.values:
        if key not in known:
            hint = did_you_mean(key, known)
            site = Site("found here", source.place((key,)))
            raise ConfigError("AHBM-C157", f"{key} is no number of a transformer", sites=(site,), hint=hint)
    return source.values


def transformer_of(values: dict[str, Any]) -> Transformer:
    """A transformer of its fields. Raises ConfigError (AHBM-C157) where layers or hidden is missing."""
    missing = [name for name in ("layers", "hidden") if values.get(name) is None]
    if missing:
        raise ConfigError("AHBM-C157", f"{' and '.join(missing)} missing", hint="--layers 96 --hidden 12288")
    return Transformer(**values)
