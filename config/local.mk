# Sources and tests of this folder.
libzo_a_SOURCES += \
	config/cli_options.def \
	config/cli_options.h \
	config/config_keys.def \
	config/config_keys_zero.def \
	config/config_options.h \
	config/json.c \
	config/json.h \
	config/json_read.c \
	config/json_scan.c \
	config/json_scan.h \
	config/model_config.h \
	config/run_config.h

check_PROGRAMS += tests/test_json
