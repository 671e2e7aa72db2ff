# The cuda kernels: included where HAVE_CUDA, in place of kernels_cuda_stub.c.
libzo_a_SOURCES += \
	kernels/cuda/matmul_cuda.c \
	kernels/cuda/wrappers.h \
	kernels/kernels_cuda.c

cuda_headers += \
	kernels/cuda/attention.cuh \
	kernels/cuda/element.cuh \
	kernels/cuda/fold.cuh \
	kernels/cuda/launch.cuh \
	kernels/cuda/ptx.cuh \
	kernels/cuda/rows.cuh \
	kernels/cuda/tile.cuh

cuda_sources += \
	kernels/cuda/adamw.cu \
	kernels/cuda/attention.cu \
	kernels/cuda/attention_backward.cu \
	kernels/cuda/attention_backward_mma.cu \
	kernels/cuda/attention_mma.cu \
	kernels/cuda/attention_plain.cu \
	kernels/cuda/cast.cu \
	kernels/cuda/cross_entropy.cu \
	kernels/cuda/embedding.cu \
	kernels/cuda/gather.cu \
	kernels/cuda/rmsnorm.cu \
	kernels/cuda/rope.cu \
	kernels/cuda/square_norm.cu \
	kernels/cuda/swiglu.cu

# They skip without a GPU.
cuda_kernel_tests = \
	tests/test_kernels_cuda \
	tests/test_kernels_cuda_attention \
	tests/test_kernels_cuda_sums
