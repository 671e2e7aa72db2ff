#include "tests/model_fixtures.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/crc32.h"
#include "tests/tap.h"

static char folder[512];
static pid_t owner;

static void give_up(const char *what, const char *path)
{
    (void)printf("Bail out! %s %s: %s\n", what, path, strerror(errno));
    abort();
}

static int remove_one(const char *path, const struct stat *info, int type,
                      struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_folder(void)
{
    if (getpid() == owner) {
        (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

void fx_begin(void)
{
    const char *parent = getenv("TMPDIR");

    (void)snprintf(folder, sizeof(folder), "%s/zo-test-XXXXXX",
                   parent != NULL ? parent : P_tmpdir);
    if (mkdtemp(folder) == NULL) {
        give_up("cannot make", folder);
    }
    owner = getpid();
    (void)atexit(remove_folder);
}

/* Each different path is kept once, so that callers may hold on to it. */
static const char *path_below(const char *parent, const char *format,
                              va_list args)
{
    static char paths[512][256];
    static size_t count;
    char path[256];
    const int at = snprintf(path, sizeof(path), "%s/", parent);
    size_t i = 0;

    (void)vsnprintf(path + at, sizeof(path) - (size_t)at, format, args);
    while (i < count && strcmp(paths[i], path) != 0) {
        i++;
    }
    if (i == TAP_COUNT(paths)) {
        give_up("too many paths, such as", path);
    }
    if (i == count) {
        memcpy(paths[count++], path, sizeof(path));
    }
    return paths[i];
}

const char *fx_path(const char *format, ...)
{
    const char *path;
    va_list args;

    va_start(args, format);
    path = path_below(folder, format, args);
    va_end(args);
    return path;
}

const char *fx_shared(const char *format, ...)
{
    const char *shared = getenv("ZERO_OFFLOAD_SHARED");
    const char *path;
    va_list args;

    if (shared == NULL) {
        return NULL;
    }
    va_start(args, format);
    path = path_below(shared, format, args);
    va_end(args);
    return fx_is_there(path) ? path : NULL;
}

void fx_folder(const char *path)
{
    if (mkdir(path, 0777) != 0) {
        give_up("cannot make", path);
    }
}

void fx_write(const char *path, const void *data, size_t size_bytes)
{
    FILE *file = fopen(path, "wb");

    if (file == NULL ||
        (size_bytes > 0 && fwrite(data, size_bytes, 1, file) != 1) ||
        fclose(file) != 0) {
        give_up("cannot write", path);
    }
}

void fx_write_text(const char *path, const char *text)
{
    fx_write(path, text, strlen(text));
}

void fx_link(const char *target, const char *path)
{
    if (symlink(target, path) != 0) {
        give_up("cannot link", path);
    }
}

char *fx_read(const char *path, size_t *size_out)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    char *text;

    if (file == NULL || fstat(fileno(file), &info) != 0) {
        give_up("cannot read", path);
    }
    text = calloc(1, (size_t)info.st_size + 1);
    if (text == NULL ||
        (info.st_size > 0 && fread(text, (size_t)info.st_size, 1, file) != 1)) {
        give_up("cannot read", path);
    }
    (void)fclose(file);
    if (size_out != NULL) {
        *size_out = (size_t)info.st_size;
    }
    return text;
}

bool fx_is_there(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

bool fx_same_files(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    char *a_text, *b_text;
    bool same;

    if (!fx_is_there(a) || !fx_is_there(b)) {
        return false;
    }
    a_text = fx_read(a, &a_bytes);
    b_text = fx_read(b, &b_bytes);
    same = a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;
    free(a_text);
    free(b_text);
    return same;
}

size_t fx_count_files(const char *path, const char *prefix)
{
    DIR *stream = opendir(path);
    const struct dirent *entry;
    size_t count = 0;

    if (stream == NULL) {
        give_up("cannot list", path);
    }
    while ((entry = readdir(stream)) != NULL) {
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
                 strcmp(entry->d_name, ".") != 0 &&
                 strcmp(entry->d_name, "..") != 0;
    }
    (void)closedir(stream);
    return count;
}

void fx_safetensors(const char *path, const char *header, const void *data,
                    size_t data_bytes)
{
    struct fx_bytes file = {0};

    fx_add_number(&file, strlen(header), 8);
    fx_add(&file, header, strlen(header));
    fx_add(&file, data, data_bytes);
    fx_write(path, file.data, file.count);
    fx_bytes_fini(&file);
}

void fx_add(struct fx_bytes *bytes, const void *data, size_t size_bytes)
{
    if (bytes->count + size_bytes > bytes->capacity) {
        bytes->capacity = 2 * bytes->capacity + size_bytes + 64;
        bytes->data = realloc(bytes->data, bytes->capacity);
        if (bytes->data == NULL) {
            give_up("no memory for", "a fixture");
        }
    }
    if (size_bytes > 0) {
        memcpy(bytes->data + bytes->count, data, size_bytes);
    }
    bytes->count += size_bytes;
}

void fx_add_number(struct fx_bytes *bytes, uint64_t number, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        const uint64_t rest = i < 8 ? number >> (8 * i) : 0;
        const unsigned char byte = (unsigned char)rest;

        fx_add(bytes, &byte, 1);
    }
}

void fx_bytes_fini(struct fx_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct fx_bytes){0};
}

void fx_zip_add(struct fx_zip *zip, const char *name, const void *data,
                size_t size_bytes)
{
    const uint64_t at = zip->file.count;
    const uint64_t narrow = zip->zip64 ? UINT32_MAX : size_bytes;
    const uint32_t crc = zip->has_crcs ? zo_crc32(0, data, size_bytes) : 0;
    struct fx_bytes *local = &zip->file, *central = &zip->directory;

    fx_add_number(local, 0x04034b50, 4);
    fx_add_number(local, 20, 2);
    fx_add_number(local, zip->flags, 2);
    fx_add_number(local, zip->method, 2);
    fx_add_number(local, 0, 4); /* time, date */
    fx_add_number(local, crc, 4);
    fx_add_number(local, narrow, 4);
    fx_add_number(local, narrow, 4);
    fx_add_number(local, strlen(name), 2);
    fx_add_number(local, 6, 2); /* an extra field, as torch pads */
    fx_add(local, name, strlen(name));
    fx_add(local, "FB\2\0ZZ", 6);
    fx_add(local, data, size_bytes);

    fx_add_number(central, 0x02014b50, 4);
    fx_add_number(central, 20, 2);
    fx_add_number(central, 20, 2);
    fx_add_number(central, zip->flags, 2);
    fx_add_number(central, zip->method, 2);
    fx_add_number(central, 0, 4);
    fx_add_number(central, crc, 4);
    fx_add_number(central, narrow, 4);
    fx_add_number(central, narrow, 4);
    fx_add_number(central, strlen(name), 2);
    fx_add_number(central, zip->zip64 ? 28 : 0, 2);
    fx_add_number(central, 0, 10); /* comment, disk, attributes */
    fx_add_number(central, zip->zip64 ? UINT32_MAX : at, 4);
    fx_add(central, name, strlen(name));
    if (zip->zip64) {
        fx_add_number(central, 1, 2);
        fx_add_number(central, 24, 2);
        fx_add_number(central, size_bytes, 8);
        fx_add_number(central, size_bytes, 8);
        fx_add_number(central, at, 8);
    }
    zip->entry_count++;
}

void fx_zip_write(struct fx_zip *zip, const char *path)
{
    const uint64_t at = zip->file.count, size_bytes = zip->directory.count;
    struct fx_bytes *file = &zip->file;

    fx_add(file, zip->directory.data, size_bytes);
    if (zip->zip64) {
        const uint64_t end_at = file->count;

        fx_add_number(file, 0x06064b50, 4);
        fx_add_number(file, 44, 8);
        fx_add_number(file, 45, 2);
        fx_add_number(file, 45, 2);
        fx_add_number(file, 0, 8);
        fx_add_number(file, zip->entry_count, 8);
        fx_add_number(file, zip->entry_count, 8);
        fx_add_number(file, size_bytes, 8);
        fx_add_number(file, at, 8);
        fx_add_number(file, 0x07064b50, 4);
        fx_add_number(file, 0, 4);
        fx_add_number(file, end_at, 8);
        fx_add_number(file, 1, 4);
    }
    fx_add_number(file, 0x06054b50, 4);
    fx_add_number(file, 0, 4);
    fx_add_number(file, zip->zip64 ? UINT16_MAX : zip->entry_count, 2);
    fx_add_number(file, zip->zip64 ? UINT16_MAX : zip->entry_count, 2);
    fx_add_number(file, zip->zip64 ? UINT32_MAX : size_bytes, 4);
    fx_add_number(file, zip->zip64 ? UINT32_MAX : at, 4);
    fx_add_number(file, 0, 2);
    fx_write(path, file->data, file->count);
    fx_bytes_fini(&zip->file);
    fx_bytes_fini(&zip->directory);
    *zip = (struct fx_zip){0};
}

void fx_pickle_begin(struct fx_bytes *pickle, bool ordered)
{
    fx_add(pickle, "\x80\x02", 2);
    if (ordered) {
        fx_add(pickle, "ccollections\nOrderedDict\n)R", 27);
    } else {
        fx_add(pickle, "}", 1);
    }
    fx_add(pickle, "q\0(", 3);
}

void fx_pickle_text(struct fx_bytes *pickle, const char *text)
{
    fx_add(pickle, "X", 1);
    fx_add_number(pickle, strlen(text), 4);
    fx_add(pickle, text, strlen(text));
}

void fx_pickle_number(struct fx_bytes *pickle, int64_t number)
{
    if (number >= 0 && number < 256) {
        fx_add(pickle, "K", 1);
        fx_add_number(pickle, (uint64_t)number, 1);
    } else if (number >= 0 && number < 65536) {
        fx_add(pickle, "M", 1);
        fx_add_number(pickle, (uint64_t)number, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        fx_add(pickle, "J", 1);
        fx_add_number(pickle, (uint64_t)number, 4);
    } else {
        fx_add(pickle, "\x8a\x08", 2);
        fx_add_number(pickle, (uint64_t)number, 8);
    }
}

static void add_tuple(struct fx_bytes *pickle, const int64_t *numbers,
                      int count)
{
    fx_add(pickle, "(", 1);
    for (int i = 0; i < count; i++) {
        fx_pickle_number(pickle, numbers[i]);
    }
    fx_add(pickle, "t", 1);
}

void fx_pickle_view(struct fx_bytes *pickle, const struct fx_view *view)
{
    char type[64];

    fx_pickle_text(pickle, view->name);
    fx_add(pickle, "ctorch._utils\n_rebuild_tensor_v2\n((", 35);
    fx_pickle_text(pickle, "storage");
    (void)snprintf(type, sizeof(type), "ctorch\n%sStorage\n", view->type);
    fx_add(pickle, type, strlen(type));
    fx_pickle_text(pickle, view->key);
    fx_pickle_text(pickle, "cpu");
    fx_pickle_number(pickle, (int64_t)view->storage_elems);
    fx_add(pickle, "tQ", 2);
    fx_pickle_number(pickle, (int64_t)view->first_elem);
    add_tuple(pickle, view->shape, view->rank);
    add_tuple(pickle, view->strides, view->rank);
    fx_add(pickle, "\x89", 1);
    fx_add(pickle, "ccollections\nOrderedDict\n)RtR", 29);
}

void fx_pickle_end(struct fx_bytes *pickle)
{
    fx_add(pickle, "u.", 2);
}

void fx_torch_bin(const char *path, const struct fx_view *views,
                  size_t view_count, const struct fx_storage *storages,
                  size_t storage_count)
{
    struct fx_bytes pickle = {0};
    struct fx_zip zip = {0};

    fx_pickle_begin(&pickle, true);
    for (size_t i = 0; i < view_count; i++) {
        fx_pickle_view(&pickle, &views[i]);
    }
    fx_pickle_end(&pickle);
    fx_zip_add(&zip, "archive/data.pkl", pickle.data, pickle.count);
    for (size_t i = 0; i < storage_count; i++) {
        char name[64];

        (void)snprintf(name, sizeof(name), "archive/data/%zu", i);
        fx_zip_add(&zip, name, storages[i].data, storages[i].size_bytes);
    }
    fx_zip_add(&zip, "archive/version", "3\n", 2);
    fx_zip_write(&zip, path);
    fx_bytes_fini(&pickle);
}

static bool is_clean(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

bool fx_refused(enum zo_status got, enum zo_status want, const char *part,
                const char *second)
{
    const struct zo_err *err = zo_err_last();

    if (got != want) {
        tap_fail(__FILE__, __LINE__, "status %d, want %d (\"%s\"); latest: %s",
                 (int)got, (int)want, part, got == ZO_OK ? "-" : err->text);
        return false;
    }
    if (strstr(err->text, part) == NULL || strstr(err->text, second) == NULL ||
        !is_clean(err->text)) {
        tap_fail(__FILE__, __LINE__, "want \"%s\" and \"%s\" in: %s", part,
                 second, err->text);
        return false;
    }
    return true;
}

bool fx_limit_memory(size_t more_bytes)
{
#ifdef ZO_SANITIZED
    (void)more_bytes;
    return false;
#else
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    struct rlimit limit;

    if (file == NULL || fscanf(file, "%lu", &pages) != 1) {
        return false;
    }
    (void)fclose(file);
    limit.rlim_cur = limit.rlim_max =
        pages * (unsigned long)sysconf(_SC_PAGESIZE) + more_bytes;
    return setrlimit(RLIMIT_AS, &limit) == 0;
#endif
}

bool fx_in_child(bool (*body)(void))
{
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        (void)alarm(20); /* the default action ends a child that hangs */
        _exit(body() ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        give_up("cannot run", "a child");
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
