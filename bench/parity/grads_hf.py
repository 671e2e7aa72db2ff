#!/usr/bin/env python3
"""The loss and every gradient of one step, from transformers.

  grads_hf.py MODEL ROWS OUT.safetensors [--dtype fp32|bf16]
              [--attention eager|sdpa] [--device cuda|cpu]

MODEL is a directory in the official layout, computed as GlmForCausalLM in
--dtype; the loss is of fp32 logits, the mean over all labels.  fp32 takes no
TF32.  OUT holds "loss" and "grad.NAME" by official names.  Rows are padded on
the right, where causal attention needs no mask.
"""
import argparse
import json

import torch
from safetensors.torch import save_file

import glm

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def read_rows(path, device):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    width = max(len(row["input_ids"]) for row in rows)

    def padded(key, pad):
        return torch.tensor([row[key] + [pad] * (width - len(row[key]))
                             for row in rows], device=device)

    return padded("input_ids", 0), padded("labels", -100)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("rows")
    parser.add_argument("out")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32")
    parser.add_argument("--attention", choices=("eager", "sdpa"))
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    attention = args.attention or ("eager" if args.dtype == "fp32" else "sdpa")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(False)
    model, official = glm.load(args.model, DTYPES[args.dtype], args.device,
                               attention)
    model.train()
    ids, labels = read_rows(args.rows, args.device)
    loss = model(input_ids=ids, labels=labels, use_cache=False).loss
    loss.backward()
    assert loss.dtype == torch.float32, loss.dtype
    print(f"transformers {args.dtype} {attention}: loss {loss.item():.9g}")
    found = glm.gradients(model, official)
    found["loss"] = loss.detach().reshape(1).cpu()
    save_file(found, args.out, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
