#!/usr/bin/env python3
"""A random ChatGLM2 of full width and few layers, and rows to train on.

  make_weights.py FOLDER [--small] [--device cuda|cpu]

Writes FOLDER/fp32 and FOLDER/bf16 (the same weights, rounded), model
directories in the official layout; FOLDER/bf16-wide, the rounded weights in
fp32, whose gradients are what bf16 is measured by; and FOLDER/rows.jsonl.
Weights are normal with deviation 0.02, norms 1 +- 0.1 and biases 0 +- 0.5, so
that every tensor has a gradient to speak of.  One seed, one result a device.
"""
import argparse
import json
import os

import torch
from safetensors.torch import save_file

import glm

# Tokens of a row, and how many of them are a prompt without labels.
ROWS = ((256, 0), (256, 0), (193, 64), (64, 10), (7, 3))


def random_weights(official, device):
    generator = torch.Generator(device).manual_seed(20)
    weights = {}
    for name, shape in glm.shapes(official).items():
        values = torch.randn(shape, generator=generator, device=device)
        if name.endswith("norm.weight"):
            weights[name] = (1 + 0.1 * values).cpu()
        elif name.endswith(".bias"):
            weights[name] = (0.5 * values).cpu()
        else:
            weights[name] = (0.02 * values).cpu()
    return weights


def write_model(folder, official, weights):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w",
              encoding="utf-8") as file:
        json.dump(official, file, indent=1)
    save_file(weights, os.path.join(folder, "model.safetensors"),
              metadata={"format": "pt"})


def write_rows(path, vocab):
    generator = torch.Generator().manual_seed(21)
    with open(path, "w", encoding="utf-8") as file:
        for length, prompt in ROWS:
            ids = torch.randint(vocab, (length,), generator=generator).tolist()
            labels = [-100] * prompt + ids[prompt:]
            file.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--small", action="store_true",
                        help="a tiny model, to try the scripts")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    size = glm.SMALL if args.small else glm.FULL_WIDTH
    official = glm.official_config(size, torch.float32)
    weights = random_weights(official, args.device)
    write_model(os.path.join(args.folder, "fp32"), official, weights)
    rounded = {name: tensor.bfloat16() for name, tensor in weights.items()}
    write_model(os.path.join(args.folder, "bf16"),
                glm.official_config(size, torch.bfloat16), rounded)
    write_model(os.path.join(args.folder, "bf16-wide"), official,
                {name: tensor.float() for name, tensor in rounded.items()})
    write_rows(os.path.join(args.folder, "rows.jsonl"), size["vocab"])
    count = sum(tensor.numel() for tensor in weights.values())
    print(f"{count:,} parameters, {len(ROWS)} rows")


if __name__ == "__main__":
    main()
