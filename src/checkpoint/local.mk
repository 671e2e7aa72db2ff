# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/checkpoint/model_dir.h \
	src/checkpoint/model_dir_writer.h \
	src/checkpoint/safetensors.h \
	src/checkpoint/safetensors_writer.h \
	src/checkpoint/tensor_source.h \
	src/checkpoint/torch_bin.h
