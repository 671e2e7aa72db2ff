#include "tests/nvme_help.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool make_folder(const char *path)
{
    struct stat info;

    return mkdir(path, 0700) == 0 ||
           (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

const char *nvme_help_disk(void)
{
    static char path[4096];
    const char *build = getenv("BUILDDIR");

    (void)snprintf(path, sizeof(path), "%s/tests/nvme.%d",
                   build != NULL ? build : ".", (int)getpid());
    return make_folder(path) ? path : NULL;
}

const char *nvme_help_memory(void)
{
    static char path[64];

    (void)snprintf(path, sizeof(path), "/dev/shm/zero-offload-test.%d",
                   (int)getpid());
    return make_folder(path) ? path : NULL;
}

void nvme_help_remove(void)
{
    (void)rmdir(nvme_help_disk());
    if (nvme_help_memory() != NULL) {
        (void)rmdir(nvme_help_memory());
    }
}

void nvme_wait_init(struct nvme_wait *wait)
{
    memset(wait, 0, sizeof(*wait));
    (void)pthread_mutex_init(&wait->lock, NULL);
    (void)pthread_cond_init(&wait->changed, NULL);
}

void nvme_wait_fini(struct nvme_wait *wait)
{
    (void)pthread_cond_destroy(&wait->changed);
    (void)pthread_mutex_destroy(&wait->lock);
}

void nvme_wait_for(struct nvme_wait *wait, int count)
{
    (void)pthread_mutex_lock(&wait->lock);
    while (wait->under_way > count) {
        (void)pthread_cond_wait(&wait->changed, &wait->lock);
    }
    (void)pthread_mutex_unlock(&wait->lock);
}

static void on_done(void *context, enum zo_status status)
{
    struct nvme_wait *wait = context;

    (void)pthread_mutex_lock(&wait->lock);
    wait->under_way--;
    if (status != ZO_OK && wait->failed++ == 0) {
        wait->failure = *zo_err_last();
    }
    (void)pthread_cond_broadcast(&wait->changed);
    (void)pthread_mutex_unlock(&wait->lock);
}

struct zo_nvme_request nvme_help_request(struct nvme_wait *wait, bool writes,
                                         uint64_t offset, void *memory,
                                         size_t bytes)
{
    return (struct zo_nvme_request){
        .writes = writes,
        .offset = offset,
        .memory = memory,
        .bytes = bytes,
        .name = "unit 7's first moments",
        .done = on_done,
        .context = wait,
    };
}

enum zo_status nvme_help_start(struct zo_nvme *nvme, struct nvme_wait *wait,
                               bool writes, uint64_t offset, void *memory,
                               size_t bytes)
{
    const struct zo_nvme_request request =
        nvme_help_request(wait, writes, offset, memory, bytes);
    enum zo_status status;

    (void)pthread_mutex_lock(&wait->lock);
    wait->under_way++;
    (void)pthread_mutex_unlock(&wait->lock);
    status = zo_nvme_submit(nvme, &request);
    if (status != ZO_OK) {
        (void)pthread_mutex_lock(&wait->lock);
        wait->under_way--;
        (void)pthread_mutex_unlock(&wait->lock);
    }
    return status;
}

enum zo_status nvme_help_move(struct zo_nvme *nvme, bool writes,
                              uint64_t offset, void *memory, size_t bytes)
{
    struct nvme_wait wait;
    enum zo_status status;

    nvme_wait_init(&wait);
    status = nvme_help_start(nvme, &wait, writes, offset, memory, bytes);
    nvme_wait_for(&wait, 0);
    nvme_wait_fini(&wait);
    if (status == ZO_OK && wait.failed > 0) {
        status = zo_err_adopt(&wait.failure);
    }
    return status;
}

static int look_at(int fd, const char *directory)
{
    char link[64], path[4096], real[4096];
    ssize_t length;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    if (length <= 0 || realpath(directory, real) == NULL) {
        return -1;
    }
    path[length] = '\0';
    return strncmp(path, real, strlen(real)) == 0 && path[strlen(real)] == '/'
               ? fd
               : -1;
}

int nvme_help_file(const char *directory)
{
    for (int fd = 0; fd < 256; fd++) {
        if (look_at(fd, directory) >= 0) {
            return fd;
        }
    }
    return -1;
}

int nvme_help_reopen(const char *directory)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d",
                   nvme_help_file(directory));
    return open(path, O_RDWR | O_CLOEXEC);
}

int nvme_help_descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    }
    return count;
}

bool nvme_help_flip(const char *directory, uint64_t offset)
{
    const int fd = nvme_help_reopen(directory);
    unsigned char byte;
    bool is_done;

    if (fd < 0) {
        return false;
    }
    is_done = pread(fd, &byte, 1, (off_t)offset) == 1;
    byte ^= 16;
    is_done =
        is_done && pwrite(fd, &byte, 1, (off_t)offset) == 1 && fsync(fd) == 0;
    (void)close(fd);
    return is_done;
}

static uint64_t fill_word(uint64_t seed, size_t index)
{
    uint64_t word = (seed << 32) + index + 1;

    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

void nvme_help_fill(void *memory, size_t bytes, uint64_t seed)
{
    uint64_t *words = memory;

    for (size_t i = 0; i < bytes / sizeof(words[0]); i++) {
        words[i] = fill_word(seed, i);
    }
}

bool nvme_help_filled(const void *memory, size_t bytes, uint64_t seed)
{
    const uint64_t *words = memory;

    for (size_t i = 0; i < bytes / sizeof(words[0]); i++) {
        if (words[i] != fill_word(seed, i)) {
            return false;
        }
    }
    return true;
}
