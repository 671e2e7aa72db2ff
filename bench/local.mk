libzo_a_SOURCES += \
	bench/products.c \
	bench/products.h

# Times the operations of a GPU; says so and stops where there is none.
noinst_PROGRAMS = bench/bench_kernels
bench_bench_kernels_SOURCES = \
	bench/bench_kernels.c \
	bench/kernel_cases.c \
	bench/kernel_cases.h
bench_bench_kernels_LDADD = libzo.a $(ZO_LIBS)
EXTRA_DIST += bench/peers_attention.py
