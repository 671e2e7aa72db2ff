/*
 * The check of collectives, on host devices whose collectives are broken one
 * way each: the fault is found, named, and nothing is left behind.
 */
#include "src/comm/comm_selftest.h"

#include <string.h>

#include "src/base/memory.h"
#include "src/device/stream_host.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

static const struct zo_device_ops *const host = &zo_device_host;

enum { RANKS = 3, PIECE = 8192 };

/* What is wrong: a byte of the piece that goes from 2 to 1, in collectives
 * of `broken_bytes`. */
static struct {
    size_t broken_bytes;
    bool breaks_exchange, breaks_all_gather, hangs, fails_check;
    struct help_gate gate; /* of what hangs */
    int collectives, aborts;
} fault;

static enum zo_status hang(struct zo_pool *pool, const void *args)
{
    (void)pool, (void)args;
    help_gate_pass(&fault.gate);
    return ZO_OK;
}

static enum zo_status fake_exchange(struct zo_comm *comm,
                                    const struct zo_comm_exchange_args *args)
{
    fault.collectives++;
    if (fault.hangs) {
        ZO_TRY(zo_stream_host_submit(args->streams[1], hang, NULL, 0));
    }
    ZO_TRY(zo_comm_host.exchange(comm, args));
    return fault.breaks_exchange && args->piece_bytes == fault.broken_bytes
               ? host->fill(args->streams[1],
                            (char *)args->targets[1] + 3 * args->piece_bytes -
                                1,
                            0x5a, 1)
               : ZO_OK;
}

/* A board that answers with what was there before. */
static enum zo_status
fake_all_gather(struct zo_comm *comm,
                const struct zo_comm_all_gather_args *args)
{
    fault.collectives++;
    ZO_TRY(zo_comm_host.all_gather(comm, args));
    return fault.breaks_all_gather && args->piece_bytes == fault.broken_bytes
               ? host->fill(args->streams[1],
                            (char *)args->buffers[1] + 2 * args->piece_bytes,
                            0xa5, args->piece_bytes)
               : ZO_OK;
}

static enum zo_status fake_check(struct zo_comm *comm)
{
    return fault.fails_check ? ZO_FAIL(ZO_E_COMM, "host:2: its part is gone")
                             : zo_comm_host.check(comm);
}

static void fake_abort(struct zo_comm *comm)
{
    fault.aborts++;
    help_gate_open(&fault.gate);
    zo_comm_host.abort(comm);
}

/* Runs the check, and once more on what the comm is then. */
static enum zo_status run_check(int ranks, size_t piece_bytes)
{
    struct zo_comm_ops fake = zo_comm_host;
    struct zo_machine machine;
    struct zo_comm_selftest_args args = {
        .comm_ops = &fake,
        .device_ops = host,
        .devices = machine.devices,
        .ranks = ranks,
        .piece_bytes_max = piece_bytes,
        .timeout_ns = fault.hangs ? 20000000 : 60000000000,
    };
    enum zo_status status;
    struct zo_err failure;

    fake.exchange = fake_exchange;
    fake.all_gather = fake_all_gather;
    fake.check = fake_check;
    fake.abort = fake_abort;
    ZO_TRY(help_machine_open(&machine, ranks, 7, 5));
    if (machine.comm == NULL) {
        ZO_TRY(zo_comm_host.open(machine.devices, ranks, &machine.comm));
    }
    args.comm = machine.comm;
    status = zo_comm_selftest(&args);
    failure = *zo_err_last();
    if (help_machine_bytes(&machine) != 0) {
        tap_fail(__FILE__, __LINE__, "memory that nobody gave back");
    }
    help_machine_close(&machine);
    return status == ZO_OK ? ZO_OK : zo_err_adopt(&failure);
}

static void set_fault(void)
{
    const struct help_gate gate = HELP_GATE;

    memset(&fault, 0, sizeof(fault));
    fault.gate = gate;
}

static void test_sound(void)
{
    for (int ranks = 1; ranks <= 5; ranks++) {
        set_fault();
        TAP_CHECK_INT(run_check(ranks, PIECE + 3), ZO_OK);
        TAP_CHECK_INT(fault.collectives, 6); /* of 8, 4096 and 8192 bytes */
        TAP_CHECK_INT(fault.aborts, 0);
    }
    set_fault();
    TAP_CHECK_INT(run_check(2, (size_t)4 << 20), ZO_OK);
    TAP_CHECK_INT(fault.collectives, 10);
}

static void check_found(const char *what)
{
    TAP_CHECK_INT(run_check(RANKS, PIECE), ZO_E_COMM);
    TAP_CHECK(strstr(zo_err_last()->text, what) != NULL);
    TAP_CHECK_INT(fault.aborts, 1);
    if (!fault.fails_check) {
        TAP_CHECK(strstr(zo_err_last()->text, "NCCL_P2P_DISABLE=1") != NULL);
    }
}

static void test_wrong_bytes(void)
{
    static const size_t sizes[] = {8, 4096, PIECE};

    for (size_t i = 0; i < TAP_COUNT(sizes); i++) {
        set_fault();
        fault.broken_bytes = sizes[i];
        fault.breaks_exchange = true;
        check_found("that host:2 sent to host:1, those from");
        TAP_CHECK(strstr(zo_err_last()->text, "exchange") != NULL);
        set_fault();
        fault.broken_bytes = sizes[i];
        fault.breaks_all_gather = true;
        check_found("that host:2 sent to host:1, those from 0 on came as "
                    "a5a5a5a5a5a5a5a5");
        TAP_CHECK(strstr(zo_err_last()->text, "all-gather") != NULL);
    }
}

static void test_hang(void)
{
    set_fault();
    fault.hangs = true;
    check_found("3 devices, host:0 to host:2, have not come within 0.0 s");
    TAP_CHECK(!help_gate_failed(&fault.gate));
}

/* What the library says of itself ends the wait. */
static void test_failed_check(void)
{
    set_fault();
    fault.hangs = true;
    fault.fails_check = true;
    check_found("host:2: its part is gone");
    TAP_CHECK(!help_gate_failed(&fault.gate));
}

static void test_failed_allocations(void)
{
    enum zo_status status = ZO_E_NOMEM;
    uint64_t nth = 0;

    while (status != ZO_OK) {
        struct zo_machine machine;
        struct zo_comm_selftest_args args = {
            .comm_ops = &zo_comm_host,
            .device_ops = host,
            .devices = machine.devices,
            .ranks = 2,
            .piece_bytes_max = 64,
            .timeout_ns = 60000000000,
        };

        TAP_CHECK(nth < 64);
        TAP_CHECK_INT(help_machine_open(&machine, 2, 7, 0), ZO_OK);
        args.comm = machine.comm;
        zo_memory_fail_at(++nth);
        status = zo_comm_selftest(&args);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM ||
                  status == ZO_E_DEVMEM);
        TAP_CHECK_INT(help_machine_bytes(&machine), 0);
        help_machine_close(&machine);
    }
    TAP_CHECK(nth > 8);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"sound collectives pass, in sizes up to the largest", test_sound},
        {"one wrong byte is found, and both devices are named",
         test_wrong_bytes},
        {"what never ends is aborted", test_hang},
        {"what the collectives say ends the wait", test_failed_check},
        {"each failed allocation is clean", test_failed_allocations},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
