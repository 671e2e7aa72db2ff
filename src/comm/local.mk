# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/comm/comm.h \
	src/comm/comm_check.c \
	src/comm/comm_host.c

check_PROGRAMS += tests/test_comm
