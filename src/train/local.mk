libzo_a_SOURCES += \
	src/train/answer.c \
	src/train/answer.h \
	src/train/decide.c \
	src/train/decide.h \
	src/train/decoder.c \
	src/train/decoder.h \
	src/train/devices.c \
	src/train/devices.h \
	src/train/feed.c \
	src/train/feed.h \
	src/train/loss_scaler.c \
	src/train/loss_scaler.h \
	src/train/lr_schedule.c \
	src/train/lr_schedule.h \
	src/train/metrics.c \
	src/train/metrics.h \
	src/train/monitor.c \
	src/train/monitor.h \
	src/train/profile_file.c \
	src/train/profile_file.h \
	src/train/profile_measure.c \
	src/train/profile_measure.h \
	src/train/place_config.c \
	src/train/place_config.h \
	src/train/progress.c \
	src/train/progress.h \
	src/train/rates.c \
	src/train/rates.h \
	src/train/sampler.c \
	src/train/sampler.h \
	src/train/trace.c \
	src/train/trace.h \
	src/train/trainer.c \
	src/train/trainer.h \
	src/train/trainer_internal.h \
	src/train/trainer_plan.c \
	src/train/trainer_state.c \
	src/train/watch.c \
	src/train/watch.h \
	src/train/weights.c \
	src/train/weights.h

check_PROGRAMS += \
	tests/test_loss_scaler \
	tests/test_lr_schedule \
	tests/test_metrics \
	tests/test_monitor \
	tests/test_attention_rate \
	tests/test_place_config \
	tests/test_profile_file \
	tests/test_profile_measure \
	tests/test_progress \
	tests/test_sampler \
	tests/test_greedy \
	tests/test_watch \
	tests/test_vectors \
	tests/test_vectors_adamw \
	tests/test_vectors_bits \
	tests/test_vectors_half
tests_test_place_config_SOURCES = \
	tests/config_case.c \
	tests/config_case.h \
	tests/test_place_config.c
vector_run = tests/vector_run.c tests/vector_run.h tests/model_fixtures.c \
	tests/model_fixtures.h
tests_test_greedy_SOURCES = tests/test_greedy.c $(vector_run)
tests_test_vectors_SOURCES = tests/test_vectors.c $(vector_run)
tests_test_vectors_adamw_SOURCES = tests/test_vectors_adamw.c $(vector_run)
tests_test_vectors_half_SOURCES = tests/test_vectors_half.c $(vector_run)
tests_test_vectors_bits_SOURCES = tests/test_vectors_bits.c $(vector_run)

# Runs over a tiny model.
tiny_run = tests/tiny_run.c tests/tiny_run.h tests/model_fixtures.c \
	tests/model_fixtures.h
check_PROGRAMS += \
	tests/test_decoder \
	tests/test_devices \
	tests/test_moments \
	tests/test_steady \
	tests/test_trace \
	tests/test_trainer \
	tests/test_nvme_bits \
	tests/test_offload_bits \
	tests/test_resume \
	tests/test_save_list \
	tests/test_stages \
	tests/test_trainer_bits \
	tests/test_trainer_faults \
	tests/test_trainer_lists \
	tests/test_trainer_memory \
	tests/test_trainer_numeric \
	tests/test_weights
tests_test_decoder_SOURCES = tests/test_decoder.c $(tiny_run)
tests_test_moments_SOURCES = tests/test_moments.c $(tiny_run)
tests_test_steady_SOURCES = tests/test_steady.c $(tiny_run)
tests_test_trace_SOURCES = tests/test_trace.c $(tiny_run)
tests_test_trainer_SOURCES = tests/test_trainer.c $(tiny_run)
tests_test_stages_SOURCES = tests/test_stages.c $(tiny_run)
tests_test_nvme_bits_SOURCES = tests/test_nvme_bits.c tests/nvme_help.c \
	tests/nvme_help.h $(tiny_run)
tests_test_offload_bits_SOURCES = tests/test_offload_bits.c $(tiny_run)
state_help = tests/state_help.c tests/state_help.h
tests_test_resume_SOURCES = tests/test_resume.c $(state_help) $(tiny_run)
tests_test_save_list_SOURCES = tests/test_save_list.c tests/nvme_help.c \
	tests/nvme_help.h $(state_help) $(tiny_run)
tests_test_trainer_bits_SOURCES = tests/test_trainer_bits.c $(tiny_run)
tests_test_trainer_faults_SOURCES = tests/test_trainer_faults.c $(tiny_run)
tests_test_trainer_lists_SOURCES = tests/test_trainer_lists.c $(tiny_run)
tests_test_trainer_memory_SOURCES = tests/test_trainer_memory.c $(tiny_run)
tests_test_trainer_numeric_SOURCES = tests/test_trainer_numeric.c $(tiny_run)
tests_test_weights_SOURCES = tests/test_weights.c $(tiny_run)
