# Sources and tests of this folder.
libzo_a_SOURCES += \
	config/cli_options.def \
	config/cli_options.h \
	config/config_keys.def \
	config/config_keys_zero.def \
	config/config_options.h \
	config/json.h \
	config/model_config.h \
	config/run_config.h
