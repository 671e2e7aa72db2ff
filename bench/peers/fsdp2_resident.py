#!/usr/bin/env python3
"""PyTorch FSDP2 training ChatGLM2-6B on one GPU: resident, no recompute.

  fsdp2_resident.py [--rows 8] [--tokens 512] [--layers 28] [--steps 10]
                    [--keep-gathered]

GlmForCausalLM of ChatGLM2-6B's sizes, random weights and rows, every token
labelled.  fully_shard() on each layer and the whole, bf16 compute from fp32
parameters, fp32 gradients, fused AdamW, no clipping, no offload, SDPA.
Parameters are gathered (here: cast) before each layer's forward and again for
its backward; --keep-gathered casts them once a step.  Prints medians behind
three warm-up steps.
"""
import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "parity"))
import glm  # noqa: E402

WARM_UP = 3


def build(layers, keeps_gathered):
    from transformers import GlmForCausalLM
    official = glm.official_config(dict(glm.FULL_WIDTH, layers=layers),
                                   torch.float32)
    config = glm.glm_config(official)
    config._attn_implementation = "sdpa"
    with torch.device("cuda"):
        model = GlmForCausalLM(config)
    model.train()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy,
                    reshard_after_forward=not keeps_gathered)
    fully_shard(model, mp_policy=policy,
                reshard_after_forward=not keeps_gathered)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--keep-gathered", action="store_true")
    args = parser.parse_args()
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0,
                            world_size=1,
                            device_id=torch.device("cuda", 0))
    torch.manual_seed(1)
    model = build(args.layers, args.keep_gathered)
    count = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(65024, (args.rows, args.tokens), device="cuda")
    passes, updates, steps = [], [], []
    for step in range(WARM_UP + args.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.cuda.synchronize()
        middle = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        end = time.perf_counter()
        if step >= WARM_UP:
            passes.append(middle - start)
            updates.append(end - middle)
            steps.append(end - start)
    median = statistics.median(steps)
    print(f"torch {torch.__version__}, FSDP2"
          f"{', parameters kept gathered' if args.keep_gathered else ''}, "
          f"{torch.cuda.get_device_name(0)}: {count:,} parameters, "
          f"{args.rows} x {args.tokens} tokens")
    print(f"step {median:.4f} s (median of {args.steps}; {min(steps):.4f} to "
          f"{max(steps):.4f}), forward + backward "
          f"{statistics.median(passes):.4f} s, AdamW "
          f"{statistics.median(updates):.4f} s, "
          f"{args.rows * args.tokens / median:,.0f} tokens/s, peak "
          f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB, loss "
          f"{loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
