# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/comm/comm.h \
	src/comm/comm_check.c \
	src/comm/comm_environment.c \
	src/comm/comm_host.c \
	src/comm/comm_selftest.c \
	src/comm/comm_selftest.h

if HAVE_CUDA
libzo_a_SOURCES += src/comm/comm_peer.c
else
libzo_a_SOURCES += src/comm/comm_peer_stub.c
endif

if HAVE_NCCL
libzo_a_SOURCES += src/comm/comm_nccl.c
else
libzo_a_SOURCES += src/comm/comm_nccl_stub.c
endif

check_PROGRAMS += \
	tests/test_comm \
	tests/test_comm_selftest

# Skips with fewer than two GPUs, and with the stub.
check_PROGRAMS += tests/test_comm_cuda
tests_test_comm_selftest_SOURCES = \
	tests/test_comm_selftest.c \
	tests/offload_help.c \
	tests/offload_help.h
