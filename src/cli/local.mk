# Sources and tests of this folder.
libzo_a_SOURCES += \
	src/cli/answers.c \
	src/cli/answers.h \
	src/cli/bench.c \
	src/cli/bench_frontier.c \
	src/cli/bench_key.c \
	src/cli/bench_key.h \
	src/cli/bench_rates.c \
	src/cli/bench_rows.c \
	src/cli/bench_rows.h \
	src/cli/bench_run.c \
	src/cli/bench_run.h \
	src/cli/bench_stages.c \
	src/cli/bench_sweep.c \
	src/cli/bench.h \
	src/cli/bench_nvme.c \
	src/cli/cli.h \
	src/cli/commands.c \
	src/cli/doctor.c \
	src/cli/doctor.h \
	src/cli/doctor_faults.c \
	src/cli/doctor_gpus.c \
	src/cli/doctor_host.c \
	src/cli/doctor_print.c \
	src/cli/doctor_profile.c \
	src/cli/eval.c \
	src/cli/export.c \
	src/cli/estimate.c \
	src/cli/estimate.h \
	src/cli/gains.c \
	src/cli/gains.h \
	src/cli/generate.c \
	src/cli/init.c \
	src/cli/inputs.c \
	src/cli/inputs.h \
	src/cli/inspect.c \
	src/cli/inspect.h \
	src/cli/inspect_files.c \
	src/cli/inspect_groups.c \
	src/cli/inspect_model.c \
	src/cli/inspect_state.c \
	src/cli/machine.c \
	src/cli/plan.c \
	src/cli/output_folder.c \
	src/cli/output_folder.h \
	src/cli/predict.c \
	src/cli/predict.h \
	src/cli/plan_table.c \
	src/cli/plan_table.h \
	src/cli/print.c \
	src/cli/print_hints.c \
	src/cli/print_hints.h \
	src/cli/print_place.c \
	src/cli/print_place.h \
	src/cli/print_plan.c \
	src/cli/print_save.c \
	src/cli/print_save.h \
	src/cli/print_time.c \
	src/cli/print_time.h \
	src/cli/prompts.c \
	src/cli/prompts.h \
	src/cli/print_units.c \
	src/cli/print_units.h \
	src/cli/report.c \
	src/cli/report_bars.c \
	src/cli/report_bench.c \
	src/cli/report_chart.c \
	src/cli/report_data.h \
	src/cli/report_figures.h \
	src/cli/report_page.c \
	src/cli/report_page.h \
	src/cli/report_read.c \
	src/cli/report_runs.c \
	src/cli/report_scale.c \
	src/cli/report_scale.h \
	src/cli/report_step.c \
	src/cli/report_trace.c \
	src/cli/saving.c \
	src/cli/saving_begin.c \
	src/cli/saving.h \
	src/cli/saving_settings.c \
	src/cli/saving_thread.c \
	src/cli/setup.c \
	src/cli/setup_nvme.c \
	src/cli/setup.h \
	src/cli/signals.c \
	src/cli/signals.h \
	src/cli/slow_nvme.c \
	src/cli/slow_nvme.h \
	src/cli/train.c \
	src/cli/train_monitor.c \
	src/cli/train_monitor.h \
	src/cli/variant.c \
	src/cli/variant.h

check_PROGRAMS += \
	tests/test_cli_memory \
	tests/test_bench_rows \
	tests/test_doctor \
	tests/test_estimate \
	tests/test_inspect_groups \
	tests/test_print \
	tests/test_print_place \
	tests/test_report \
	tests/test_signals \
	tests/test_slow_nvme

fake_root = tests/fake_root.c tests/fake_root.h
tests_test_doctor_SOURCES = tests/test_doctor.c $(fake_root)

dist_check_SCRIPTS += \
	tests/bench.sh \
	tests/bench_nvme.sh \
	tests/answers.sh \
	tests/kill_loop.sh \
	tests/main_job.sh \
	tests/doctor.sh \
	tests/nvme_train.sh \
	tests/parity.sh \
	tests/plan_table.sh \
	tests/looking.sh \
	tests/plan_time.sh \
	tests/resume.sh \
	tests/test_cli.sh

# What this build computes, for tests/parity.sh.
EXTRA_PROGRAMS += tests/print_logits
tests_print_logits_SOURCES = tests/print_logits.c
EXTRA_DIST += tests/parity.py
