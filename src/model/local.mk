# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/model/parameters.c \
	src/model/parameters.h

check_PROGRAMS += tests/test_parameters
