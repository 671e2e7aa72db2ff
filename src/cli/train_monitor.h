/*
 * What the JSON's sections tensorboard and csv_monitor ask a run to write.
 *
 * Layer 8, private to src/cli/train*.c.
 */
#ifndef ZO_SRC_CLI_TRAIN_MONITOR_H
#define ZO_SRC_CLI_TRAIN_MONITOR_H

#include "src/cli/setup.h"
#include "src/train/monitor.h"

ZO_C_BEGIN

/* Whether it can be had; nothing is made.  As zo_monitor_check(). */
enum zo_status zo_cli_check_monitor(const struct zo_setup *setup) ZO_MUST_CHECK;

/* The caller owns *monitor_out, and ends it with zo_monitor_close(); it stays
 * as it is when nothing is asked for.  As zo_monitor_open(). */
enum zo_status
zo_cli_open_monitor(const struct zo_setup *setup,
                    struct zo_monitor **monitor_out) ZO_MUST_CHECK;

ZO_C_END

#endif
