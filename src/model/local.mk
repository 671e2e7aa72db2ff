# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/model/export_layout.c \
	src/model/export_layout.h \
	src/model/glm.c \
	src/model/glm.h \
	src/model/glm_emit.c \
	src/model/glm_internal.h \
	src/model/glm_ops.c \
	src/model/parameters.c \
	src/model/parameters.h

check_PROGRAMS += \
	tests/test_export_layout \
	tests/test_parameters
