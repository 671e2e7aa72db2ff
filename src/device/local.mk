# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/device/device.h \
	src/device/device_host.c \
	src/device/ranges.c \
	src/device/ranges.h \
	src/device/stream_cuda.h \
	src/device/stream_host.h \
	src/device/targets.c \
	src/device/targets.h

check_PROGRAMS += \
	tests/test_device_host \
	tests/test_pace \
	tests/test_targets

if HAVE_CUDA
libzo_a_SOURCES += \
	src/device/context_cuda.c \
	src/device/context_cuda.h \
	src/device/device_cuda.c \
	src/device/driver_cuda.h \
	src/device/nvml_cuda.c \
	src/device/nvml_cuda.h
cuda_headers += src/device/pace_cuda.h
cuda_sources += src/device/pace_cuda.cu
else
libzo_a_SOURCES += src/device/device_cuda_stub.c
endif

# Skips without a GPU, and with the stub.
check_PROGRAMS += tests/test_device_cuda
