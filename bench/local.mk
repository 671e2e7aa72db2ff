libzo_a_SOURCES += \
	bench/adam.c \
	bench/adam.h \
	bench/attention_rate.c \
	bench/attention_rate.h \
	bench/fio.c \
	bench/fio.h \
	bench/nvme_rate.c \
	bench/nvme_rate.h \
	bench/products.c \
	bench/products.h

# Built when asked for: make bench/bench_kernels bench/bench_adamw
EXTRA_PROGRAMS += bench/bench_kernels
bench_bench_kernels_SOURCES = bench/bench_kernels.c bench/kernel_cases.c \
	bench/kernel_cases.h
bench_bench_kernels_LDADD = libzo.a $(ZO_LIBS)

EXTRA_PROGRAMS += bench/bench_adamw
bench_bench_adamw_SOURCES = bench/bench_adamw.c
bench_bench_adamw_LDADD = libzo.a $(ZO_LIBS)
# Likewise; it needs no GPU.
EXTRA_PROGRAMS += bench/bench_lists
bench_bench_lists_SOURCES = bench/bench_lists.c
bench_bench_lists_LDADD = libzo.a $(ZO_LIBS)

# For bench/run_gpu.sh, which builds it by name.
EXTRA_PROGRAMS += bench/parity/gradients
bench_parity_gradients_SOURCES = \
	bench/parity/gradients.c \
	$(vector_run)
EXTRA_DIST += \
	bench/parity/compare.py \
	bench/parity/glm.py \
	bench/parity/grads_hf.py \
	bench/parity/make_weights.py \
	bench/peers/attention_torch.py \
	bench/peers/fsdp2_resident.py \
	bench/run_gpu.sh
