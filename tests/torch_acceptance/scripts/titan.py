"""In the style of torchtitan's debug model: a small Llama under FSDP2, tensor parallel and a pipeline, in one mesh."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny_llama import Transformer
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def stage_of(model: Transformer, index: int, count: int) -> nn.Module:
    per = len(model.layers) // count
    model.layers = model.layers[index * per : (index + 1) * per]
    if index:
        model.tok_embeddings = nn.Identity()
    if index < count - 1:
        model.norm, model.output = nn.Identity(), nn.Identity()
    return model


def apply_tp(model: Transformer, mesh: "dist.DeviceMesh", first: bool, last: bool) -> None:
    plan = {}
    if first:
        plan["tok_embeddings"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if last:
        plan["norm"] = SequenceParallel()
        plan["output"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    parallelize_module(model, mesh, plan)
    gather = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    for block in model.layers:
        block.attention.n_heads //= mesh.size()
        parallelize_module(
            block,
            mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": gather,
                **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": gather,
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
                "feed_forward.w3": ColwiseParallel(),
            },
        )


def main() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}")
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    pp, dp, tp = mesh["pp"], mesh["dp"], mesh["tp"]
    stage, stages = pp.get_local_rank(), pp.size()
    torch.manual_seed(0)
    with torch.device("meta"):
        model = stage_of(Transformer(n_layers=4), stage, stages)
    apply_tp(model, tp, stage == 0, stage == stages - 1)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=dp, mp_policy=policy)
    fully_shard(model, mesh=dp, mp_policy=policy)
    model.to_empty(device="cuda")
    with torch.no_grad():
        model.reset_parameters()

    def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output.flatten(0, 1).float(), target.flatten())

    pipeline = PipelineStage(model, stage, stages, device, group=pp.get_group())
    schedule = Schedule1F1B(pipeline, n_microbatches=2, loss_fn=loss_fn)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(3):
        torch.manual_seed(step * 2 + dp.get_local_rank())
        tokens = torch.randint(0, 256, (4, 17), device=device)
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if stage == 0:
            schedule.step(tokens[:, :-1])
        else:
            schedule.step(target=tokens[:, 1:].contiguous(), losses=losses)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if stage == stages - 1 and dp.get_local_rank() == tp.get_local_rank() == 0:
            print(f"loss {torch.stack(losses).mean().item():.17g}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
