"""What a rank holds of a step of training: parameters, gradients, optimizer and activations, by formulae.

Sources: Korthikanti et al., *Reducing Activation Recomputation in Large Transformer Models* (MLSys 2023), section 4;
Rajbhandari et al., *ZeRO* (SC 2020), section 3; Narayanan et al. (SC 2021), section 2.2, for how many micro-batches of
a pipeline are in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

from ahbm._core import Workload
from ahbm.base.elements import ELEMENTS
from ahbm.job.transformer import V_SCHEDULES, Transformer

OPTIMIZER_BYTES = 12
"""Of a parameter: a master copy and two moments in f32 (Adam in mixed precision)."""
LOSS_BYTES = 4
"""Of a logit in the loss, which is computed in f32."""


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest rank."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of them; what a framework and its libraries reserve comes beside it."""
        return self.parameters + self.gradients + self.optimizer + self.activations


def chunks_of(of: Transformer) -> list[int]:
    """Layers of each chunk, in the order of the model, as the generator divides them."""
    count = of.pp * of.virtual_stages
    share, more = divmod(of.layers + 2 * of.end_layers, count)
    layers = [share + (at < more) for at in range(count)]
    layers[0] -= of.end_layers
    layers[-1] -= of.end_layers
    return layers


def own_chunks(of: Transformer, stage: int) -> list[int]:
    """Layers of each chunk of a stage."""
    chunks = chunks_of(of)
    if of.schedule in V_SCHEDULES:
        return [chunks[stage], chunks[-1 - stage]]
    return chunks[stage :: of.pp]


def is_last(of: Transformer, stage: int) -> bool:
    """Whether a stage has the head."""
    return stage == (0 if of.schedule in V_SCHEDULES else of.pp - 1)


def memory_of(of: Transformer) -> Memory:
    """What the fullest pipeline stage holds."""
    return max((_stage(of, stage) for stage in range(of.pp)), key=lambda found: found.total)


def in_flight(of: Transformer, stage: int) -> int:
    """Chunks of layers of a stage whose activations are kept, at most."""
    return Workload.in_flight(of.schedule, stage, of.pp, of.virtual_stages, of.micro_batches)


def _stage(of: Transformer, stage: int) -> Memory:
    element = ELEMENTS[of.dtype].storage.itemsize
    chunks = own_chunks(of, stage)
    first, last = stage == 0, is_last(of, stage)
    shared, experts = _parameters(of, sum(chunks), first, last)
    shards = (of.shard or of.dp * of.cp, of.dp // of.ep)
    held = [shared, experts]
    sharded = [-(-number // shards_of) for number, shards_of in zip(held, shards, strict=True)]
    parameters = sum(sharded if of.zero == 3 else held)
    if of.zero == 3:
        # Two layers stand gathered: one computes, and the next one comes.
        parameters += 2 * max(sum(_parameters(of, 1, False, False)), of.hidden * -(-of.vocabulary // of.tp))
    gradients = sum(sharded if of.zero >= 2 else held)
    states = sum(sharded if of.zero >= 1 else held)
    kept, working = _layer(of, element)
    activations = kept * max(chunks) * in_flight(of, stage) + working
    if last:
        activations += of.micro_batch * of.sequence // of.cp * -(-of.vocabulary // of.tp) * (element + LOSS_BYTES)
    return Memory(parameters * element, gradients * element, states * OPTIMIZER_BYTES, activations)


def _parameters(of: Transformer, layers: int, first: bool, last: bool) -> tuple[int, int]:
    """Parameters of a rank: those that all data-parallel ranks have, and those of its experts."""
    hidden, ffn, kv = of.hidden, of.ffn or 4 * of.hidden, _kv(of)
    attention = (2 * hidden * hidden + 2 * hidden * kv) // of.tp
    forward = (3 if of.gated else 2) * hidden * ffn // of.tp
    words = -(-of.vocabulary // of.tp) * hidden
    shared = layers * (attention + 4 * hidden) + words * (int(first) + int(last))
    if not of.experts:
        return shared + layers * forward, 0
    return shared + layers * hidden * of.experts, layers * of.experts // of.ep * forward


def _kv(of: Transformer) -> int:
    heads = of.heads or max(of.hidden // 128, 1)
    return (of.kv_heads or heads) * (of.hidden // heads)


def _layer(of: Transformer, element: int) -> tuple[int, int]:
    """Bytes that a layer keeps of a micro-batch for its backward pass, and that it needs besides while it computes."""
    hidden, ffn, kv = of.hidden, of.ffn or 4 * of.hidden, _kv(of)
    heads = of.heads or max(of.hidden // 128, 1)
    tokens = of.micro_batch * of.sequence // of.cp
    shard = tokens // of.tp if of.sequence_parallel else tokens
    skew = of.skew if of.experts and of.ep > 1 else 1
    visits = of.top_k if of.experts else 1
    scores = of.micro_batch * heads * of.sequence * of.sequence // of.tp * (2 * element + 1) if of.materialized else 0
    inputs = element * shard * hidden
    # Inputs of both norms and what they give; queries, keys, values and the result; both sides of the activation.
    wide = int(2 * hidden + 2 * kv + skew * visits * ffn * (3 if of.gated else 2)) // of.tp
    whole = 4 * inputs + element * tokens * wide
    selective = of.recompute == "selective"
    kept = whole if selective else whole + scores
    if of.recompute in (True, "full"):
        kept = inputs
    return kept, whole + scores - kept if kept < whole + scores else 0
