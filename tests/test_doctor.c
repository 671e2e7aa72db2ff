/*
 * doctor: what it reads off made-up machines, what it measures, and the fault
 * that it makes of each thing that is wrong.
 */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/base/uring_probe.h"
#include "src/cli/doctor.h"
#include "tests/fake_root.h"
#include "tests/tap.h"

#define GIB      ((uint64_t)1 << 30)
#define PROBE    ((size_t)4 << 20)
#define FAILURES 200

/* ---- made-up /proc and /sys ------------------------------------------- */

static struct zo_system look(void)
{
    struct zo_system system;

    zo_system_read(fake_root(), &system);
    return system;
}

static void test_nothing(void)
{
    struct zo_system system;

    fake_root_clear();
    system = look();
    TAP_CHECK_INT(system.memory_bytes, 0);
    TAP_CHECK(system.group_limit_bytes == ZO_SYSTEM_NO_LIMIT);
    TAP_CHECK(system.group_free_bytes == ZO_SYSTEM_NO_LIMIT);
    TAP_CHECK(zo_system_room(&system) == ZO_SYSTEM_NO_LIMIT);
    TAP_CHECK(system.lock_limit_bytes == ZO_SYSTEM_NO_LIMIT);
    TAP_CHECK(!system.is_lock_privileged);
    TAP_CHECK_INT(system.huge_pages, ZO_HUGE_PAGES_UNKNOWN);
    TAP_CHECK_INT(system.numa_nodes, 1);
    TAP_CHECK_INT(system.quota_cores, 0);
    TAP_CHECK_INT(system.gpus_on_bus, 0);
    TAP_CHECK(system.gpu_driver[0] == '\0');
}

static void test_memory(void)
{
    struct zo_system system;

    fake_root_clear();
    TAP_CHECK(fake_root_put("proc/meminfo", "MemTotal:       1024 kB\n"
                                            "MemFree:           1 kB\n"
                                            "MemAvailable:    512 kB\n"));
    system = look();
    TAP_CHECK_INT(system.memory_bytes, 1024 * 1024);
    TAP_CHECK_INT(system.available_bytes, 512 * 1024);
    TAP_CHECK_INT(zo_system_room(&system), 512 * 1024);
}

/* Pages of files can be dropped; the tightest group binds, not the lowest. */
static void test_room(void)
{
    struct zo_system system;

    fake_root_clear();
    TAP_CHECK(fake_root_put("proc/meminfo", "MemAvailable: 4000 kB\n"));
    TAP_CHECK(fake_root_put("proc/self/cgroup", "0::/a/b\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/memory.max", "1000000\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/memory.current", "900000\n"));
    TAP_CHECK(
        fake_root_put("sys/fs/cgroup/a/memory.stat",
                      "anon 100\ninactive_file 300000\nactive_file 20000\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/b/memory.max", "800000\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/b/memory.current", "100000\n"));
    system = look();
    TAP_CHECK_INT(system.group_limit_bytes, 800000);
    TAP_CHECK_INT(system.group_free_bytes, 420000);
    TAP_CHECK_INT(zo_system_room(&system), 420000);
    fake_root_clear();
    TAP_CHECK(fake_root_put("proc/self/cgroup", "4:memory:/x\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                            "2000000\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/memory/x/memory.usage_in_bytes",
                            "2500000\n"));
    TAP_CHECK_INT(look().group_free_bytes, 0);
    TAP_CHECK(fake_root_put("sys/fs/cgroup/memory/x/memory.stat",
                            "inactive_file 5\ntotal_inactive_file 700000\n"));
    TAP_CHECK_INT(look().group_free_bytes, 200000);
    fake_root_clear();
}

/* The smallest of a group and its parents binds. */
static void test_group_v2(void)
{
    struct zo_system system;

    fake_root_clear();
    TAP_CHECK(fake_root_put("proc/self/cgroup", "0::/a/b\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/memory.max", "1000000\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/memory.current", "7000\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/b/memory.max", "max\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/b/memory.current", "5000\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"));
    system = look();
    TAP_CHECK_INT(system.group_limit_bytes, 1000000);
    TAP_CHECK_INT(system.group_used_bytes, 7000);
    TAP_CHECK_INT(system.quota_cores, 2);
}

static void test_group_v1(void)
{
    struct zo_system system;

    fake_root_clear();
    TAP_CHECK(fake_root_put("proc/self/cgroup",
                            "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/memory/memory.limit_in_bytes",
                            "9223372036854771712\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                            "2000000\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/memory/x/memory.usage_in_bytes",
                            "3000\n"));
    system = look();
    TAP_CHECK_INT(system.group_limit_bytes, 2000000);
    TAP_CHECK_INT(system.group_used_bytes, 3000);
}

/* Version 1 writes no limit as a huge one; a container misses its path. */
static void test_group_unlimited(void)
{
    fake_root_clear();
    TAP_CHECK(fake_root_put("proc/self/cgroup", "4:memory:/not/there\n"));
    TAP_CHECK(fake_root_put("sys/fs/cgroup/memory/memory.limit_in_bytes",
                            "9223372036854771712\n"));
    TAP_CHECK(look().group_limit_bytes == ZO_SYSTEM_NO_LIMIT);
    TAP_CHECK(fake_root_put("sys/fs/cgroup/memory/memory.limit_in_bytes",
                            "4000000\n"));
    TAP_CHECK_INT(look().group_limit_bytes, 4000000);
}

static void test_lock_limit(void)
{
    struct zo_system system;

    fake_root_clear();
    TAP_CHECK(
        fake_root_put("proc/self/limits",
                      "Limit             Soft Limit    Hard Limit    Units\n"
                      "Max open files    1024          4096          files\n"
                      "Max locked memory 8388608       16777216      bytes\n"));
    TAP_CHECK(fake_root_put("proc/self/status",
                            "Name:\tx\nCapEff:\t0000000000004000\n"));
    system = look();
    TAP_CHECK_INT(system.lock_limit_bytes, 8388608);
    TAP_CHECK(system.is_lock_privileged);
    TAP_CHECK(
        fake_root_put("proc/self/limits",
                      "Max locked memory unlimited     unlimited     bytes\n"));
    TAP_CHECK(fake_root_put("proc/self/status", "CapEff:\t0000000000003fff\n"));
    system = look();
    TAP_CHECK(system.lock_limit_bytes == ZO_SYSTEM_NO_LIMIT);
    TAP_CHECK(!system.is_lock_privileged);
}

static void test_huge_pages(void)
{
    static const char name[] = "sys/kernel/mm/transparent_hugepage/enabled";

    fake_root_clear();
    TAP_CHECK(fake_root_put(name, "always madvise [never]\n"));
    TAP_CHECK_INT(look().huge_pages, ZO_HUGE_PAGES_NEVER);
    TAP_CHECK(fake_root_put(name, "always [madvise] never\n"));
    TAP_CHECK_INT(look().huge_pages, ZO_HUGE_PAGES_MADVISE);
    TAP_CHECK(fake_root_put(name, "[always] madvise never\n"));
    TAP_CHECK_INT(look().huge_pages, ZO_HUGE_PAGES_ALWAYS);
    TAP_CHECK(fake_root_put(name, "nonsense\n"));
    TAP_CHECK_INT(look().huge_pages, ZO_HUGE_PAGES_UNKNOWN);
}

static void test_numa(void)
{
    static const char name[] = "sys/devices/system/node/online";

    fake_root_clear();
    TAP_CHECK(fake_root_put(name, "0-1,4\n"));
    TAP_CHECK_INT(look().numa_nodes, 3);
    TAP_CHECK(fake_root_put(name, "5-2,,x\n"));
    TAP_CHECK_INT(look().numa_nodes, 1);
}

static void test_bus(void)
{
    struct zo_system system;

    fake_root_clear();
    TAP_CHECK(
        fake_root_put("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"));
    TAP_CHECK(
        fake_root_put("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"));
    TAP_CHECK(
        fake_root_put("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n"));
    TAP_CHECK(
        fake_root_put("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n"));
    TAP_CHECK(
        fake_root_put("sys/bus/pci/devices/0000:02:00.0/vendor", "0x1234\n"));
    TAP_CHECK(
        fake_root_put("sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n"));
    TAP_CHECK(fake_root_put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
        "580.95.05  Release Build\nGCC version: 12.2.0\n"));
    system = look();
    TAP_CHECK_INT(system.gpus_on_bus, 1);
    TAP_CHECK(strcmp(system.gpu_driver, "580.95.05") == 0);
}

/* ---- io_uring --------------------------------------------------------- */

static int ring_enosys(unsigned entries, void *params)
{
    (void)entries, (void)params;
    errno = ENOSYS;
    return -1;
}

static int ring_eperm(unsigned entries, void *params)
{
    (void)entries, (void)params;
    errno = EPERM;
    return -1;
}

static int ring_works(unsigned entries, void *params)
{
    (void)entries, (void)params;
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void test_uring(void)
{
    TAP_CHECK_INT(zo_uring_probe_run(ring_enosys), ENOSYS);
    TAP_CHECK_INT(zo_uring_probe_run(ring_eperm), EPERM);
    TAP_CHECK_INT(zo_uring_probe_run(ring_works), 0);
    TAP_CHECK(strstr(zo_uring_probe_cure(ENOSYS), "ENOSYS") != NULL);
    TAP_CHECK(strstr(zo_uring_probe_cure(EPERM), "io_uring_disabled") != NULL);
    TAP_CHECK(zo_uring_probe_cure(0)[0] == '\0');
}

/* The ring that worked is closed again. */
static void test_uring_closes(void)
{
    const int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int after;

    (void)close(before);
    (void)zo_uring_probe_run(ring_works);
    (void)zo_uring_probe_run(NULL);
    after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(after);
    TAP_CHECK_INT(after, before);
}

/* ---- rates ------------------------------------------------------------ */

static int entries_of(const char *folder)
{
    DIR *stream = opendir(folder);
    int count = 0;

    while (stream != NULL && readdir(stream) != NULL) {
        count++;
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    return count;
}

static void test_disk(void)
{
    struct zo_disk_rates rates = {0};
    struct zo_pool *pool = NULL;
    enum zo_status status = ZO_E_NOMEM;

    fake_root_clear();
    TAP_CHECK_INT(zo_pool_open(1, &pool), ZO_OK);
    for (uint64_t nth = 1; status == ZO_E_NOMEM && nth < FAILURES; nth++) {
        zo_memory_fail_at(nth);
        status = zo_disk_probe_run(fake_root(), pool, 2 * PROBE, &rates);
        zo_memory_fail_at(0);
        TAP_CHECK_INT(entries_of(fake_root()), 2); /* . and .. */
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(rates.write_bytes_per_second > 0.0);
    TAP_CHECK(rates.read_bytes_per_second > 0.0);
    TAP_CHECK(rates.free_bytes > 0);
    TAP_CHECK_INT(zo_disk_probe_run("no/such/folder", pool, PROBE, &rates),
                  ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, "no/such/folder") != NULL);
    TAP_CHECK_INT(zo_disk_probe_run(fake_root(), pool, (size_t)1 << 60, &rates),
                  ZO_E_IO);
    TAP_CHECK(strstr(zo_err_last()->text, "free") != NULL);
    TAP_CHECK_INT(entries_of(fake_root()), 2);
    zo_pool_close(pool);
}

static void test_memory_rate(void)
{
    struct zo_pool *pool = NULL;
    enum zo_status status = ZO_E_NOMEM;
    double rate = 0.0;

    TAP_CHECK_INT(zo_pool_open(1, &pool), ZO_OK);
    for (uint64_t nth = 1; status == ZO_E_NOMEM && nth < FAILURES; nth++) {
        zo_memory_fail_at(nth);
        status = zo_rate_memory(pool, PROBE + 12345, &rate);
        zo_memory_fail_at(0);
        TAP_CHECK((rate > 0.0) == (status == ZO_OK));
    }
    TAP_CHECK_INT(status, ZO_OK);
    zo_pool_close(pool);
}

static void test_copy_rates(void)
{
    struct zo_device *devices[2] = {NULL, NULL};
    struct zo_copy_rates rates = {0};
    enum zo_status status = ZO_E_NOMEM;

    TAP_CHECK_INT(zo_device_host.open(0, NULL, &devices[0]), ZO_OK);
    TAP_CHECK_INT(zo_device_host.open(1, NULL, &devices[1]), ZO_OK);
    for (uint64_t nth = 1; status != ZO_OK && nth < FAILURES; nth++) {
        zo_memory_fail_at(nth);
        status = zo_rate_copies(&zo_device_host, devices, 2, PROBE, &rates);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM ||
                  status == ZO_E_DEVMEM);
        TAP_CHECK((rates.to_devices > 0.0) == (status == ZO_OK));
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(rates.from_devices > 0.0);
    for (int i = 0; i < 2; i++) {
        TAP_CHECK_INT(zo_device_host.mem_allocated(devices[i], ZO_MEM_DEVICE),
                      0);
        TAP_CHECK_INT(zo_device_host.mem_allocated(devices[i], ZO_MEM_PINNED),
                      0);
        zo_device_host.close(devices[i]);
    }
}

/* ---- faults ----------------------------------------------------------- */

/* A machine with `gpus` H200 on which all is well. */
static struct zo_doctor sound(int gpus)
{
    struct zo_doctor doctor = {
        .system = {.memory_bytes = 512 * GIB,
                   .available_bytes = 500 * GIB,
                   .group_limit_bytes = ZO_SYSTEM_NO_LIMIT,
                   .lock_limit_bytes = ZO_SYSTEM_NO_LIMIT,
                   .huge_pages = ZO_HUGE_PAGES_MADVISE,
                   .numa_nodes = 1,
                   .gpus_on_bus = gpus,
                   .gpu_driver = "580.95.05"},
        .affinity_cores = 16,
        .usable_cores = 16,
        .simd = "avx512",
        .is_liburing_built = true,
        .folder = ".",
        .disk = {.is_direct = true,
                 .write_bytes_per_second = 1e9,
                 .read_bytes_per_second = 2e9},
        .platform = {.driver_version = 13000,
                     .runtime_version = 13000,
                     .targets = "80 90 ptx90",
                     .refusal = ""},
        .gpu_count = gpus,
    };

    for (int i = 0; i < gpus; i++) {
        doctor.gpus[i] = (struct zo_doctor_gpu){
            .is_open = true,
            .name = "NVIDIA H200",
            .bus_id = "0000:01:00.0",
            .memory_bytes = 140 * GIB,
            .peer_mask = UINT64_MAX & ~(UINT64_C(1) << i),
            .capability = 90,
            .match = ZO_TARGET_BINARY,
            .bus = {55e9, 55e9},
        };
    }
    return doctor;
}

/* The faults of a machine are as many as that, and the first has each of the
 * pieces in it. */
static bool finds(struct zo_doctor *doctor, size_t count, const char *piece,
                  const char *other)
{
    const char *first;
    bool is_so;

    zo_notes_fini(&doctor->faults);
    if (zo_doctor_find_faults(doctor) != ZO_OK) {
        return false;
    }
    first = doctor->faults.count > 0 ? doctor->faults.items[0].text : "";
    is_so = doctor->faults.count == count && strstr(first, piece) != NULL &&
            strstr(first, other) != NULL;
    for (size_t i = 0; i < doctor->faults.count && !is_so; i++) {
        (void)printf("# fault: %s\n", doctor->faults.items[i].text);
    }
    zo_notes_fini(&doctor->faults);
    return is_so;
}

static void test_sound(void)
{
    struct zo_doctor none = sound(0), many = sound(8);

    TAP_CHECK(finds(&none, 0, "", ""));
    TAP_CHECK(finds(&many, 0, "", ""));
}

static void test_limits(void)
{
    struct zo_doctor doctor = sound(0);

    doctor.system.group_limit_bytes = 16 * GIB;
    TAP_CHECK(finds(&doctor, 1, "16.00 GiB", "--memory"));
    doctor = sound(0);
    doctor.system.quota_cores = 4;
    TAP_CHECK(finds(&doctor, 1, "4 of 16 cores", "--cpus"));
    doctor = sound(0);
    doctor.system.lock_limit_bytes = 65536;
    TAP_CHECK(finds(&doctor, 1, "64 KiB", "ulimit -l"));
    doctor.system.is_lock_privileged = true;
    TAP_CHECK(finds(&doctor, 0, "", ""));
    doctor.system.huge_pages = ZO_HUGE_PAGES_NEVER;
    TAP_CHECK(finds(&doctor, 1, "huge pages", "madvise"));
}

static void test_disk_faults(void)
{
    struct zo_doctor doctor = sound(0);

    doctor.uring_error = ENOSYS;
    TAP_CHECK(finds(&doctor, 1, "io_uring", "Linux 5.1"));
    doctor = sound(0);
    doctor.is_liburing_built = false;
    TAP_CHECK(finds(&doctor, 1, "liburing", "configure"));
    doctor = sound(0);
    doctor.disk.is_direct = false;
    TAP_CHECK(finds(&doctor, 1, "O_DIRECT", "--nvme"));
    doctor.disk.write_bytes_per_second = 0.0; /* not measured */
    TAP_CHECK(finds(&doctor, 0, "", ""));
}

static void test_driver(void)
{
    struct zo_doctor doctor = sound(0);

    doctor.system.gpus_on_bus = 2;
    doctor.platform.driver_version = 11000;
    TAP_CHECK(finds(&doctor, 1, "serves CUDA 11.0", "580.65.06"));
    TAP_CHECK(finds(&doctor, 1, "runs on CUDA 13.0", "CUDA toolkit 11"));
    doctor.platform.driver_version = 0;
    TAP_CHECK(finds(&doctor, 1, "2 NVIDIA GPUs without a driver", "580.65.06"));
    doctor.platform.runtime_version = 0;
    TAP_CHECK(finds(&doctor, 1, "without CUDA", "configure"));
    doctor = sound(0);
    doctor.visible = "9";
    TAP_CHECK(finds(&doctor, 1, "CUDA_VISIBLE_DEVICES=9", "nvidia-smi"));
    doctor = sound(0);
    doctor.system.gpus_on_bus = 1;
    doctor.platform.refusal = "no CUDA-capable device is detected";
    TAP_CHECK(finds(&doctor, 1, "no CUDA-capable device", "--gpus all"));
}

/* Minor versions of one major one go together, both ways. */
static void test_minor_versions(void)
{
    struct zo_doctor doctor = sound(1);

    doctor.platform.runtime_version = 13010;
    TAP_CHECK(finds(&doctor, 0, "", ""));
    doctor.platform.driver_version = 14000;
    TAP_CHECK(finds(&doctor, 0, "", ""));
    /* But an older driver compiles no newer PTX. */
    doctor.platform.driver_version = 13000;
    doctor.gpus[0].match = ZO_TARGET_PTX;
    TAP_CHECK(finds(&doctor, 1, "PTX of CUDA 13.1", "--with-cuda-arch=90"));
}

static void test_gpu_faults(void)
{
    struct zo_doctor doctor = sound(2);

    doctor.gpus[1].match = ZO_TARGET_NONE;
    TAP_CHECK(finds(&doctor, 1, "cuda:1 is of architecture 9.0",
                    "--with-cuda-arch=90"));
    doctor = sound(2);
    doctor.gpus[0].capability = 75;
    TAP_CHECK(finds(&doctor, 1, "cuda:0 (7.5)", "--fp16"));
    doctor = sound(2);
    doctor.gpus[1].bus.from_devices = 20e9;
    TAP_CHECK(finds(&doctor, 1, "cuda:1", "x16"));
    doctor = sound(3);
    doctor.gpus[0].peer_mask = 1 << 1;
    TAP_CHECK(finds(&doctor, 1, "1 of 3 pairs", "NVLink"));
    doctor = sound(2);
    doctor.gpus[0].is_open = false; /* a fault says why, already */
    doctor.gpus[0].capability = 0;
    TAP_CHECK(finds(&doctor, 0, "", ""));
}

static void test_faults_memory(void)
{
    struct zo_doctor doctor = sound(2);
    enum zo_status status = ZO_E_NOMEM;

    doctor.uring_error = EPERM;
    doctor.gpus[1].match = ZO_TARGET_NONE;
    for (uint64_t nth = 1; status != ZO_OK && nth < FAILURES; nth++) {
        zo_memory_fail_at(nth);
        status = zo_doctor_find_faults(&doctor);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
        zo_notes_fini(&doctor.faults);
    }
    TAP_CHECK_INT(status, ZO_OK);
}

/* ---- what is printed -------------------------------------------------- */

typedef void (*print_fn)(FILE *file, const struct zo_doctor *doctor);

static bool prints(print_fn print, const struct zo_doctor *doctor,
                   const char *piece)
{
    char text[8192] = "";
    FILE *file = fmemopen(text, sizeof(text), "w");

    if (file == NULL) {
        return false;
    }
    print(file, doctor);
    (void)fclose(file);
    return strstr(text, piece) != NULL;
}

static void print_profile(FILE *file, const struct zo_doctor *doctor)
{
    if (zo_doctor_print_profile(file, -1, "a profile", doctor) != ZO_OK) {
        (void)fputs("failed", file);
    }
}

static void test_print(void)
{
    const struct zo_doctor doctor = sound(2);

    TAP_CHECK(prints(zo_doctor_print, &doctor,
                     "runtime      CUDA 13.0; needs a driver for 13.0, from "
                     "580.65.06\n"
                     "driver       580.95.05, for CUDA 13.0\n"
                     "built for    GPU architectures 80 90 ptx90\n"));
    TAP_CHECK(prints(zo_doctor_print, &doctor,
                     "cuda:1       NVIDIA H200, 9.0 (binary), 140.00 GiB"));
    TAP_CHECK(prints(zo_doctor_print, &doctor, "copies directly to 0\n"));
}

/* The last line: how many faults, and what would train. */
static void test_verdict(void)
{
    struct zo_doctor doctor = sound(2);

    TAP_CHECK(prints(zo_doctor_print, &doctor,
                     "verdict      no faults; training runs on 2 GPUs\n"));
    doctor.gpus[0].is_open = false;
    TAP_CHECK(zo_note_add(&doctor.faults, ZO_NOTE_WARN, "bad") == ZO_OK);
    TAP_CHECK(prints(zo_doctor_print, &doctor,
                     "fault        bad\nverdict      1 fault, with what cures "
                     "it; as it is, training runs on 1 GPU\n"));
    doctor.gpus[1].match = ZO_TARGET_NONE;
    TAP_CHECK(zo_note_add(&doctor.faults, ZO_NOTE_WARN, "worse") == ZO_OK);
    TAP_CHECK(prints(zo_doctor_print, &doctor,
                     "verdict      2 faults, with what cures them; as it is, "
                     "training runs on the processor\n"));
    zo_notes_fini(&doctor.faults);
}

static void test_profile(void)
{
    struct zo_doctor doctor = sound(2);

    doctor.folder = "a-folder-of-mine";
    TAP_CHECK(
        prints(print_profile, &doctor, "{\"format\":1,\"kind\":\"machine\","));
    TAP_CHECK(prints(print_profile, &doctor, "\"peers\":[0]"));
    TAP_CHECK(prints(print_profile, &doctor, "\"group_limit_bytes\":null"));
    TAP_CHECK(
        prints(print_profile, &doctor, "\"h2d_bytes_per_second_all\":null"));
    TAP_CHECK(!prints(print_profile, &doctor, "a-folder-of-mine"));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a machine that says nothing is unknown, and not limited",
         test_nothing},
        {"memory is that of meminfo", test_memory},
        {"what groups leave, without the pages of files", test_room},
        {"the smallest limit of a version 2 group and its parents binds",
         test_group_v2},
        {"the limit of a version 1 group is found", test_group_v1},
        {"a huge limit is none, and the mount stands for a missing group",
         test_group_unlimited},
        {"the limit of locked memory, and whether it binds", test_lock_limit},
        {"the setting of huge pages", test_huge_pages},
        {"NUMA nodes are counted", test_numa},
        {"GPUs on the bus, and their driver", test_bus},
        {"a refused ring is named by its errno", test_uring},
        {"a ring that works is closed again", test_uring_closes},
        {"the disk is measured and nothing is left, whatever fails", test_disk},
        {"memory is measured, whatever fails before", test_memory_rate},
        {"copies are measured, and their memory returned", test_copy_rates},
        {"a sound machine has no fault", test_sound},
        {"limits are faults with their cure", test_limits},
        {"faults of io_uring and the disk", test_disk_faults},
        {"an old driver is named with both versions and the needed one",
         test_driver},
        {"minor versions go together, PTX does not", test_minor_versions},
        {"faults of single GPUs", test_gpu_faults},
        {"no memory for a fault is a clean failure", test_faults_memory},
        {"facts are printed a line each", test_print},
        {"the last line says what would train", test_verdict},
        {"the profile holds facts, and no path", test_profile},
    };
    int code;

    if (fake_root() == NULL) {
        return 99;
    }
    code = tap_run(cases, TAP_COUNT(cases));
    fake_root_remove();
    return code;
}
