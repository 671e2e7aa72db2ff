# The cuda device: included where HAVE_CUDA, in place of device_cuda_stub.c.
libzo_a_SOURCES += \
	src/device/device_cuda.c \
	src/device/driver_cuda.h

# Skips without a GPU, and with the stub; belongs into check_PROGRAMS always.
cuda_device_tests = tests/test_device_cuda
