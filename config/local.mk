# Sources and tests of this folder.
libzo_a_SOURCES += \
	config/cli_help.c \
	config/cli_hints.c \
	config/cli_hints.h \
	config/cli_names.c \
	config/cli_names.h \
	config/cli_options.c \
	config/cli_options.def \
	config/cli_options.h \
	config/config_describe.c \
	config/config_homes.c \
	config/config_keys.def \
	config/config_keys_zero.def \
	config/config_options.c \
	config/config_options.h \
	config/config_resolve.c \
	config/config_resolve.h \
	config/config_schedule.c \
	config/config_values.c \
	config/config_values.h \
	config/json.c \
	config/json.h \
	config/json_read.c \
	config/json_check.c \
	config/json_check.h \
	config/model_config.c \
	config/model_config.h \
	config/model_json.c \
	config/run_config.c \
	config/run_config.h

# DeepSpeed JSONs for machines that people have; tests/presets.sh plans them.
presetsdir = $(pkgdatadir)/presets
dist_presets_DATA = \
	config/presets/16g-host64.json \
	config/presets/16g-host128.json \
	config/presets/24g-host64.json \
	config/presets/24g-host128.json \
	config/presets/32g-host64.json \
	config/presets/32g-host128.json \
	config/presets/2x24g-host64.json \
	config/presets/2x24g-host128.json \
	config/presets/2x32g-fp16-host128.json \
	config/presets/80g-host128.json
dist_check_SCRIPTS += tests/presets.sh

check_PROGRAMS += \
	tests/test_config_cli \
	tests/test_config_files \
	tests/test_config_homes \
	tests/test_config_keys \
	tests/test_config_run \
	tests/test_json \
	tests/test_model_config
tests_test_config_homes_SOURCES = \
	tests/config_case.c \
	tests/config_case.h \
	tests/test_config_homes.c
tests_test_config_run_SOURCES = \
	tests/config_case.c \
	tests/config_case.h \
	tests/test_config_run.c
