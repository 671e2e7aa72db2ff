#!/usr/bin/env python3
"""PyTorch's attention, forward and backward, at the shapes of bench_kernels.

32 heads of 128, 2 key/value groups, causal, bf16, random data.  Counted as
bench_kernels counts: 4 D flops a query and key forward, 10 D backward, half
of the square.  Prints a line for each backend, shape and direction.
"""
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


def measure(backend, rows, length):
    q = torch.randn(rows, HEADS, length, WIDTH, device="cuda",
                    dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.randn(rows, GROUPS, length, WIDTH, device="cuda",
                        dtype=torch.bfloat16, requires_grad=True)
            for _ in range(2))
    grad = torch.randn_like(q)
    with sdpa_kernel(backend):
        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                  enable_gqa=True)

        out = forward()

        def backward():
            torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

        pairs = 0.5 * rows * length * length * HEADS
        for name, call, flops in (("forward", forward, 4 * WIDTH * pairs),
                                  ("backward", backward, 10 * WIDTH * pairs)):
            ms = median_ms(call)
            print(f"{backend.name:18} {rows} x {length:5} {name:8} "
                  f"{1e3 * ms:9.1f} us {flops / ms / 1e9:8.1f} TF/s",
                  flush=True)


def main():
    for rows, length in ((8, 512), (8, 2048), (1, 8192), (1, 32768)):
        for backend in (SDPBackend.FLASH_ATTENTION,
                        SDPBackend.CUDNN_ATTENTION):
            try:
                measure(backend, rows, length)
            except RuntimeError as error:
                print(f"{backend.name} {rows} x {length}: {error}")


if __name__ == "__main__":
    main()
