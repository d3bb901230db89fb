"""The numbers of the transformer that a script trains, as `ahbm plan` takes them.

They are those of the largest module that was called: the stack of equal layers that has most of its parameters, the
shapes of their matrices, the embedding with the most rows, and what that was given. Names tell attention from
feed-forward; shapes tell the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_pre_hook

from ahbm.errors import ConfigError
from ahbm.torch.device.tf32 import in_tf32

HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "nhead", "heads")
TOP_K = ("num_experts_per_tok", "top_k", "topk", "num_experts_per_token", "k")
ATTENTION = re.compile(
    r"attn|attention|(^|[._])(q|k|v|o|qkv)(_?proj|_lin)?([._]|$)|(^|[._])w[qkvo]([._]|$)|in_proj|to_[qkv]"
)
"""Names of what is in the attention of a layer: those of torch, GPT-2, Llama, BERT, T5 and diffusers."""
DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float64: "f64"}
SHARE = 0.5
"""Of the parameters beside embeddings, what the stack of layers has at least."""


@dataclass
class Seen:
    """What was called while the script ran."""

    modules: dict[int, nn.Module] = field(default_factory=dict)
    embeddings: list[tuple[nn.Embedding, tuple[int, ...]]] = field(default_factory=list)
    """Each with the shape of what it was given first."""
    queries: tuple[int, ...] | None = None
    """Shape of the first queries that torch's attention was given."""
    lowered: torch.dtype | None = None
    """The type of autocast."""


@contextmanager
def watched() -> Iterator[Seen]:
    """Within the block, modules that are called, and torch's attention, are noted."""
    seen, attention = Seen(), functional.scaled_dot_product_attention

    def before(module: nn.Module, given: tuple[Any, ...]) -> None:
        if id(module) in seen.modules:
            return
        seen.modules[id(module)] = module
        if torch.is_autocast_enabled("cuda"):
            seen.lowered = torch.get_autocast_dtype("cuda")
        if isinstance(module, nn.Embedding) and given and isinstance(given[0], torch.Tensor):
            seen.embeddings.append((module, tuple(given[0].shape)))

    hook = register_module_forward_pre_hook(before)
    functional.scaled_dot_product_attention = _noting(attention, seen)
    try:
        yield seen
    finally:
        hook.remove()
        functional.scaled_dot_product_attention = attention


def _noting(function: Callable[..., Any], seen: Seen) -> Callable[..., Any]:
    @wraps(function)
    def attention(query: Any, *given: Any, **named: Any) -> Any:
        if seen.queries is None:
            seen.queries = tuple(query.shape)
        return function(query, *given, **named)

    return attention


def numbers(seen: Seen) -> dict[str, int | bool | str]:
    """Fields of a `Transformer`.

    Raises ConfigError (AHBM-C157) where what was called is no stack of equal layers between an embedding and a head,
    and names what is missing.
    """
    if not seen.embeddings:
        raise _no("no embedding was given tokens")
    embedding, given = max(seen.embeddings, key=lambda one: one[0].num_embeddings)
    hidden = embedding.embedding_dim
    whole = max(seen.modules.values(), key=_size)
    layers = _stack(whole, hidden)
    found: dict[str, int | bool | str] = {"layers": len(layers), "hidden": hidden}
    found |= _attention(layers[0], hidden, seen, whole)
    found |= _feed_forward(layers[0], hidden)
    found |= {"sequence": given[-1], "vocabulary": embedding.num_embeddings, "micro_batch": prod(given[:-1])}
    held = next(iter(layers[0].parameters())).dtype
    dtype = DTYPES.get(seen.lowered or held)
    if dtype is None:
        raise _no(f"its parameters are of {held}")
    found["dtype"] = dtype
    if dtype == "f32":
        found["arithmetic"] = "tf32" if in_tf32(convolves=False) else "f32"
    elif dtype == "f64":
        found["arithmetic"] = "f64"
    if seen.queries is None:
        found["materialized"] = True
    return found


def _no(why: str) -> ConfigError:
    hint = "give the numbers of the model in a YAML file: layers, hidden, heads, sequence, vocabulary"
    return ConfigError("AHBM-C157", f"the script trains no transformer that a plan divides: {why}", hint=hint)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _shapes(module: nn.Module) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, tuple(one.shape)) for name, one in module.named_parameters())


def _stack(whole: nn.Module, hidden: int) -> list[nn.Module]:
    """The layers: the children of containers that have the same parameters, where they have most of what there is."""
    groups: dict[tuple[tuple[str, tuple[int, ...]], ...], list[nn.Module]] = {}
    inside: set[int] = set()
    for module in whole.modules():
        if not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential) or id(module) in inside:
            continue
        alike = Counter(map(_shapes, module.children()))
        for child in module.children():
            shapes = _shapes(child)
            if shapes and (alike[shapes] > 1 or shapes in groups):
                groups.setdefault(shapes, []).append(child)
                inside |= {id(one) for one in child.modules()}
    rest = sum(one.numel() for one in _without_embeddings(whole, hidden))
    layers = max(groups.values(), key=lambda one: len(one) * _size(one[0]), default=[])
    share = len(layers) * _size(layers[0]) / max(rest, 1) if layers else 0
    if share < SHARE:
        kinds = f"the largest has {100 * share:.0f} % of the parameters" if layers else "there is none"
        raise _no(f"no stack of equal layers has most of its parameters ({kinds})")
    return layers


def _without_embeddings(whole: nn.Module, hidden: int) -> Iterator[nn.Parameter]:
    tables = {id(one.weight): one.num_embeddings for one in whole.modules() if isinstance(one, nn.Embedding)}
    heads = {(rows, hidden) for rows in tables.values()}
    for parameter in whole.parameters():
        if id(parameter) not in tables and tuple(parameter.shape) not in heads:
            yield parameter


def _matrices(layer: nn.Module, hidden: int, attention: bool) -> list[tuple[int, ...]]:
    """The shapes of the matrices of one half of a layer; of three dimensions where they are those of experts."""
    return [
        shape
        for name, shape in _shapes(layer)
        if len(shape) > 1 and bool(ATTENTION.search(name)) is attention and hidden in shape
    ]


def _attribute(modules: Sequence[nn.Module], names: Sequence[str]) -> int | None:
    """A number that a module, or its `config`, has under one of some names."""
    for module in modules:
        for holder in (module, getattr(module, "config", None)):
            for name in names:
                value = getattr(holder, name, None)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
    return None


def _attention(layer: nn.Module, hidden: int, seen: Seen, whole: nn.Module) -> dict[str, int | bool | str]:
    shapes = _matrices(layer, hidden, attention=True)
    if not shapes:
        raise _no("no parameter of a layer has a name of attention")
    if seen.queries is not None:
        # The last dimension is a head's in every layout.
        heads, left = divmod(hidden, seen.queries[-1])
        if left or not heads or prod(seen.queries[:-2]) % heads:
            raise _no(f"queries of {seen.queries} are not the {hidden} columns of the stream")
    else:
        heads = _attribute([*layer.modules(), whole, *whole.children()], HEADS) or 0
        if not heads or hidden % heads:
            raise _no(f"nothing says its heads: no module has {', '.join(HEADS[:4])}, ... that divides {hidden}")
    # Queries and what goes out have as many columns as the stream; the rest is of keys and values.
    columns = sum(prod(shape) for shape in shapes) // hidden
    of_keys = (columns - 2 * hidden) * heads
    kv_heads, left = divmod(of_keys, 2 * hidden)
    if left or not 0 < kv_heads <= heads or heads % kv_heads:
        raise _no(
            f"its attention has {columns} columns for {hidden} of the stream: no queries, keys, values and output"
        )
    return {"heads": heads, "kv_heads": kv_heads}


def _feed_forward(layer: nn.Module, hidden: int) -> dict[str, int | bool | str]:
    shapes = _matrices(layer, hidden, attention=False)
    stacked = [shape for shape in shapes if len(shape) == 3]
    lists = [one for one in layer.modules() if isinstance(one, nn.ModuleList) and len(set(map(_shapes, one))) == 1]
    experts = stacked[0][0] if stacked else max((len(one) for one in lists if _size(one)), default=0)
    # What chooses among experts has a row for each.
    shapes = [shape for shape in stacked or shapes if sorted(shape) != sorted((experts, hidden))]
    if stacked:
        shapes = [shape[1:] for shape in shapes]
    elif experts > 1:
        shapes = shapes[: len(shapes) // experts]
    columns = sorted(prod(shape) // hidden for shape in shapes)
    if len(columns) in (2, 3) and len({*columns}) == 1:
        gated = len(columns) == 3
    elif len(columns) == 2 and columns[1] == 2 * columns[0]:
        gated = True
    else:
        raise _no(f"its feed-forward part has {len(columns)} matrices ({', '.join(map(str, columns[:4]))} columns)")
    found: dict[str, int | bool | str] = {"ffn": columns[0], "gated": gated}
    if experts > 1:
        top_k = _attribute([*layer.modules()], TOP_K)
        if top_k is None:
            raise _no(f"nothing says how many experts a token visits: no module has {', '.join(TOP_K[:2])}, ...")
        found |= {"experts": experts, "top_k": top_k}
    return found


def written(found: dict[str, int | bool | str]) -> str:
    """The numbers as YAML."""
    return "".join(f"{key}: {str(value).lower()}\n" for key, value in found.items())
