#include "src/checkpoint/torch_bin.h"

#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/checkpoint/download.h"
#include "src/checkpoint/pickle.h"
#include "src/checkpoint/tensor_source_private.h"
#include "src/checkpoint/zip_archive.h"

#define PICKLE_NAME  "/data.pkl"
#define WINDOW_BYTES 32768 /* of a storage, when a view jumps over elements */

struct torch_bin {
    struct zo_tensor_source source; /* first: a source is this struct */
    struct zo_zip_archive archive;
    char *text; /* owned: the pickle, which holds the names */
    struct zo_pickle pickle;
    uint64_t *data_at; /* owned; of the file, where each storage begins */
};

/* A tensor that is not row-major, on its way into a buffer. */
struct gather {
    const struct zo_disk_file *file;
    const struct zo_pickle_tensor *tensor;
    uint64_t storage_at; /* of the file */
    size_t elem_bytes;
    int run_dim;    /* the dimension whose elements lie closest together */
    uint64_t inner; /* elements of the dimensions after it */
};

static bool is_row_major(const struct zo_pickle_tensor *tensor)
{
    uint64_t stride = 1;

    for (int i = tensor->info.rank; i-- > 0;) {
        if (tensor->info.shape[i] > 1 && tensor->stride_elems[i] != stride) {
            return false;
        }
        stride *= (uint64_t)tensor->info.shape[i];
    }
    return true;
}

/* Where element `index` of dimensions [from, to) lies, in elements. */
static uint64_t offset_of(const struct zo_pickle_tensor *tensor, int from,
                          int to, uint64_t index)
{
    uint64_t offset = 0;

    for (int i = to; i-- > from;) {
        const uint64_t length = (uint64_t)tensor->info.shape[i];

        offset += index % length * tensor->stride_elems[i];
        index /= length;
    }
    return offset;
}

/*
 * Elements along run_dim: `count` of them, from element `at` of the storage,
 * to every out_step-th place of out.
 */
static enum zo_status read_run(const struct gather *gather, uint64_t at,
                               uint64_t count, char *out, uint64_t out_step)
{
    const uint64_t stride = gather->tensor->stride_elems[gather->run_dim];
    const size_t elem = gather->elem_bytes;
    char window[WINDOW_BYTES];

    if (stride == 1 && out_step == 1) {
        return zo_disk_read(gather->file, gather->storage_at + at * elem, out,
                            (size_t)count * elem);
    }
    while (count > 0) {
        const uint64_t room =
            stride == 0 ? count : (WINDOW_BYTES / elem - 1) / stride + 1;
        const size_t now = (size_t)(count < room ? count : room);

        ZO_TRY(zo_disk_read(gather->file, gather->storage_at + at * elem,
                            window, (size_t)((now - 1) * stride + 1) * elem));
        for (size_t i = 0; i < now; i++) {
            memcpy(out, window + i * stride * elem, elem);
            out += out_step * elem;
        }
        at += now * stride;
        count -= now;
    }
    return ZO_OK;
}

/*
 * Elements [first, end) of a block: all of run_dim and what is inside it.
 * They are runs along run_dim, one for each place of the inner dimensions.
 */
static enum zo_status read_block(const struct gather *gather, uint64_t base,
                                 uint64_t first, uint64_t end, char *out)
{
    const struct zo_pickle_tensor *tensor = gather->tensor;
    const uint64_t inner = gather->inner;

    for (uint64_t j = 0; j < inner && j < end; j++) {
        const uint64_t from = first <= j ? 0 : (first - j + inner - 1) / inner;
        const uint64_t to = (end - j + inner - 1) / inner;

        if (from < to) {
            ZO_TRY(read_run(
                gather,
                base + from * tensor->stride_elems[gather->run_dim] +
                    offset_of(tensor, gather->run_dim + 1, tensor->info.rank,
                              j),
                to - from,
                out + (from * inner + j - first) * gather->elem_bytes, inner));
        }
    }
    return ZO_OK;
}

static enum zo_status read_gathered(struct gather *gather, uint64_t first,
                                    uint64_t count, char *out)
{
    const struct zo_pickle_tensor *tensor = gather->tensor;
    const uint64_t end = first + count;
    uint64_t block;

    gather->run_dim = -1;
    for (int i = tensor->info.rank; i-- > 0;) {
        if (tensor->info.shape[i] > 1 &&
            (gather->run_dim < 0 ||
             tensor->stride_elems[i] < tensor->stride_elems[gather->run_dim])) {
            gather->run_dim = i;
        }
    }
    gather->inner = 1;
    for (int i = gather->run_dim + 1; i < tensor->info.rank; i++) {
        gather->inner *= (uint64_t)tensor->info.shape[i];
    }
    block = gather->inner * (uint64_t)tensor->info.shape[gather->run_dim];
    while (first < end) {
        const uint64_t block_at = first / block * block;
        const uint64_t stop = end < block_at + block ? end : block_at + block;

        ZO_TRY(
            read_block(gather,
                       tensor->first_elem +
                           offset_of(tensor, 0, gather->run_dim, first / block),
                       first - block_at, stop - block_at, out));
        out += (stop - first) * gather->elem_bytes;
        first = stop;
    }
    return ZO_OK;
}

static enum zo_status read_data(const struct zo_tensor_source *source,
                                size_t index, uint64_t offset_bytes,
                                size_t size_bytes, void *buffer)
{
    const struct torch_bin *self = (const struct torch_bin *)source;
    const struct zo_pickle_tensor *tensor = &self->pickle.tensors[index];
    struct gather gather = {
        .file = &source->file,
        .tensor = tensor,
        .storage_at = self->data_at[tensor->storage],
        .elem_bytes = zo_element_bits(tensor->info.element) / 8,
    };

    if (is_row_major(tensor)) {
        return zo_disk_read(&source->file,
                            gather.storage_at +
                                tensor->first_elem * gather.elem_bytes +
                                offset_bytes,
                            buffer, size_bytes);
    }
    return read_gathered(&gather, offset_bytes / gather.elem_bytes,
                         size_bytes / gather.elem_bytes, buffer);
}

static void close_source(struct zo_tensor_source *source)
{
    struct torch_bin *self = (struct torch_bin *)source;

    zo_tensor_source_fini(source);
    zo_zip_archive_close(&self->archive);
    zo_pickle_fini(&self->pickle);
    zo_free(self->text);
    zo_free(self->data_at);
    zo_free(self);
}

static const struct zo_tensor_source_ops torch_bin_ops = {
    .read = read_data,
    .close = close_source,
};

/* What torch.save() wrote before 1.6, and pickles that it never wrote. */
static enum zo_status check_format(const struct zo_disk_file *file)
{
    /* PROTO 2, LONG1 of 10 bytes, 0x1950a86a20f9469cfc6c */
    static const unsigned char legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c,
                                           0xfc, 0x9c, 0x46, 0xf9, 0x20,
                                           0x6a, 0xa8, 0x50, 0x19};
    unsigned char head[sizeof(legacy)] = {0};

    ZO_TRY(zo_download_check(file));
    ZO_TRY(zo_disk_read(file, 0, head,
                        file->size_bytes < sizeof(head)
                            ? (size_t)file->size_bytes
                            : sizeof(head)));
    if (memcmp(head, legacy, sizeof(legacy)) == 0) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "%s is in PyTorch's format of before 1.6, which is no "
                       "zip archive; convert it once: python3 -c 'import "
                       "sys, torch; f = sys.argv[1]; torch.save(torch.load(f, "
                       "map_location=\"cpu\", weights_only=True), f)' FILE",
                       file->path);
    }
    if (head[0] == 0x80 && head[1] <= 5) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s is a bare pickle, not a file of torch.save(): "
                       "refused unread",
                       file->path);
    }
    return ZO_OK;
}

/* The one entry FOLDER/data.pkl. */
static enum zo_status find_pickle(const struct torch_bin *self,
                                  const struct zo_zip_entry **found_out)
{
    const struct zo_zip_entry *found = NULL;

    for (size_t i = 0; i < self->archive.count; i++) {
        const struct zo_zip_entry *entry = &self->archive.entries[i];
        const char *slash = strchr(entry->name, '/');

        if (slash == NULL || strcmp(slash, PICKLE_NAME) != 0) {
            continue;
        }
        if (found != NULL) {
            return ZO_FAIL(ZO_E_CORRUPT, "%s holds both %.200s and %.200s",
                           self->source.file.path, found->name, entry->name);
        }
        found = entry;
    }
    if (found == NULL) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s is a zip archive without a data.pkl: not a file of "
                       "torch.save()",
                       self->source.file.path);
    }
    *found_out = found;
    return ZO_OK;
}

static enum zo_status read_pickle(struct torch_bin *self,
                                  const struct zo_zip_entry *entry)
{
    const struct zo_disk_file *file = &self->source.file;
    uint64_t data_at = 0;

    ZO_TRY(zo_zip_archive_locate(file, entry, &data_at));
    if (entry->size_bytes > ZO_PICKLE_BYTES_MAX) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: data.pkl has %llu bytes; want at most %zu",
                       file->path, (unsigned long long)entry->size_bytes,
                       ZO_PICKLE_BYTES_MAX);
    }
    ZO_TRY(zo_alloc((size_t)entry->size_bytes + 1, 1, "a pickle", &self->text));
    ZO_TRY(zo_disk_read(file, data_at, self->text, (size_t)entry->size_bytes));
    return zo_pickle_read(file->path, self->text, (size_t)entry->size_bytes,
                          &self->pickle);
}

/* FOLDER/byteorder, since PyTorch 2.1; data of before is little-endian. */
static enum zo_status check_byte_order(const struct torch_bin *self,
                                       const char *name)
{
    const struct zo_disk_file *file = &self->source.file;
    const struct zo_zip_entry *entry =
        zo_zip_archive_find(&self->archive, name);
    uint64_t data_at = 0;
    char order[8] = {0};

    if (entry == NULL) {
        return ZO_OK;
    }
    ZO_TRY(zo_zip_archive_locate(file, entry, &data_at));
    if (entry->size_bytes < sizeof(order)) {
        ZO_TRY(zo_disk_read(file, data_at, order, (size_t)entry->size_bytes));
    }
    if (strcmp(order, "little") != 0) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "%s holds data in byte order \"%s\"; want \"little\": "
                       "load and save it on a little-endian machine",
                       file->path, order);
    }
    return ZO_OK;
}

/* Finds the bytes of a storage; the archive and the pickle must agree. */
static enum zo_status locate_storage(struct torch_bin *self, size_t index,
                                     const char *name)
{
    const struct zo_disk_file *file = &self->source.file;
    const struct zo_pickle_storage *storage = &self->pickle.storages[index];
    const struct zo_zip_entry *entry =
        zo_zip_archive_find(&self->archive, name);
    const uint64_t elem_bytes = zo_element_bits(storage->element) / 8;

    if (entry == NULL) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: storage \"%.200s\" is not in the archive",
                       file->path, name);
    }
    ZO_TRY(zo_zip_archive_locate(file, entry, &self->data_at[index]));
    if (storage->elem_count > entry->size_bytes / elem_bytes ||
        storage->elem_count * elem_bytes != entry->size_bytes) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: storage \"%.200s\" has %llu bytes in the archive, "
                       "%llu elements of %llu in the pickle",
                       file->path, name, (unsigned long long)entry->size_bytes,
                       (unsigned long long)storage->elem_count,
                       (unsigned long long)elem_bytes);
    }
    return ZO_OK;
}

/* All other entries that count, by names of the pickle's folder. */
static enum zo_status read_entries(struct torch_bin *self,
                                   const struct zo_zip_entry *pickle)
{
    const int folder = (int)(strlen(pickle->name) - strlen(PICKLE_NAME));
    const size_t name_bytes = (size_t)folder + 64; /* keys: 40 at most */
    enum zo_status status;
    char *name = NULL;

    ZO_TRY(zo_alloc(name_bytes, 1, "an entry's name", &name));
    (void)snprintf(name, name_bytes, "%.*s/byteorder", folder, pickle->name);
    ZO_TRY_GOTO(free_name, check_byte_order(self, name));
    ZO_TRY_GOTO(free_name,
                zo_alloc(self->pickle.storage_count, sizeof(self->data_at[0]),
                         "a table of storages", &self->data_at));
    for (size_t i = 0; i < self->pickle.storage_count; i++) {
        (void)snprintf(name, name_bytes, "%.*s/data/%s", folder, pickle->name,
                       self->pickle.storages[i].key);
        ZO_TRY_GOTO(free_name, locate_storage(self, i, name));
    }

free_name:
    zo_free(name);
    return status;
}

static enum zo_status read_file(struct torch_bin *self, const char *path)
{
    const struct zo_zip_entry *pickle = NULL;

    ZO_TRY(zo_disk_open(path, &self->source.file));
    ZO_TRY(check_format(&self->source.file));
    ZO_TRY(zo_zip_archive_open(&self->source.file, &self->archive));
    ZO_TRY(find_pickle(self, &pickle));
    ZO_TRY(read_pickle(self, pickle));
    ZO_TRY(read_entries(self, pickle));
    for (size_t i = 0; i < self->pickle.tensor_count; i++) {
        ZO_TRY(
            zo_tensor_source_add(&self->source, &self->pickle.tensors[i].info));
    }
    return zo_tensor_source_freeze(&self->source);
}

enum zo_status zo_torch_bin_open(const char *path,
                                 struct zo_tensor_source **source_out)
{
    struct torch_bin *self = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*self), "a torch reader", &self));
    self->source.ops = &torch_bin_ops;
    self->source.file.fd = -1;
    status = read_file(self, path);
    if (status != ZO_OK) {
        close_source(&self->source);
        return status;
    }
    *source_out = &self->source;
    return ZO_OK;
}
