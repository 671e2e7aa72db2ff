# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/cli/cli.h \
	src/cli/commands.c \
	src/cli/init.c \
	src/cli/inputs.c \
	src/cli/inputs.h \
	src/cli/inspect.c \
	src/cli/inspect.h \
	src/cli/inspect_model.c \
	src/cli/print.c \
	src/cli/signals.c \
	src/cli/signals.h

check_PROGRAMS += \
	tests/test_cli_memory \
	tests/test_print \
	tests/test_signals

dist_check_SCRIPTS += tests/test_cli.sh
