libzo_a_SOURCES += \
	src/base/arith.h \
	src/base/compiler.h \
	src/base/dtype.h \
	src/base/memory.c \
	src/base/memory.h \
	src/base/notes.c \
	src/base/notes.h \
	src/base/status.c \
	src/base/status.h \
	src/base/text.c \
	src/base/text.h
