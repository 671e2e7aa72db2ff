#!/usr/bin/env python3
"""PyTorch's attention, forward and backward, at the shapes of bench_kernels.

  attention_torch.py [--rows 8] [--length 2048] [--all]

32 heads of 128, 2 key/value groups, causal, bf16, random data; FlashAttention-2
as PyTorch ships it, and cuDNN's.  Counted as bench_kernels counts: 4 D flops a
query and key forward, 10 D backward, half of the square.  Groups are passed
as they are ("grouped", enable_gqa) and once more expanded to every head
("expanded"; the copies and the sums of their gradients are not timed): a line
for each that the backend takes.
"""
import argparse

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, GROUPS, WIDTH = 32, 2, 128


def median_ms(call, samples=15, burst=10):
    for _ in range(3):
        call()
    times = []
    for _ in range(samples):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(burst):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / burst)
    return sorted(times)[samples // 2]


def measure(backend, rows, length, is_grouped):
    def random(heads):
        return torch.randn(rows, heads, length, WIDTH, device="cuda",
                           dtype=torch.bfloat16, requires_grad=True)

    q = random(HEADS)
    k, v = (random(GROUPS if is_grouped else HEADS) for _ in range(2))
    grad = torch.randn_like(q)
    with sdpa_kernel(backend):
        def forward():
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=is_grouped)

        out = forward()

        def backward():
            torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

        pairs = 0.5 * rows * length * length * HEADS
        for name, call, flops in (("forward", forward, 4 * WIDTH * pairs),
                                  ("backward", backward, 10 * WIDTH * pairs)):
            ms = median_ms(call)
            print(f"{backend.name:15} {'grouped' if is_grouped else 'expanded':8}"
                  f" {rows} x {length:5} {name:8} {1e3 * ms:9.1f} us "
                  f"{flops / ms / 1e9:8.1f} TF/s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--all", action="store_true",
                        help="the other shapes of bench_kernels too")
    args = parser.parse_args()
    shapes = [(args.rows, args.length)]
    if args.all:
        shapes += [(8, 512), (1, 8192), (1, 32768)]
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    for rows, length in shapes:
        for backend in (SDPBackend.FLASH_ATTENTION,
                        SDPBackend.CUDNN_ATTENTION):
            for is_grouped in (True, False):
                try:
                    measure(backend, rows, length, is_grouped)
                except RuntimeError as error:
                    print(f"{backend.name:15} "
                          f"{'grouped' if is_grouped else 'expanded':8} "
                          f"{rows} x {length:5} refused: "
                          f"{str(error).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
