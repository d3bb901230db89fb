"""The numbers of the transformer that a script trains."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from ahbm.errors import ConfigError
from ahbm.planning.script import trained
from ahbm.torch.device.trained import numbers, watched, written

VOCABULARY, HIDDEN, HEADS, SEQUENCE = 96, 32, 4, 8


class Attention(nn.Module):
    """Grouped queries, with matrices of their own or in one."""

    def __init__(self, kv_heads: int, fused: bool) -> None:
        super().__init__()
        self.sizes = [HIDDEN, kv_heads * HIDDEN // HEADS, kv_heads * HIDDEN // HEADS]
        parts = [sum(self.sizes)] if fused else self.sizes
        names = ["c_attn"] if fused else ["wq", "wk", "wv"]
        for name, size in zip(names, parts, strict=True):
            self.add_module(name, nn.Linear(HIDDEN, size))
        self.names = names
        self.wo = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Any) -> Any:
        rows = torch.cat([getattr(self, name)(x) for name in self.names], -1).split(self.sizes, -1)
        q, k, v = (part.unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2) for part in rows)
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], 1) for part in (k, v))
        return self.wo(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """SwiGLU, its first two products in one or not."""

    def __init__(self, width: int, fused: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, 2 * width if fused else width)
        self.gate = None if fused else nn.Linear(HIDDEN, width)
        self.down = nn.Linear(width, HIDDEN)

    def forward(self, x: Any) -> Any:
        up, gate = self.up(x).chunk(2, -1) if self.gate is None else (self.up(x), self.gate(x))
        return self.down(up * functional.silu(gate))


class Experts(nn.Module):
    """Every token by all, for brevity."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.gate, self.top_k = nn.Linear(HIDDEN, count, bias=False), 3
        self.experts = nn.ModuleList(Gated(48) for _ in range(count))

    def forward(self, x: Any) -> Any:
        return sum(part * expert(x) for part, expert in zip(self.gate(x).split(1, -1), self.experts, strict=True))


class Layer(nn.Module):
    """Attention and a feed-forward part."""

    def __init__(self, attention: nn.Module, rest: nn.Module) -> None:
        super().__init__()
        self.attention, self.rest, self.norm = attention, rest, nn.LayerNorm(HIDDEN)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        return x + self.rest(x)


class Model(nn.Module):
    """Layers between an embedding and a head."""

    def __init__(self, *layers: nn.Module, tied: bool = False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(SEQUENCE, HIDDEN)
        self.layers, self.head = nn.ModuleList(layers), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def plain(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(HIDDEN, width), nn.GELU(), nn.Linear(width, HIDDEN))


def read(model: nn.Module) -> dict[str, Any]:
    with watched() as seen:
        model(torch.zeros(2, SEQUENCE, dtype=torch.int64))
    return numbers(seen)


COMMON = {"hidden": HIDDEN, "heads": HEADS, "sequence": SEQUENCE, "vocabulary": VOCABULARY, "micro_batch": 2}
COMMON |= {"dtype": "f32", "arithmetic": "f32"}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gpt": (
        lambda: Model(*(Layer(Attention(4, fused=True), plain(128)) for _ in range(3)), tied=True),
        {"layers": 3, "kv_heads": 4, "ffn": 128, "gated": False},
    ),
    "grouped_queries": (
        lambda: Model(*(Layer(Attention(2, fused=False), Gated(80)) for _ in range(2))),
        {"layers": 2, "kv_heads": 2, "ffn": 80, "gated": True},
    ),
    "one_product_for_both": (
        lambda: Model(*(Layer(Attention(1, fused=True), Gated(80, fused=True)) for _ in range(2))),
        {"layers": 2, "kv_heads": 1, "ffn": 80, "gated": True},
    ),
    "experts": (
        lambda: Model(*(Layer(Attention(4, fused=False), Experts(5)) for _ in range(2))),
        {"layers": 2, "kv_heads": 4, "ffn": 48, "gated": True, "experts": 5, "top_k": 3},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_of_a_model_are_those_that_it_was_made_of(name: str) -> None:
    made, expected = MODELS[name]
    assert read(made()) == COMMON | expected


class Scores(nn.Module):
    """Attention by products and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj, self.num_heads = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN), 2

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.proj((q @ k.transpose(1, 2)).softmax(-1) @ v)


def test_attention_of_its_own_has_its_scores_in_memory_and_says_its_heads() -> None:
    found = read(Model(*(Layer(Scores(), plain(64)) for _ in range(2))))
    assert (found["heads"], found["kv_heads"], found["materialized"]) == (2, 2, True)


class Wide(nn.Module):
    """Queries of more or fewer columns than the stream: heads of 8."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.qkv, self.o, self.n = nn.Linear(HIDDEN, 24 * heads), nn.Linear(8 * heads, HIDDEN), heads

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (self.n, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.o(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


WRONG: dict[str, tuple[Any, str]] = {
    "wide_queries": (
        lambda: Model(*(Layer(Wide(8), plain(64)) for _ in range(2))),
        "no queries, keys, values and output",
    ),
    "narrow_queries": (
        lambda: Model(*(Layer(Wide(3), plain(64)) for _ in range(2))),
        "queries of .* are not the 32 columns of the stream",
    ),
    "layers_that_differ": (
        lambda: Model(Layer(Attention(4, fused=True), plain(64)), Layer(Attention(4, fused=True), plain(128))),
        "no stack of equal layers has most of its parameters",
    ),
    "three_products": (
        lambda: Model(
            *(Layer(Attention(4, fused=True), nn.Sequential(plain(64), nn.Linear(HIDDEN, HIDDEN))) for _ in range(2))
        ),
        "its feed-forward part has 3 matrices",
    ),
    "two_attentions": (
        lambda: Model(
            *(Layer(nn.Sequential(Attention(4, fused=True), Attention(4, fused=True)), plain(64)) for _ in range(2))
        ),
        "no queries, keys, values and output",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_plan_does_not_divide_is_refused(name: str) -> None:
    made, why = WRONG[name]
    with pytest.raises(ConfigError, match=f"AHBM-C157.*{why}"):
        read(made())


def test_what_nothing_says_is_not_guessed() -> None:
    headless, routed = Scores(), Experts(4)
    del headless.num_heads, routed.top_k
    for attention, rest, why in (
        (headless, plain(64), "nothing says its heads"),
        (Attention(4, fused=True), routed, "nothing says how many experts a token visits"),
    ):
        with pytest.raises(ConfigError, match=f"AHBM-C157.*{why}"):
            read(Model(*(copy.deepcopy(Layer(attention, rest)) for _ in range(2))))


def test_products_in_tf32_are_those_of_torch_s_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(*(Layer(Attention(4, fused=True), plain(64)) for _ in range(2)))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert read(model)["arithmetic"] == "tf32"
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
        assert read(model)["arithmetic"] == "f32"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_model_without_tokens_is_refused() -> None:
    with watched() as seen:
        nn.Linear(4, 4)(torch.ones(2, 4))
    with pytest.raises(ConfigError, match="no embedding was given tokens"):
        numbers(seen)


def test_numbers_are_written_as_yaml() -> None:
    assert written({"layers": 2, "gated": True, "dtype": "bf16"}) == "layers: 2\ngated: true\ndtype: bf16\n"


SCRIPT = """import sys

import torch

sequences = int(sys.argv[1])
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
# More than a device holds.
spare = torch.empty(300 << 30, dtype=torch.uint8, device="cuda")
tokens, layers, head = torch.nn.Embedding(96, 32), torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(32, 96)
model = torch.nn.Sequential(tokens, layers, head).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    x = torch.randint(0, 96, (sequences, 8), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
    loss.backward()
    optimizer.step()
"""


def test_a_script_says_its_numbers_after_one_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    found = trained(script, ["3"], "dgx_h100")
    same = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 4, "ffn": 64, "gated": False, "sequence": 8}
    assert found == same | {"vocabulary": 96, "micro_batch": 3, "dtype": "bf16"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"ahbm: 8 cuda devices\nTraceback:\nValueError: no data set\nahbm: no answer\n", "exit status 1.*no data set"),
        (b"ahbm.errors.ConfigError: AHBM-C157 no embedding\n  hint: a YAML file\n", "train.py: no embedding"),
    ],
)
def test_a_script_that_fails_is_refused_with_what_it_said(
    said: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 1, b"", said)

    monkeypatch.setattr("ahbm.planning.script.subprocess.run", run)
    with pytest.raises(ConfigError, match=rf"(?s)AHBM-C157.*{told}") as refused:
        trained("train.py", (), "dgx_h100")
    assert "ahbm: " not in str(refused.value)
