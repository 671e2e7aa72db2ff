# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/data/batches.c \
	src/data/batches.h \
	src/data/dataset.c \
	src/data/dataset.h \
	src/data/dataset_internal.h \
	src/data/dataset_json.c \
	src/data/dataset_rows.c \
	src/data/ids.c \
	src/data/ids.h \
	src/data/row_json.c \
	src/data/row_json.h \
	src/data/row_source.c \
	src/data/row_source.h \
	src/data/rows.c \
	src/data/rows.h \
	src/data/scores.c \
	src/data/scores.h \
	src/data/sentencepiece_shim.cpp \
	src/data/sentencepiece_shim.h \
	src/data/text_stream.c \
	src/data/text_stream.h \
	src/data/tokenizer.c \
	src/data/tokenizer.h \
	src/data/tokenizer_file.c \
	src/data/tokenizer_file.h

check_PROGRAMS += \
	tests/test_batches \
	tests/test_dataset \
	tests/test_dataset_files \
	tests/test_rows \
	tests/test_scores \
	tests/test_text_stream \
	tests/test_tokenizer \
	tests/test_tokenizer_file
data_help = tests/data_help.c tests/data_help.h
tests_test_batches_SOURCES = tests/test_batches.c $(data_help)
tests_test_dataset_SOURCES = tests/test_dataset.c $(data_help)
tests_test_dataset_files_SOURCES = tests/test_dataset_files.c $(data_help)
tests_test_rows_SOURCES = tests/test_rows.c $(data_help)
tests_test_text_stream_SOURCES = tests/test_text_stream.c $(data_help)
tests_test_tokenizer_SOURCES = tests/test_tokenizer.c $(data_help)
tests_test_tokenizer_file_SOURCES = tests/test_tokenizer_file.c $(data_help)
