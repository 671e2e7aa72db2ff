# Sources and tests of this folder.
libzo_a_SOURCES += \
	kernels/check.c \
	kernels/host/adamw_host.c \
	kernels/host/attention_backward_host.c \
	kernels/host/attention_host.c \
	kernels/host/attention_host.h \
	kernels/host/blas.c \
	kernels/host/elementwise_host.c \
	kernels/host/host.h \
	kernels/host/loss_host.c \
	kernels/host/matmul_host.c \
	kernels/host/parts_host.c \
	kernels/host/rmsnorm_host.c \
	kernels/host/rope_host.c \
	kernels/host/rows_host.c \
	kernels/host/swiglu_host.c \
	kernels/host/vector.c \
	kernels/host/vector.h \
	kernels/host/vector_avx2.c \
	kernels/host/vector_avx512.c \
	kernels/host/vector_base.c \
	kernels/host/vector_body.h \
	kernels/host/vector_target.h \
	kernels/kernels.h \
	kernels/kernels_cuda_stub.c \
	kernels/kernels_host.c
