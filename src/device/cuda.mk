# The cuda device: included where HAVE_CUDA.
libzo_a_SOURCES += \
	src/device/device_cuda.c \
	src/device/driver_cuda.h \
	src/device/stream_cuda.h
