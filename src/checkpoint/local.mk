# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/checkpoint/disk_file.c \
	src/checkpoint/disk_file.h \
	src/checkpoint/download.c \
	src/checkpoint/download.h \
	src/checkpoint/file_hash.c \
	src/checkpoint/file_hash.h \
	src/checkpoint/json_scan.c \
	src/checkpoint/json_scan.h \
	src/checkpoint/json_text.c \
	src/checkpoint/json_text.h \
	src/checkpoint/model_dir.c \
	src/checkpoint/model_dir.h \
	src/checkpoint/model_dir_writer.c \
	src/checkpoint/model_dir_writer.h \
	src/checkpoint/model_files.c \
	src/checkpoint/model_files.h \
	src/checkpoint/model_index.c \
	src/checkpoint/model_index.h \
	src/checkpoint/pickle.c \
	src/checkpoint/pickle.h \
	src/checkpoint/safetensors.c \
	src/checkpoint/safetensors.h \
	src/checkpoint/safetensors_writer.c \
	src/checkpoint/safetensors_writer.h \
	src/checkpoint/state_codec.c \
	src/checkpoint/state_codec.h \
	src/checkpoint/state_files.c \
	src/checkpoint/state_files.h \
	src/checkpoint/state_folder.c \
	src/checkpoint/state_folder.h \
	src/checkpoint/state_format.c \
	src/checkpoint/state_format.h \
	src/checkpoint/state_manifest.c \
	src/checkpoint/state_manifest.h \
	src/checkpoint/state_reader.c \
	src/checkpoint/state_reader.h \
	src/checkpoint/state_writer.c \
	src/checkpoint/state_writer.h \
	src/checkpoint/tensor_source.c \
	src/checkpoint/tensor_source.h \
	src/checkpoint/tensor_source_private.h \
	src/checkpoint/torch_bin.c \
	src/checkpoint/torch_bin.h \
	src/checkpoint/zip_archive.c \
	src/checkpoint/zip_archive.h

check_PROGRAMS += \
	tests/test_json_scan \
	tests/test_model_dir \
	tests/test_model_dir_writer \
	tests/test_pickle \
	tests/test_safetensors \
	tests/test_safetensors_writer \
	tests/test_state_faults \
	tests/test_state_folder \
	tests/test_state_format \
	tests/test_torch_bin \
	tests/test_zip_archive
model_fixtures = tests/model_fixtures.c tests/model_fixtures.h
tests_test_json_scan_SOURCES = tests/test_json_scan.c $(model_fixtures)
tests_test_model_dir_SOURCES = tests/test_model_dir.c $(model_fixtures)
tests_test_model_dir_writer_SOURCES = tests/test_model_dir_writer.c \
	tests/disk_faults.c tests/disk_faults.h $(model_fixtures)
tests_test_pickle_SOURCES = tests/test_pickle.c $(model_fixtures)
tests_test_safetensors_SOURCES = tests/test_safetensors.c $(model_fixtures)
tests_test_safetensors_writer_SOURCES = tests/test_safetensors_writer.c \
	$(model_fixtures)
tests_test_state_faults_SOURCES = tests/test_state_faults.c \
	tests/disk_faults.c tests/disk_faults.h $(model_fixtures)
tests_test_state_folder_SOURCES = tests/test_state_folder.c $(model_fixtures)
tests_test_state_format_SOURCES = tests/test_state_format.c \
	tests/disk_faults.c tests/disk_faults.h $(model_fixtures)
tests_test_torch_bin_SOURCES = tests/test_torch_bin.c $(model_fixtures)
tests_test_zip_archive_SOURCES = tests/test_zip_archive.c $(model_fixtures)
