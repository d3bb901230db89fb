"""A transformer that torch runs says what the generated step of the same shape says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ahbm.torch
from ahbm._core import Workload
from ahbm.job.transformer import Transformer

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
SHAPE = Transformer(
    layers=2, hidden=16, heads=2, sequence=8, vocabulary=32, micro_batch=2, micro_batches=1, dtype="f32"
)


def calls(job: Workload) -> Counter[tuple[str, tuple[int, ...], int, str | None]]:
    return Counter((call.collective, tuple(call.ranks), call.bytes, call.dtype) for call in job.calls)


def recorded(prefix: Path, make: Callable[[], nn.Module]) -> Workload:
    """The job of a forward and a backward pass of what `make()` makes, on two ranks."""

    def rank() -> None:
        recorder = ahbm.torch.record(prefix)
        dist.init_process_group("ahbm")
        torch.manual_seed(0)
        net = make()
        tokens = torch.randint(SHAPE.vocabulary, (SHAPE.micro_batch, SHAPE.sequence))
        with recorder:
            net(tokens).backward()
        dist.destroy_process_group()

    ahbm.torch.spawn(rank, world_size=2, overrides=SMALL)
    return Workload.read(prefix)


class Spread(torch.autograd.Function):
    """Before a product that is cut by columns: the gradient is added over the parts."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(_: Any, *grads: torch.Tensor) -> torch.Tensor:
        grad = grads[0].clone()
        dist.all_reduce(grad)
        return grad


class Joined(torch.autograd.Function):
    """Behind a product that is cut by rows: the parts are added."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


class Loss(torch.autograd.Function):
    """Cross entropy over a vocabulary that is cut."""

    @staticmethod
    def forward(context: Any, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        largest = logits.max(-1).values
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        exponentials = (logits - largest[..., None]).exp()
        chosen = (logits - largest[..., None]).gather(-1, target[..., None]).squeeze(-1)
        dist.all_reduce(chosen)
        total = exponentials.sum(-1)
        dist.all_reduce(total)
        context.save_for_backward(exponentials / total[..., None])
        return (total.log() - chosen).mean()

    @staticmethod
    def backward(context: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (softmax,) = context.saved_tensors
        return grads[0] * softmax, None


class Layer(nn.Module):
    """A layer of which this rank has one of `parts` parts."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        hidden = SHAPE.hidden
        self.parts = parts
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.qkv, self.projection = nn.Linear(hidden, 3 * hidden // parts), nn.Linear(hidden // parts, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden // parts), nn.Linear(4 * hidden // parts, hidden)

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.parts == 1 else Spread.apply(x)

    def joined(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.parts == 1 else Joined.apply(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.spread(self.norms[0](x))).chunk(3, -1)
        x = x + self.joined(self.projection(torch.softmax(q @ k.transpose(-1, -2), -1) @ v))
        return x + self.joined(self.down(torch.relu(self.up(self.spread(self.norms[1](x))))))


class Model(nn.Module):
    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.words = SHAPE.vocabulary // parts
        self.tokens = nn.Embedding(self.words, SHAPE.hidden)
        self.positions = nn.Parameter(torch.zeros(SHAPE.sequence, SHAPE.hidden))
        self.layers = nn.ModuleList(Layer(parts) for _ in range(SHAPE.layers))
        self.norm = nn.LayerNorm(SHAPE.hidden)
        self.head = nn.Linear(SHAPE.hidden, self.words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens % self.words)
        x = (Joined.apply(x) if self.parts > 1 else x) + self.positions
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        if self.parts == 1:
            return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())
        return Loss.apply(self.head(Spread.apply(x)), tokens % self.words)


def test_two_tensor_parallel_ranks(tmp_path: Path) -> None:
    job = recorded(tmp_path / "job", lambda: Model(2))
    made = Transformer(**{**vars(SHAPE), "tp": 2}).workload()
    assert calls(job) == calls(made) and sum(calls(made).values()) == 2 * 4 + 2 + 3


def test_two_data_parallel_ranks(tmp_path: Path) -> None:
    """DDP's first bucket holds this whole model."""
    job = recorded(tmp_path / "job", lambda: DistributedDataParallel(Model(1)))
    made = Transformer(**{**vars(SHAPE), "dp": 2}).workload()
    assert calls(job) == calls(made) and sum(calls(made).values()) == 1
    parameters = sum(parameter.numel() for parameter in Model(1).parameters())
    assert [call.bytes for call in made.calls] == [4 * parameters]
