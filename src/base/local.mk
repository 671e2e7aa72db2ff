libzo_a_SOURCES += \
	src/base/arith.h \
	src/base/cgroup.c \
	src/base/cgroup.h \
	src/base/compiler.h \
	src/base/cpu.c \
	src/base/cpu.h \
	src/base/disk_probe.c \
	src/base/disk_probe.h \
	src/base/dtype.h \
	src/base/file_check.c \
	src/base/file_check.h \
	src/base/folders.c \
	src/base/folders.h \
	src/base/memory.c \
	src/base/memory.h \
	src/base/notes.c \
	src/base/notes.h \
	src/base/numa.c \
	src/base/numa.h \
	src/base/pool.c \
	src/base/pool.h \
	src/base/status.c \
	src/base/status.h \
	src/base/system.c \
	src/base/system.h \
	src/base/text.c \
	src/base/text.h \
	src/base/thread.c \
	src/base/thread.h \
	src/base/uring_probe.c \
	src/base/uring_probe.h

check_PROGRAMS += \
	tests/test_file_check \
	tests/test_folders \
	tests/test_numa \
	tests/test_pool
tests_test_file_check_SOURCES = tests/test_file_check.c $(model_fixtures)
tests_test_folders_SOURCES = tests/test_folders.c tests/disk_faults.c \
	tests/disk_faults.h $(model_fixtures)
tests_test_numa_SOURCES = tests/test_numa.c $(fake_root)

libzo_a_SOURCES += \
	src/base/clock.c \
	src/base/clock.h \
	src/base/crc32.c \
	src/base/crc32.h \
	src/base/hash.c \
	src/base/hash.h \
	src/base/jsonl.c \
	src/base/jsonl.h \
	src/base/normals.h \
	src/base/normals_avx2.c \
	src/base/normals_avx512.c \
	src/base/normals_base.c \
	src/base/normals_body.h \
	src/base/random.c \
	src/base/random.h \
	src/base/sha256.c \
	src/base/sha256.h

check_PROGRAMS += \
	tests/test_clock \
	tests/test_crc32 \
	tests/test_jsonl \
	tests/test_random \
	tests/test_sha256
