/*
 * inspect: which tensors share a line, and where it stands.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/cli/cli.h"
#include "src/cli/inspect.h"
#include "tests/tap.h"

#define ITEMS_MAX 16

static struct zo_tensor_info infos[ITEMS_MAX];
static struct zo_inspect_list list;

static void add(const char *kind, const char *name, enum zo_element element,
                int64_t rows)
{
    struct zo_tensor_info *info = &infos[list.count];

    *info = (struct zo_tensor_info){
        .name = name, .element = element, .rank = 1, .shape = {rows}};
    TAP_CHECK(zo_tensor_info_measure(info));
    TAP_CHECK_INT(zo_inspect_list_add(&list, info, kind), ZO_OK);
}

/* What is printed of those that were added, which are then forgotten. */
static bool prints(const char *want)
{
    char *got = NULL;
    size_t got_bytes = 0;
    FILE *file = open_memstream(&got, &got_bytes);
    const enum zo_status status = zo_inspect_list_print(&list, file);
    bool same;

    (void)fclose(file);
    same = status == ZO_OK && strcmp(got, want) == 0;
    if (!same) {
        (void)printf("# got\n%s# want\n%s", got, want);
    }
    free(got);
    zo_inspect_list_fini(&list);
    return same;
}

static void test_layers(void)
{
    add("", "z.weight", ZO_ELEMENT_F32, 2048);
    add("", "layers.0.b", ZO_ELEMENT_F32, 4096);
    add("", "layers.0.a", ZO_ELEMENT_F32, 4096);
    add("", "layers.10.a", ZO_ELEMENT_F32, 4096);
    add("", "layers.9.b", ZO_ELEMENT_F32, 4096);
    add("", "layers.9.a", ZO_ELEMENT_F32, 4096);
    add("", "other.7.a", ZO_ELEMENT_F32, 4096);
    TAP_CHECK(prints("F32   [2048]              1 x    8.0 KiB  z.weight\n"
                     "F32   [4096]              2 x   16.0 KiB  layers.*.b\n"
                     "F32   [4096]              3 x   16.0 KiB  layers.*.a\n"
                     "F32   [4096]              1 x   16.0 KiB  other.7.a\n"));
}

/* Another shape, type or kind, and parts that only begin with a number. */
static void test_apart(void)
{
    add("master", "a.0", ZO_ELEMENT_F32, 1024);
    add("master", "a.1", ZO_ELEMENT_F32, 2048);
    add("master", "a.2", ZO_ELEMENT_BF16, 1024);
    add("exp_avg", "a.0", ZO_ELEMENT_F32, 1024);
    add("master", "a.3", ZO_ELEMENT_F32, 1024);
    add("master", "a.3x", ZO_ELEMENT_F32, 1024);
    add("master", "a.3.b", ZO_ELEMENT_F32, 1024);
    add("master", "a.", ZO_ELEMENT_F32, 1024);
    TAP_CHECK(
        prints("master     F32   [1024]              2 x    4.0 KiB  a.*\n"
               "master     F32   [2048]              1 x    8.0 KiB  a.1\n"
               "master     BF16  [1024]              1 x    2.0 KiB  a.2\n"
               "exp_avg    F32   [1024]              1 x    4.0 KiB  a.0\n"
               "master     F32   [1024]              1 x    4.0 KiB  a.3x\n"
               "master     F32   [1024]              1 x    4.0 KiB  a.3.b\n"
               "master     F32   [1024]              1 x    4.0 KiB  a.\n"));
    TAP_CHECK(prints(""));
}

static void test_memory(void)
{
    FILE *file = tmpfile();

    TAP_CHECK(file != NULL);
    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_inspect_list_add(&list, &infos[0], ""), ZO_E_NOMEM);
    zo_memory_fail_at(0);
    add("", "a.0", ZO_ELEMENT_F32, 1024);
    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_inspect_list_print(&list, file), ZO_E_NOMEM);
    zo_memory_fail_at(0);
    zo_inspect_list_fini(&list);
    (void)fclose(file);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the same tensor of every layer is a line", test_layers},
        {"type, shape, kind and other names keep apart", test_apart},
        {"a failing allocation is told", test_memory},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
