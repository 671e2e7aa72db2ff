libzo_a_SOURCES += \
	offload/builder.c \
	offload/builder.h \
	offload/builder_buffers.c \
	offload/builder_decode.c \
	offload/builder_internal.h \
	offload/builder_nvme.c \
	offload/builder_run.c \
	offload/builder_save.c \
	offload/builder_update.c \
	offload/builder_weights.c \
	offload/checker.c \
	offload/executor.c \
	offload/executor.h \
	offload/executor_arenas.c \
	offload/executor_bounce.c \
	offload/executor_cpu.c \
	offload/executor_lanes.c \
	offload/executor_internal.h \
	offload/executor_nvme.c \
	offload/executor_serial.c \
	offload/executor_times.c \
	offload/gaps.c \
	offload/gaps.h \
	offload/layout.c \
	offload/layout.h \
	offload/order.c \
	offload/order.h \
	offload/placement.c \
	offload/placement.h \
	offload/placement_homes.c \
	offload/placement_homes.h \
	offload/placement_try.c \
	offload/placement_try.h \
	offload/planner.c \
	offload/planner.h \
	offload/profile.c \
	offload/profile.h \
	offload/record.h \
	offload/nvme.c \
	offload/nvme.h \
	offload/nvme_file.c \
	offload/nvme_internal.h \
	offload/nvme_pool.c \
	offload/nvme_ranges.c \
	offload/nvme_ranges.h \
	offload/schedule.c \
	offload/schedule.h \
	offload/stream.c \
	offload/stream.h \
	offload/staging.c \
	offload/staging.h \
	offload/simulator.c \
	offload/simulator.h \
	offload/simulator_cost.c \
	offload/simulator_internal.h \
	offload/simulator_result.c \
	offload/unit.c \
	offload/unit.h

if HAVE_LIBURING
libzo_a_SOURCES += offload/nvme_uring.c
else
libzo_a_SOURCES += offload/nvme_uring_stub.c
endif

check_PROGRAMS += \
	tests/test_arenas \
	tests/test_builder \
	tests/test_builder_homes \
	tests/test_builder_nvme \
	tests/test_place_nvme \
	tests/test_placement_monotone \
	tests/test_executor \
	tests/test_executor_bounce \
	tests/test_executor_failures \
	tests/test_executor_numa \
	tests/test_executor_times \
	tests/test_executor_parts \
	tests/test_gaps \
	tests/test_layout \
	tests/test_nvme \
	tests/test_nvme_faults \
	tests/test_nvme_file \
	tests/test_nvme_ranges \
	tests/test_order \
	tests/test_poison \
	tests/test_schedule_fuzz \
	tests/test_simulator \
	tests/test_stream \
	tests/test_unit
offload_help = tests/offload_help.c tests/offload_help.h
fake_model = tests/fake_model.c tests/fake_model.h $(offload_help)
builder_rig = tests/builder_rig.c tests/builder_rig.h $(fake_model)
tests_test_builder_SOURCES = tests/test_builder.c $(fake_model)
tests_test_builder_homes_SOURCES = tests/test_builder_homes.c $(builder_rig)
tests_test_place_nvme_SOURCES = tests/test_place_nvme.c $(fake_model)
tests_test_builder_nvme_SOURCES = tests/test_builder_nvme.c $(builder_rig) \
	$(nvme_help)
executor_bench = tests/executor_bench.c tests/executor_bench.h $(offload_help)
tests_test_arenas_SOURCES = tests/test_arenas.c $(executor_bench) $(fake_root)
tests_test_executor_SOURCES = tests/test_executor.c $(executor_bench)
tests_test_executor_bounce_SOURCES = tests/test_executor_bounce.c \
	$(executor_bench) $(nvme_help)
tests_test_executor_failures_SOURCES = tests/test_executor_failures.c \
	$(executor_bench)
tests_test_executor_numa_SOURCES = tests/test_executor_numa.c $(executor_bench)
tests_test_executor_times_SOURCES = tests/test_executor_times.c \
	$(executor_bench)
tests_test_executor_parts_SOURCES = tests/test_executor_parts.c \
	$(executor_bench)
tests_test_gaps_SOURCES = tests/test_gaps.c $(offload_help)
tests_test_layout_SOURCES = tests/test_layout.c $(offload_help)
tests_test_order_SOURCES = tests/test_order.c $(offload_help)
tests_test_poison_SOURCES = tests/test_poison.c $(offload_help)
tests_test_schedule_fuzz_SOURCES = tests/test_schedule_fuzz.c $(fake_model) \
	$(nvme_help)
tests_test_simulator_SOURCES = tests/test_simulator.c $(offload_help)
tests_test_stream_SOURCES = tests/test_stream.c $(offload_help)
nvme_help = tests/nvme_help.c tests/nvme_help.h
tests_test_nvme_SOURCES = tests/test_nvme.c $(nvme_help)
tests_test_nvme_file_SOURCES = tests/test_nvme_file.c $(nvme_help)
tests_test_nvme_faults_SOURCES = tests/test_nvme_faults.c $(nvme_help)
