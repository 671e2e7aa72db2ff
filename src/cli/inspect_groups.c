/*
 * Tensors in groups: those whose names differ by a number alone, such as that
 * of their layer, and that are of one type and shape.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/inspect.h"

#define NAME_COLUMNS 200

/* ---- names --------------------------------------------------------------- */

static bool is_number(const char *part, size_t length)
{
    return length > 0 && strspn(part, "0123456789") >= length;
}

/* Part by part; any number is "*". */
static int compare_names(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        const size_t a_length = strcspn(a, "."), b_length = strcspn(b, ".");
        const bool a_number = is_number(a, a_length);
        const bool b_number = is_number(b, b_length);
        const size_t a_shown = a_number ? 1 : a_length;
        const size_t b_shown = b_number ? 1 : b_length;
        const size_t shown = a_shown < b_shown ? a_shown : b_shown;
        const int order = memcmp(a_number ? "*" : a, b_number ? "*" : b, shown);

        if (order != 0) {
            return order;
        }
        if (a_shown != b_shown) {
            return a_shown < b_shown ? -1 : 1;
        }
        a += a_length + (a[a_length] == '.');
        b += b_length + (b[b_length] == '.');
    }
    return (*a != '\0') - (*b != '\0');
}

/* The name with a "*" for each number, in place. */
static void star_numbers(char *name)
{
    char *put = name;

    for (const char *part = name; *part != '\0';) {
        const size_t length = strcspn(part, ".");
        const bool has_dot = part[length] == '.';

        if (is_number(part, length)) {
            *put++ = '*';
        } else {
            memmove(put, part, length);
            put += length;
        }
        if (has_dot) {
            *put++ = '.';
        }
        part += length + has_dot;
    }
    *put = '\0';
}

/* ---- groups -------------------------------------------------------------- */

static int compare_groups(const struct zo_inspect_item *a,
                          const struct zo_inspect_item *b)
{
    const struct zo_tensor_info *left = a->info, *right = b->info;
    int order = strcmp(a->kind, b->kind);

    order = order != 0 ? order : compare_names(left->name, right->name);
    order = order != 0 ? order : (int)left->element - (int)right->element;
    order = order != 0 ? order : left->rank - right->rank;
    for (int i = 0; order == 0 && i < left->rank; i++) {
        order = (left->shape[i] > right->shape[i]) -
                (left->shape[i] < right->shape[i]);
    }
    return order;
}

static int by_group(const void *left, const void *right)
{
    const struct zo_inspect_item *a = left, *b = right;
    const int order = compare_groups(a, b);

    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

static int by_index(const void *left, const void *right)
{
    const struct zo_inspect_item *a = left, *b = right;

    return (a->index > b->index) - (a->index < b->index);
}

/* The first of each group, with the count of all; returns how many. */
static size_t join(struct zo_inspect_item *items, size_t count)
{
    size_t groups = 0;

    qsort(items, count, sizeof(items[0]), by_group);
    for (size_t i = 0; i < count; i++) {
        if (groups > 0 && compare_groups(&items[groups - 1], &items[i]) == 0) {
            items[groups - 1].count++;
        } else {
            items[groups] = items[i];
            items[groups++].count = 1;
        }
    }
    qsort(items, groups, sizeof(items[0]), by_index);
    return groups;
}

static enum zo_status print_group(FILE *file,
                                  const struct zo_inspect_item *group)
{
    const struct zo_tensor_info *info = group->info;
    char shape[ZO_SHAPE_TEXT_MAX], size[16];
    char *name = NULL;

    ZO_TRY(zo_strndup(info->name, strlen(info->name), &name));
    if (group->count > 1) {
        star_numbers(name);
    }
    if (group->kind[0] != '\0') {
        (void)fprintf(file, "%-10s ", group->kind);
    }
    (void)fprintf(
        file, "%-5s %-16s %4zu x %10s  ", zo_element_name(info->element),
        zo_shape_text(shape, sizeof(shape), info->shape, info->rank),
        group->count, zo_text_gib(size, sizeof(size), info->size_bytes));
    zo_cli_print_text(file, name, strlen(name), NAME_COLUMNS);
    (void)fputc('\n', file);
    zo_free(name);
    return ZO_OK;
}

enum zo_status zo_inspect_list_add(struct zo_inspect_list *list,
                                   const struct zo_tensor_info *info,
                                   const char *kind)
{
    ZO_TRY(zo_grow(&list->items, list->count, &list->capacity,
                   sizeof(list->items[0]), "the list of tensors"));
    list->items[list->count] = (struct zo_inspect_item){
        .info = info, .kind = kind, .index = list->count};
    list->count++;
    return ZO_OK;
}

void zo_inspect_list_fini(struct zo_inspect_list *list)
{
    zo_free(list->items);
    *list = (struct zo_inspect_list){0};
}

enum zo_status zo_inspect_list_print(struct zo_inspect_list *list, FILE *file)
{
    if (list->count > 0) { /* what sorts wants an array */
        list->count = join(list->items, list->count);
    }
    for (size_t i = 0; i < list->count; i++) {
        ZO_TRY(print_group(file, &list->items[i]));
    }
    return ZO_OK;
}
