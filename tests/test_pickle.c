/*
 * The pickle machine on its own: what a state dict may hold, and that all
 * else is refused by name.  Pickles are heap blocks of their own size, so
 * that AddressSanitizer sees one byte too many.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/checkpoint/pickle.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

#define PICKLE(text) (text), sizeof(text) - 1

/* Storage "0" of 6 halves, and a call that makes a tensor. */
#define STORAGE(type)                       \
    "(X\7\0\0\0storagec" type "\nX\1\0\0\0" \
    "0"                                     \
    "X\3\0\0\0cpuK\6tQ"
#define REBUILD "\x80\2ctorch._utils\n_rebuild_tensor_v2\n("

static const struct fx_view plain = {
    .name = "w",
    .type = "Half",
    .key = "0",
    .storage_elems = 6,
    .rank = 2,
    .shape = {2, 3},
    .strides = {3, 1},
};

/* The names in *pickle_out point into *text_out; both end with done(). */
static enum zo_status read_pickle(const void *bytes, size_t size_bytes,
                                  struct zo_pickle *pickle_out, char **text_out)
{
    *text_out = malloc(size_bytes > 0 ? size_bytes : 1);
    memcpy(*text_out, bytes, size_bytes);
    *pickle_out = (struct zo_pickle){0};
    return zo_pickle_read("m.bin", *text_out, size_bytes, pickle_out);
}

static void done(struct zo_pickle *pickle, char *text)
{
    zo_pickle_fini(pickle);
    free(text);
}

/* Only the verdict. */
static enum zo_status judge(const void *bytes, size_t size_bytes)
{
    struct zo_pickle pickle;
    char *text;
    const enum zo_status status =
        read_pickle(bytes, size_bytes, &pickle, &text);

    done(&pickle, text);
    return status;
}

static const struct {
    const char *pickle;
    size_t size_bytes;
    const char *text;
} hostile[] = {
    /* functions */
    {PICKLE("\x80\2cposix\nsystem\nX\2\0\0\0id\x85R."),
     "byte 2: asks for posix.system, which no weights need: refused"},
    {PICKLE("\x80\2cbuiltins\neval\n."), "asks for builtins.eval,"},
    {PICKLE("\x80\2ctorch\nload\n."), "asks for torch.load,"},
    {PICKLE("\x80\2ctorch._utils\n_rebuild_tensor_v3\n."),
     "asks for torch._utils._rebuild_tensor_v3,"},
    {PICKLE("\x80\2cos.path\nx\x1b[31m\n."), "asks for os.path.x\\x1b[31m,"},
    {PICKLE("\x80\2ctorch\nHalfStorage\n)R."),
     "asks to call torch.HalfStorage: refused"},
    {PICKLE("\x80\2ctorch"), "a line without end"},
    {PICKLE("\x80\2ctorch\nx"), "a line without end"},
    /* opcodes */
    {PICKLE("\x80\2N\x93."), "opcode 0x93 (STACK_GLOBAL), which no weights"},
    {PICKLE("\x80\2(iposix\nsystem\n."), "opcode 0x69 (INST)"},
    {PICKLE("\x80\2(No."), "opcode 0x6f (OBJ)"},
    {PICKLE("\x80\2))\x81."), "opcode 0x81 (NEWOBJ)"},
    {PICKLE("\x80\2P1\n."), "opcode 0x50 (PERSID)"},
    {PICKLE("\x80\2\x82\1."), "opcode 0x82 (EXT1)"},
    {PICKLE("\x80\2]."), "opcode 0x5d (EMPTY_LIST)"},
    {PICKLE("\x80\2\xff."), "opcode 0xff (of another kind)"},
    {PICKLE("\x80\2\x8a\t123456789."), "an integer of 9 bytes"},
    /* the memo */
    {PICKLE("\x80\2q\0."), "an opcode without its operand"},
    {PICKLE("\x80\2}q\1."), "a memo number that skips one"},
    {PICKLE("\x80\2}r\xff\xff\xff\x7f."), "a memo number that skips one"},
    {PICKLE("\x80\2h\0."), "memo 0 was never put"},
    {PICKLE("\x80\2j\0\0\0\1."), "memo 16777216 was never put"},
    {PICKLE("\x80\2(q\0h\0."), "memo 0 was never put"},
    /* the stack */
    {PICKLE("\x80\2."), "an opcode without its operand"},
    {PICKLE("\x80\2t."), "no mark on the stack"},
    {PICKLE("\x80\2}Nu."), "no mark on the stack"},
    {PICKLE("\x80\2(u."), "an opcode without its operand"},
    {PICKLE("\x80\2}(X\1\0\0\0au."), "an opcode without its operand"},
    {PICKLE("\x80\2s."), "an opcode without its operand"},
    {PICKLE("\x80\2N\x86."), "an opcode without its operand"},
    {PICKLE("\x80\2(\x85."), "an opcode without its operand"},
    {PICKLE("\x80\2(N\x86."), "an opcode without its operand"},
    {PICKLE("\x80\2R."), "an opcode without its operand"},
    {PICKLE("\x80\2(R."), "an opcode without its operand"},
    {PICKLE("\x80\2}}."), "something is left after the end"},
    {PICKLE("\x80\2}.}"), "something is left after the end"},
    /* arguments */
    {PICKLE("\x80\2})R."), "what is called is a dict; want a function"},
    {PICKLE("\x80\2NNR."), "the arguments of a call is None; want a tuple"},
    {PICKLE("\x80\2ccollections\nOrderedDict\nN\x85R."),
     "OrderedDict with arguments"},
    {PICKLE("\x80\2ctorch._utils\n_rebuild_tensor_v2\n)R."),
     "arguments that make no tensor"},
    {PICKLE("\x80\2ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNtR."),
     "arguments that make no tensor"},
    {PICKLE("\x80\2ctorch._utils\n_rebuild_parameter\n)R."),
     "_rebuild_parameter without a tensor"},
    {PICKLE("\x80\2" STORAGE("collections\nOrderedDict")),
     "a persistent id that is no storage"},
    {PICKLE(
         REBUILD STORAGE("torch\nHalfStorage") "K\0K\2K\3\x86K\1\x85\x89}tR"),
     "arguments that make no tensor"},
    {PICKLE(
         REBUILD STORAGE("torch\nHalfStorage") "K\0K\2\x85K\3K\1\x86\x89}tR"),
     "arguments that make no tensor"},
    {PICKLE(REBUILD STORAGE(
         "torch\nHalfStorage") "J\xff\xff\xff\xffK\1\x85K\1\x85\x89}tR"),
     "arguments that make no tensor"},
    {PICKLE(REBUILD STORAGE("torch\nHalfStorage") "K\0K\1\x85K\1\x85\x89tR"),
     "arguments that make no tensor"},
    {PICKLE("\x80\2NQ."), "a persistent id is None; want a tuple"},
    {PICKLE("\x80\2)Q."), "a persistent id that is no storage"},
    {PICKLE("\x80\2(X\7\0\0\0storageNNNNtQ."),
     "a persistent id that is no storage"},
    {PICKLE("\x80\2}N}b."), "sets attributes of what is no dict: refused"},
    {PICKLE("\x80\2}Nb."), "the state of an object is None; want a dict"},
    {PICKLE("\x80\2N(X\1\0\0\0aNu."), "an item is set in None; want a dict"},
    /* what it holds */
    {PICKLE("\x80\2N."), "what is in the file is None; want a dict"},
    {PICKLE("\x80\2K\5."), "what is in the file is an integer; want a dict"},
    {PICKLE("\x80\2}(NNu."), "a dict key is None; want names of tensors"},
    {PICKLE("\x80\2}(K\0}u."), "a dict key is an integer; want names"},
    {PICKLE("\x80\2}(X\5\0\0\0epochK\3u."),
     "\"epoch\" is an integer; want a flat dict of tensors"},
    {PICKLE("\x80\2}(X\5\0\0\0model}u."),
     "\"model\" is a dict; want a flat dict of tensors, as model.state_dict"},
    {PICKLE("\x80\2}q\0X\1\0\0\0ah\0s."), "\"a\" is a dict; want a flat"},
    {PICKLE("\x80\2X\2\0\0\0\xff\xfe."), "a string that is not text"},
    {PICKLE("\x80\2X\2\0\0\0a\0."), "a string that is not text"},
    /* cut off */
    {PICKLE(""), "byte 0: cut off: want 1 bytes, 0 are left"},
    {PICKLE("\x80\2}"), "byte 3: cut off: want 1 bytes, 0 are left"},
    {PICKLE("\x80\2X\xff\xff\xff\xff"
            "a."),
     "cut off: want 4294967295 bytes, 2 are left"},
};

static void test_hostile_pickles(void)
{
    for (size_t i = 0; i < TAP_COUNT(hostile); i++) {
        if (!fx_refused(judge(hostile[i].pickle, hostile[i].size_bytes),
                        ZO_E_CORRUPT, hostile[i].text,
                        "m.bin: data.pkl, byte")) {
            tap_fail(__FILE__, __LINE__, "row %zu", i);
        }
    }
}

static void test_other_protocols(void)
{
    TAP_CHECK(fx_refused(judge(PICKLE("\x80\4}.")), ZO_E_NOSUPPORT,
                         "m.bin: data.pkl is of pickle protocol 4",
                         "load and save the file again"));
    TAP_CHECK_INT(judge(PICKLE("\x80\5}.")), ZO_E_NOSUPPORT);
}

/* Attributes may hold any value that the opcodes make. */
static void test_harmless_pickles(void)
{
    static const char attributes[] = "\x80\2ccollections\nOrderedDict\n)Rq\0"
                                     "}X\x09\0\0\0_metadata"
                                     "ccollections\nOrderedDict\n)R("
                                     "X\1\0\0\0aN"
                                     "X\1\0\0\0b\x88"
                                     "X\1\0\0\0c\x89"
                                     "X\1\0\0\0dK\5"
                                     "X\1\0\0\0eM\5\1"
                                     "X\1\0\0\0fJ\xff\xff\xff\xff"
                                     "X\1\0\0\0g\x8a\0"
                                     "X\1\0\0\0h\x8a\x08\1\2\3\4\5\6\7\x80"
                                     "X\1\0\0\0i(NN(ttr\1\0\0\0"
                                     "X\1\0\0\0jj\1\0\0\0NN\x87"
                                     "X\1\0\0\0kh\0\x85"
                                     "X\1\0\0\0lNN\x86"
                                     "usb.";

    TAP_CHECK_INT(judge(PICKLE("\x80\2}.")), ZO_OK);
    if (judge(PICKLE(attributes)) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
}

static void test_reads_a_state_dict(void)
{
    struct fx_view views[] = {plain, plain, plain};
    struct fx_bytes bytes = {0};
    struct zo_pickle pickle;
    char *text;

    views[1].name = "b";
    views[1].key = "12";
    views[1].type = "BFloat16";
    views[1].storage_elems = 70000;
    views[1].first_elem = 65536;
    views[2].name = "\xe4\xbd\xa0";
    fx_pickle_begin(&bytes, true);
    for (size_t i = 0; i < TAP_COUNT(views); i++) {
        fx_pickle_view(&bytes, &views[i]);
    }
    fx_pickle_end(&bytes);
    TAP_CHECK_INT(read_pickle(bytes.data, bytes.count, &pickle, &text), ZO_OK);
    TAP_CHECK_INT((long long)pickle.tensor_count, 3);
    TAP_CHECK(strcmp(pickle.tensors[0].info.name, "w") == 0);
    TAP_CHECK(strcmp(pickle.tensors[1].info.name, "b") == 0);
    TAP_CHECK(strcmp(pickle.tensors[2].info.name, "\xe4\xbd\xa0") == 0);
    TAP_CHECK(pickle.tensors[1].info.element == ZO_ELEMENT_BF16);
    TAP_CHECK(pickle.tensors[1].first_elem == 65536);
    TAP_CHECK(pickle.tensors[1].stride_elems[0] == 3);
    TAP_CHECK(pickle.tensors[1].info.size_bytes == 12);
    TAP_CHECK(strcmp(pickle.storages[pickle.tensors[1].storage].key, "12") ==
              0);
    TAP_CHECK(pickle.storages[pickle.tensors[1].storage].elem_count == 70000);
    done(&pickle, text);
    fx_bytes_fini(&bytes);
}

static void test_parameters_are_tensors(void)
{
    static const char head[] = "\x80\2}X\1\0\0\0w"
                               "ctorch._utils\n_rebuild_parameter\n(";
    const size_t name_bytes = 6; /* X, length, "w" */
    struct fx_bytes view = {0}, bytes = {0};
    struct zo_pickle pickle;
    char *text;

    fx_pickle_view(&view, &plain);
    fx_add(&bytes, head, sizeof(head) - 1);
    fx_add(&bytes, view.data + name_bytes, view.count - name_bytes);
    fx_add(&bytes, "\x88}tRs.", 6);
    TAP_CHECK_INT(read_pickle(bytes.data, bytes.count, &pickle, &text), ZO_OK);
    TAP_CHECK_INT((long long)pickle.tensor_count, 1);
    TAP_CHECK(strcmp(pickle.tensors[0].info.name, "w") == 0);
    done(&pickle, text);
    fx_bytes_fini(&view);
    fx_bytes_fini(&bytes);
}

static void test_depth_is_limited(void)
{
    enum { COUNT = 300000 };
    char *bytes = malloc(COUNT + 3);

    memcpy(bytes, "\x80\2", 2);
    memset(bytes + 2, '(', COUNT);
    bytes[COUNT + 2] = '.';
    TAP_CHECK(fx_refused(judge(bytes, COUNT + 3), ZO_E_CORRUPT,
                         "more than 65536 values on the stack", ""));
    memset(bytes + 2, 0x85, COUNT); /* tuples in tuples, without recursion */
    bytes[2] = 'N';
    TAP_CHECK(fx_refused(judge(bytes, COUNT + 3), ZO_E_CORRUPT,
                         "what is in the file is a tuple", ""));
    free(bytes);
}

static void make_state_dict(struct fx_bytes *bytes)
{
    fx_pickle_begin(bytes, true);
    fx_pickle_view(bytes, &plain);
    fx_pickle_end(bytes);
}

static void test_survives_damage(void)
{
    struct fx_bytes bytes = {0};
    unsigned seed = 99;

    make_state_dict(&bytes);
    TAP_CHECK_INT(judge(bytes.data, bytes.count), ZO_OK);
    for (size_t i = 0; i < bytes.count; i++) {
        TAP_CHECK_INT(judge(bytes.data, i), ZO_E_CORRUPT);
    }
    for (int i = 0; i < 100000; i++) {
        enum zo_status status;
        unsigned char *byte, was;

        seed = seed * 1664525u + 1013904223u;
        byte = &bytes.data[(seed >> 8) % bytes.count];
        was = *byte;
        *byte = (unsigned char)(seed >> 24);
        status = judge(bytes.data, bytes.count);
        *byte = was;
        TAP_CHECK(status == ZO_OK || status == ZO_E_CORRUPT ||
                  status == ZO_E_NOSUPPORT);
    }
    fx_bytes_fini(&bytes);
}

/* Opcodes in any order, few kinds of them, so that many make sense. */
static void test_survives_random_programs(void)
{
    static const char opcodes[] = "(N\x88)t\x85\x86\x87}}usbRQqhqh.";
    static const char global[] = "ctorch\nHalfStorage\n";
    unsigned seed = 7;

    for (int i = 0; i < 100000; i++) {
        struct fx_bytes bytes = {0};
        enum zo_status status;

        fx_add(&bytes, "\x80\2}", 3);
        for (int j = 0; j < 24; j++) {
            char opcode;

            seed = seed * 1664525u + 1013904223u;
            opcode = opcodes[(seed >> 8) % (sizeof(opcodes) - 1)];
            if ((seed >> 28) == 0) {
                fx_add(&bytes, global, sizeof(global) - 1);
            } else if ((seed >> 28) < 4) {
                fx_pickle_text(&bytes, "a");
            }
            fx_add(&bytes, &opcode, 1);
            if (opcode == 'q' || opcode == 'h') {
                fx_add_number(&bytes, (seed >> 20) % 4, 1);
            }
        }
        status = judge(bytes.data, bytes.count);
        fx_bytes_fini(&bytes);
        TAP_CHECK(status == ZO_OK || status == ZO_E_CORRUPT);
    }
}

static void test_survives_no_memory(void)
{
    enum zo_status status = ZO_E_NOMEM;
    struct fx_bytes bytes = {0};
    int failures = 0;

    make_state_dict(&bytes);
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = judge(bytes.data, bytes.count);
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures >= 6);
    fx_bytes_fini(&bytes);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"what no weights need is refused by name", test_hostile_pickles},
        {"other protocols are not supported", test_other_protocols},
        {"what torch.save() adds is passed over", test_harmless_pickles},
        {"a state dict is read", test_reads_a_state_dict},
        {"parameters are tensors", test_parameters_are_tensors},
        {"depth is limited", test_depth_is_limited},
        {"cut and flipped pickles get an answer", test_survives_damage},
        {"random programs get an answer", test_survives_random_programs},
        {"each failed allocation is clean", test_survives_no_memory},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
