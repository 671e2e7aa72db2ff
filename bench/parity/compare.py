#!/usr/bin/env python3
"""Holds our losses and gradients against those of transformers.

  compare.py fp32 OURS REFERENCE
      the loss within 1e-5, every gradient within 1e-4 (relative L2)
  compare.py bf16 OURS THEIRS REFERENCE
      REFERENCE are the fp32 gradients of the same bf16 weights: our distance
      to them is at most 1.05 x theirs for every tensor, our loss within 2e-3

Prints a line a tensor and exits 1 when a bound is broken.
"""
import argparse
import sys

import torch
from safetensors import safe_open

LOSS_FP32, GRADIENT_FP32 = 1e-5, 1e-4
LOSS_BF16, RATIO_BF16 = 2e-3, 1.05
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def distance(got, want):
    """Relative L2, in double: ||got - want|| / ||want||."""
    error = norm = 0.0
    for a, b in zip(got.reshape(-1).split(1 << 26),
                    want.reshape(-1).split(1 << 26)):
        b = b.to(DEVICE).double()
        error += (a.to(DEVICE).double() - b).square().sum().item()
        norm += b.square().sum().item()
    return (error / norm) ** 0.5 if norm > 0 else float("inf")


class Report:
    def __init__(self):
        self.broken = []

    def check(self, name, value, bound, text):
        is_within = value <= bound  # a NaN is not
        print(f"{'ok  ' if is_within else 'FAIL'} {name:62} {text}")
        if not is_within:
            self.broken.append(name)


def names_of(reference, *others):
    names = [n for n in reference.keys() if n != "loss"]
    for other in others:
        missing = set(names) ^ set(n for n in other.keys() if n != "loss")
        if missing:
            sys.exit(f"not in both files: {sorted(missing)}")
    return names


def compare_losses(report, files, bound):
    losses = [file.get_tensor("loss").item() for file in files]
    gap = abs(losses[0] - losses[-1])
    report.check("loss", gap, bound,
                 " ".join(f"{loss:.7f}" for loss in losses) +
                 f"  gap {gap:.2e}, at most {bound:g}")


def compare_fp32(report, ours, reference):
    compare_losses(report, (ours, reference), LOSS_FP32)
    worst = 0.0
    for name in names_of(reference, ours):
        gap = distance(ours.get_tensor(name), reference.get_tensor(name))
        worst = max(worst, gap)
        report.check(name, gap, GRADIENT_FP32, f"{gap:.2e}")
    print(f"worst gradient {worst:.2e}, at most {GRADIENT_FP32:g}")


def compare_bf16(report, ours, theirs, reference):
    compare_losses(report, (ours, theirs, reference), LOSS_BF16)
    worst = 0.0
    for name in names_of(reference, ours, theirs):
        want = reference.get_tensor(name)
        our_gap = distance(ours.get_tensor(name), want)
        their_gap = distance(theirs.get_tensor(name), want)
        ratio = our_gap / their_gap if their_gap > 0 else float("inf")
        worst = max(worst, ratio)
        report.check(name, ratio, RATIO_BF16,
                     f"{our_gap:.3e} {their_gap:.3e}  ratio {ratio:.3f}")
    print(f"worst ratio {worst:.3f}, at most {RATIO_BF16:g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtype", choices=("fp32", "bf16"))
    parser.add_argument("files", nargs="+",
                        help="OURS [THEIRS] REFERENCE, safetensors")
    args = parser.parse_args()
    if len(args.files) != (2 if args.dtype == "fp32" else 3):
        parser.error("want OURS REFERENCE, for bf16 OURS THEIRS REFERENCE")
    files = [safe_open(path, "pt") for path in args.files]
    report = Report()
    (compare_fp32 if args.dtype == "fp32" else compare_bf16)(report, *files)
    if report.broken:
        print(f"{len(report.broken)} broken: {', '.join(report.broken)}")
    sys.exit(1 if report.broken else 0)


if __name__ == "__main__":
    main()
