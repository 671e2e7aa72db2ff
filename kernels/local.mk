# Sources and tests of this folder.
libzo_a_SOURCES += \
	kernels/check.c \
	kernels/host/adamw_host.c \
	kernels/host/host_passes.c \
	kernels/host/attention_backward_host.c \
	kernels/host/attention_host.c \
	kernels/host/attention_host.h \
	kernels/host/blas.c \
	kernels/host/elementwise_host.c \
	kernels/host/host.h \
	kernels/host/host_passes.c \
	kernels/host/loss_host.c \
	kernels/host/matmul_host.c \
	kernels/host/parts_host.c \
	kernels/host/rmsnorm_host.c \
	kernels/host/rope_host.c \
	kernels/host/rows_host.c \
	kernels/host/swiglu_host.c \
	kernels/host/vector.c \
	kernels/host/vector.h \
	kernels/host/vector_adamw.h \
	kernels/host/vector_avx2.c \
	kernels/host/vector_avx512.c \
	kernels/host/vector_base.c \
	kernels/host/vector_body.h \
	kernels/host/vector_target.h \
	kernels/host_passes.h \
	kernels/kernels.h \
	kernels/kernels_host.c

kernel_tests = \
	tests/test_host_passes \
	tests/test_kernels \
	tests/test_kernels_adamw \
	tests/test_kernels_attention \
	tests/test_kernels_check \
	tests/test_kernels_elements \
	tests/test_kernels_matmul \
	tests/test_kernels_rows \
	tests/test_kernels_vector
check_PROGRAMS += $(kernel_tests)
rig_sources = tests/rig.c tests/rig.h
tests_test_host_passes_SOURCES = tests/test_host_passes.c \
	$(rig_sources)
tests_test_kernels_SOURCES = tests/test_kernels.c \
	$(rig_sources)
tests_test_kernels_adamw_SOURCES = tests/test_kernels_adamw.c \
	$(rig_sources)
tests_test_kernels_attention_SOURCES = tests/test_kernels_attention.c \
	$(rig_sources)
tests_test_kernels_check_SOURCES = tests/test_kernels_check.c \
	$(rig_sources)
tests_test_kernels_elements_SOURCES = tests/test_kernels_elements.c \
	$(rig_sources)
tests_test_kernels_matmul_SOURCES = tests/test_kernels_matmul.c \
	$(rig_sources)
tests_test_kernels_rows_SOURCES = tests/test_kernels_rows.c \
	$(rig_sources)
tests_test_kernels_vector_SOURCES = tests/test_kernels_vector.c \
	$(rig_sources)

# nvcc's part: Makefile.am adds these lists where there is CUDA.
cuda_headers += \
	kernels/cuda/attention.cuh \
	kernels/cuda/element.cuh \
	kernels/cuda/fold.cuh \
	kernels/cuda/hopper.cuh \
	kernels/cuda/launch.cuh \
	kernels/cuda/ptx.cuh \
	kernels/cuda/rows.cuh \
	kernels/cuda/tile.cuh

cuda_sources += \
	kernels/cuda/adamw.cu \
	kernels/cuda/attention.cu \
	kernels/cuda/attention_backward.cu \
	kernels/cuda/attention_backward_hopper.cu \
	kernels/cuda/attention_backward_mma.cu \
	kernels/cuda/attention_hopper.cu \
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

if HAVE_CUDA
libzo_a_SOURCES += \
	kernels/cuda/matmul_cuda.c \
	kernels/cuda/wrappers.h \
	kernels/kernels_cuda.c
else
libzo_a_SOURCES += kernels/kernels_cuda_stub.c
endif

# They skip without a GPU.
check_PROGRAMS += \
	tests/test_kernels_cuda \
	tests/test_kernels_cuda_attention \
	tests/test_kernels_cuda_sums
pair_sources = tests/kernel_pair.h
tests_test_kernels_cuda_SOURCES = tests/test_kernels_cuda.c \
	$(pair_sources)
tests_test_kernels_cuda_attention_SOURCES = \
	tests/test_kernels_cuda_attention.c \
	$(pair_sources)
tests_test_kernels_cuda_sums_SOURCES = tests/test_kernels_cuda_sums.c \
	$(pair_sources)
