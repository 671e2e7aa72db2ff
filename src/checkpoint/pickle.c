#include "src/checkpoint/pickle.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/text.h"

#define STACK_MAX   65536     /* values at once; a state dict needs ~4,000 */
#define TENSORS_MAX (1 << 20) /* 180 bytes each */
#define KEY_MAX     40        /* of a storage; torch numbers them */
#define PROTOCOL    2         /* torch.save() writes no other by default */
#define MEMO_STEP   "a memo number that skips one"

/* Opcodes of Python's pickletools that a state dict needs. */
enum opcode {
    OP_PROTO = 0x80,
    OP_STOP = '.',
    OP_MARK = '(',
    OP_NONE = 'N',
    OP_TRUE = 0x88,
    OP_FALSE = 0x89,
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_LONG1 = 0x8a,
    OP_BINUNICODE = 'X',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_TUPLE = 't',
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_GLOBAL = 'c',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_SETITEM = 's',
    OP_SETITEMS = 'u',
    OP_BUILD = 'b',
};

enum kind {
    KIND_NONE,
    KIND_BOOL,
    KIND_NUMBER,
    KIND_TEXT,
    KIND_MARK,
    KIND_TUPLE,
    KIND_DICT,
    KIND_GLOBAL,
    KIND_STORAGE,
    KIND_TENSOR,
};

static const char *const kind_names[] = {
    "None",    "a bool", "an integer", "a string",  "a mark",
    "a tuple", "a dict", "a function", "a storage", "a tensor",
};

struct value {
    enum kind kind;
    union {
        int64_t number;
        struct {
            uint32_t first; /* text: byte; tuple: of pool; others: index */
            uint32_t count; /* tuple: values */
        };
    };
};

struct item { /* of any dict, in the order of their setting */
    uint32_t dict;
    struct value key, value;
};

enum role { ROLE_ORDERED_DICT, ROLE_TENSOR, ROLE_PARAMETER, ROLE_STORAGE };

struct global {
    const char *module, *name;
    enum role role;
    enum zo_element element; /* of a storage */
};

static const struct global globals[] = {
    {"collections", "OrderedDict", ROLE_ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", ROLE_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", ROLE_PARAMETER, 0},
    {"torch", "FloatStorage", ROLE_STORAGE, ZO_ELEMENT_F32},
    {"torch", "HalfStorage", ROLE_STORAGE, ZO_ELEMENT_F16},
    {"torch", "BFloat16Storage", ROLE_STORAGE, ZO_ELEMENT_BF16},
    {"torch", "DoubleStorage", ROLE_STORAGE, ZO_ELEMENT_F64},
    {"torch", "LongStorage", ROLE_STORAGE, ZO_ELEMENT_I64},
    {"torch", "IntStorage", ROLE_STORAGE, ZO_ELEMENT_I32},
    {"torch", "ShortStorage", ROLE_STORAGE, ZO_ELEMENT_I16},
    {"torch", "CharStorage", ROLE_STORAGE, ZO_ELEMENT_I8},
    {"torch", "ByteStorage", ROLE_STORAGE, ZO_ELEMENT_U8},
    {"torch", "BoolStorage", ROLE_STORAGE, ZO_ELEMENT_BOOL},
    {"torch", "ComplexFloatStorage", ROLE_STORAGE, ZO_ELEMENT_C64},
};

struct machine {
    const char *path;
    char *text;
    size_t size_bytes, at;
    size_t opcode_at; /* of the opcode under way, for messages */
    struct value *stack, *memo, *pool;
    size_t depth, stack_capacity;
    size_t memo_count, memo_capacity;
    size_t pool_count, pool_capacity; /* what is in tuples */
    struct item *items;
    size_t item_count, item_capacity;
    uint32_t dict_count;
    struct zo_pickle out;
};

static enum zo_status refuse(const struct machine *machine, const char *format,
                             ...) ZO_PRINTF(2, 3) ZO_COLD ZO_MUST_CHECK;

static enum zo_status refuse(const struct machine *machine, const char *format,
                             ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return ZO_FAIL(ZO_E_CORRUPT, "%s: data.pkl, byte %zu: %s", machine->path,
                   machine->opcode_at, text);
}

static enum zo_status push(struct machine *machine, struct value value)
{
    if (machine->depth == STACK_MAX) {
        return refuse(machine, "more than %d values on the stack", STACK_MAX);
    }
    ZO_TRY(zo_grow(&machine->stack, machine->depth, &machine->stack_capacity,
                   sizeof(machine->stack[0]), "the stack of a pickle"));
    machine->stack[machine->depth++] = value;
    return ZO_OK;
}

static enum zo_status pop(struct machine *machine, struct value *value_out)
{
    if (machine->depth == 0 ||
        machine->stack[machine->depth - 1].kind == KIND_MARK) {
        return refuse(machine, "an opcode without its operand");
    }
    *value_out = machine->stack[--machine->depth];
    return ZO_OK;
}

static enum zo_status pop_kind(struct machine *machine, enum kind kind,
                               const char *what, struct value *value_out)
{
    struct value value = {0};

    ZO_TRY(pop(machine, &value));
    if (value.kind != kind) {
        return refuse(machine, "%s is %s; want %s", what,
                      kind_names[value.kind], kind_names[kind]);
    }
    *value_out = value;
    return ZO_OK;
}

/* The next size_bytes bytes of the pickle, taken. */
static enum zo_status take(struct machine *machine, size_t size_bytes,
                           char **bytes_out)
{
    if (size_bytes > machine->size_bytes - machine->at) {
        return refuse(machine, "cut off: want %zu bytes, %zu are left",
                      size_bytes, machine->size_bytes - machine->at);
    }
    *bytes_out = machine->text + machine->at;
    machine->at += size_bytes;
    return ZO_OK;
}

/* A little-endian number of 1 to 8 bytes. */
static enum zo_status take_number(struct machine *machine, size_t size_bytes,
                                  uint64_t *number_out)
{
    uint64_t number = 0;
    char *bytes = NULL;

    ZO_TRY(take(machine, size_bytes, &bytes));
    for (size_t i = 0; i < size_bytes; i++) {
        number |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    }
    *number_out = number;
    return ZO_OK;
}

static enum zo_status push_number(struct machine *machine, size_t size_bytes,
                                  bool is_signed)
{
    uint64_t number = 0;

    ZO_TRY(take_number(machine, size_bytes, &number));
    if (is_signed && size_bytes > 0 && size_bytes < 8 &&
        (number >> (8 * size_bytes - 1)) != 0) {
        number |= UINT64_MAX << (8 * size_bytes);
    }
    return push(machine,
                (struct value){.kind = KIND_NUMBER, .number = (int64_t)number});
}

static enum zo_status op_long1(struct machine *machine)
{
    uint64_t size_bytes = 0;

    ZO_TRY(take_number(machine, 1, &size_bytes));
    if (size_bytes > 8) {
        return refuse(machine, "an integer of %d bytes", (int)size_bytes);
    }
    return push_number(machine, (size_t)size_bytes, true);
}

static enum zo_status op_proto(struct machine *machine)
{
    uint64_t protocol = 0;

    ZO_TRY(take_number(machine, 1, &protocol));
    if (protocol != PROTOCOL) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "%s: data.pkl is of pickle protocol %d; torch.save() "
                       "writes 2 unless told otherwise: load and save the "
                       "file again with PyTorch",
                       machine->path, (int)protocol);
    }
    return ZO_OK;
}

static enum zo_status op_text(struct machine *machine)
{
    const size_t length_at = machine->at + 3; /* its last byte */
    uint64_t length = 0;
    char *bytes = NULL;

    ZO_TRY(take_number(machine, 4, &length));
    ZO_TRY(take(machine, (size_t)length, &bytes));
    if (memchr(bytes, '\0', (size_t)length) != NULL ||
        !zo_utf8_valid(bytes, (size_t)length, NULL)) {
        return refuse(machine, "a string that is not text");
    }
    /* Over the last byte of the length, already read: room for the 0. */
    (void)memmove(bytes - 1, bytes, (size_t)length);
    machine->text[length_at + (size_t)length] = '\0';
    return push(machine, (struct value){.kind = KIND_TEXT,
                                        .first = (uint32_t)length_at});
}

static const char *text_of(const struct machine *machine, struct value value)
{
    return machine->text + value.first;
}

static enum zo_status op_put(struct machine *machine, size_t size_bytes)
{
    uint64_t number = 0;

    ZO_TRY(take_number(machine, size_bytes, &number));
    if (machine->depth == 0 || number > machine->memo_count) {
        return refuse(machine, machine->depth == 0
                                   ? "an opcode without its operand"
                                   : MEMO_STEP);
    }
    if (number == machine->memo_count) {
        ZO_TRY(zo_grow(&machine->memo, machine->memo_count,
                       &machine->memo_capacity, sizeof(machine->memo[0]),
                       "the memo of a pickle"));
        machine->memo_count++;
    }
    machine->memo[number] = machine->stack[machine->depth - 1];
    return ZO_OK;
}

static enum zo_status op_get(struct machine *machine, size_t size_bytes)
{
    uint64_t number = 0;

    ZO_TRY(take_number(machine, size_bytes, &number));
    if (number >= machine->memo_count ||
        machine->memo[number].kind == KIND_MARK) {
        return refuse(machine, "memo %llu was never put",
                      (unsigned long long)number);
    }
    return push(machine, machine->memo[number]);
}

/* The top `count` values become one tuple. */
static enum zo_status make_tuple(struct machine *machine, size_t count)
{
    const struct value tuple = {
        .kind = KIND_TUPLE,
        .first = (uint32_t)machine->pool_count,
        .count = (uint32_t)count,
    };

    for (size_t i = 0; i < count; i++) {
        const struct value value =
            machine->depth < count ? (struct value){.kind = KIND_MARK}
                                   : machine->stack[machine->depth - count + i];

        if (value.kind == KIND_MARK) {
            return refuse(machine, "an opcode without its operand");
        }
        ZO_TRY(zo_grow(&machine->pool, machine->pool_count,
                       &machine->pool_capacity, sizeof(machine->pool[0]),
                       "the tuples of a pickle"));
        machine->pool[machine->pool_count++] = value;
    }
    machine->depth -= count;
    return push(machine, tuple);
}

/* How many values lie above the topmost mark. */
static enum zo_status count_to_mark(const struct machine *machine,
                                    size_t *count_out)
{
    for (size_t i = machine->depth; i-- > 0;) {
        if (machine->stack[i].kind == KIND_MARK) {
            *count_out = machine->depth - i - 1;
            return ZO_OK;
        }
    }
    return refuse(machine, "no mark on the stack");
}

static enum zo_status op_tuple(struct machine *machine)
{
    size_t count = 0;
    struct value tuple = {0};

    ZO_TRY(count_to_mark(machine, &count));
    ZO_TRY(make_tuple(machine, count));
    tuple = machine->stack[machine->depth - 1];
    machine->stack[machine->depth - 2] = tuple; /* over the mark */
    machine->depth--;
    return ZO_OK;
}

static enum zo_status push_dict(struct machine *machine)
{
    return push(machine, (struct value){.kind = KIND_DICT,
                                        .first = machine->dict_count++});
}

static enum zo_status set_item(struct machine *machine, struct value dict,
                               struct value key, struct value value)
{
    if (dict.kind != KIND_DICT) {
        return refuse(machine, "an item is set in %s; want a dict",
                      kind_names[dict.kind]);
    }
    if (key.kind != KIND_TEXT) {
        return refuse(machine,
                      "a dict key is %s; want names of tensors: this is no "
                      "state dict of a model",
                      kind_names[key.kind]);
    }
    ZO_TRY(zo_grow(&machine->items, machine->item_count,
                   &machine->item_capacity, sizeof(machine->items[0]),
                   "the dicts of a pickle"));
    machine->items[machine->item_count++] =
        (struct item){dict.first, key, value};
    return ZO_OK;
}

static enum zo_status op_setitems(struct machine *machine, size_t count,
                                  bool has_mark)
{
    const size_t below = count + (has_mark ? 1 : 0) + 1;
    const struct value *values;

    if (count % 2 != 0 || machine->depth < below) {
        return refuse(machine, "an opcode without its operand");
    }
    values = machine->stack + machine->depth - count;
    for (size_t i = 0; i < count; i += 2) {
        ZO_TRY(set_item(machine, machine->stack[machine->depth - below],
                        values[i], values[i + 1]));
    }
    machine->depth -= below - 1;
    return ZO_OK;
}

static bool is_line(const char *line, size_t length, const char *wanted)
{
    return strlen(wanted) == length && memcmp(line, wanted, length) == 0;
}

/* The rest of a line, without its end. */
static enum zo_status take_line(struct machine *machine, char **line_out,
                                size_t *length_out)
{
    const size_t rest = machine->size_bytes - machine->at;
    const char *end = memchr(machine->text + machine->at, '\n', rest);

    if (end == NULL) {
        return refuse(machine, "a line without end");
    }
    *length_out = (size_t)(end - (machine->text + machine->at));
    return take(machine, *length_out + 1, line_out);
}

static enum zo_status op_global(struct machine *machine)
{
    size_t module_bytes = 0, name_bytes = 0;
    char *module = NULL, *name = NULL;

    ZO_TRY(take_line(machine, &module, &module_bytes));
    ZO_TRY(take_line(machine, &name, &name_bytes));
    for (size_t i = 0; i < ZO_COUNT(globals); i++) {
        if (is_line(module, module_bytes, globals[i].module) &&
            is_line(name, name_bytes, globals[i].name)) {
            return push(machine, (struct value){.kind = KIND_GLOBAL,
                                                .first = (uint32_t)i});
        }
    }
    return refuse(machine, "asks for %.*s.%.*s, which no weights need: refused",
                  (int)(module_bytes < 100 ? module_bytes : 100), module,
                  (int)(name_bytes < 100 ? name_bytes : 100), name);
}

static bool is_key(const char *key)
{
    const size_t length = strlen(key);

    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)key[i]) && key[i] != '_') {
            return false;
        }
    }
    return length > 0 && length <= KEY_MAX;
}

/* ('storage', torch.HalfStorage, '12', 'cpu', 4096) */
static enum zo_status op_persistent_id(struct machine *machine)
{
    struct zo_pickle *out = &machine->out;
    const struct value *part;
    struct value id = {0};

    ZO_TRY(pop_kind(machine, KIND_TUPLE, "a persistent id", &id));
    part = machine->pool + id.first;
    if (id.count != 5 || part[0].kind != KIND_TEXT ||
        strcmp(text_of(machine, part[0]), "storage") != 0 ||
        part[1].kind != KIND_GLOBAL ||
        globals[part[1].first].role != ROLE_STORAGE ||
        part[2].kind != KIND_TEXT || !is_key(text_of(machine, part[2])) ||
        part[3].kind != KIND_TEXT || part[4].kind != KIND_NUMBER ||
        part[4].number < 0) {
        return refuse(machine, "a persistent id that is no storage");
    }
    ZO_TRY(zo_grow(&out->storages, out->storage_count, &out->storage_capacity,
                   sizeof(out->storages[0]), "a table of storages"));
    out->storages[out->storage_count] = (struct zo_pickle_storage){
        .key = text_of(machine, part[2]),
        .element = globals[part[1].first].element,
        .elem_count = (uint64_t)part[4].number,
    };
    return push(machine,
                (struct value){.kind = KIND_STORAGE,
                               .first = (uint32_t)out->storage_count++});
}

/* The view lies within its storage, and is no larger than it. */
static bool is_within(const struct zo_pickle_tensor *tensor,
                      uint64_t elem_count)
{
    uint64_t last = tensor->first_elem, step;

    if (tensor->info.elem_count == 0) {
        return true;
    }
    for (int i = 0; i < tensor->info.rank; i++) {
        if (!zo_mul_u64((uint64_t)tensor->info.shape[i] - 1,
                        tensor->stride_elems[i], &step) ||
            !zo_add_u64(last, step, &last)) {
            return false;
        }
    }
    return last < elem_count && tensor->info.elem_count <= elem_count;
}

/* Shape and strides, tuples of as many numbers. */
static bool read_dimensions(const struct machine *machine, struct value shape,
                            struct value strides,
                            struct zo_pickle_tensor *tensor)
{
    if (shape.kind != KIND_TUPLE || strides.kind != KIND_TUPLE ||
        shape.count != strides.count || shape.count > ZO_TENSOR_RANK_MAX) {
        return false;
    }
    tensor->info.rank = (int)shape.count;
    for (uint32_t i = 0; i < shape.count; i++) {
        const struct value length = machine->pool[shape.first + i];
        const struct value stride = machine->pool[strides.first + i];

        if (length.kind != KIND_NUMBER || length.number < 0 ||
            stride.kind != KIND_NUMBER || stride.number < 0) {
            return false;
        }
        tensor->info.shape[i] = length.number;
        tensor->stride_elems[i] = (uint64_t)stride.number;
    }
    return true;
}

/* (storage, first element, shape, strides, requires_grad, hooks[, meta]) */
static enum zo_status rebuild_tensor(struct machine *machine, struct value args)
{
    const struct value *arg = machine->pool + args.first;
    struct zo_pickle_tensor tensor = {0};
    struct zo_pickle *out = &machine->out;
    const struct zo_pickle_storage *storage;

    if (args.count < 6 || args.count > 7 || arg[0].kind != KIND_STORAGE ||
        arg[1].kind != KIND_NUMBER || arg[1].number < 0 ||
        !read_dimensions(machine, arg[2], arg[3], &tensor)) {
        return refuse(machine, "_rebuild_tensor_v2 with arguments that make "
                               "no tensor of at most 8 dimensions");
    }
    storage = &out->storages[arg[0].first];
    tensor.storage = arg[0].first;
    tensor.first_elem = (uint64_t)arg[1].number;
    tensor.info.element = storage->element;
    if (!zo_tensor_info_measure(&tensor.info) ||
        !is_within(&tensor, storage->elem_count)) {
        char shape[ZO_SHAPE_TEXT_MAX];

        return refuse(machine,
                      "a tensor %s from element %llu on is not within storage "
                      "\"%s\" of %llu elements",
                      zo_shape_text(shape, sizeof(shape), tensor.info.shape,
                                    tensor.info.rank),
                      (unsigned long long)tensor.first_elem, storage->key,
                      (unsigned long long)storage->elem_count);
    }
    if (out->tensor_count == TENSORS_MAX) {
        return refuse(machine, "more than %d tensors", TENSORS_MAX);
    }
    ZO_TRY(zo_grow(&out->tensors, out->tensor_count, &out->tensor_capacity,
                   sizeof(out->tensors[0]), "a table of tensors"));
    out->tensors[out->tensor_count] = tensor;
    return push(machine,
                (struct value){.kind = KIND_TENSOR,
                               .first = (uint32_t)out->tensor_count++});
}

static enum zo_status op_reduce(struct machine *machine)
{
    const struct global *global;
    struct value args = {0}, callable = {0};

    ZO_TRY(pop_kind(machine, KIND_TUPLE, "the arguments of a call", &args));
    ZO_TRY(pop_kind(machine, KIND_GLOBAL, "what is called", &callable));
    global = &globals[callable.first];
    switch (global->role) {
    case ROLE_ORDERED_DICT:
        if (args.count != 0) {
            return refuse(machine, "OrderedDict with arguments");
        }
        return push_dict(machine);
    case ROLE_TENSOR:
        return rebuild_tensor(machine, args);
    case ROLE_PARAMETER: /* (tensor, requires_grad, hooks) */
        if (args.count != 3 || machine->pool[args.first].kind != KIND_TENSOR) {
            return refuse(machine, "_rebuild_parameter without a tensor");
        }
        return push(machine, machine->pool[args.first]);
    case ROLE_STORAGE:
        break;
    }
    return refuse(machine, "asks to call %s.%s: refused", global->module,
                  global->name);
}

/* OrderedDict's attributes, such as _metadata: of no use here. */
static enum zo_status op_build(struct machine *machine)
{
    struct value ignored = {0};

    ZO_TRY(pop_kind(machine, KIND_DICT, "the state of an object", &ignored));
    if (machine->depth == 0 ||
        machine->stack[machine->depth - 1].kind != KIND_DICT) {
        return refuse(machine, "sets attributes of what is no dict: refused");
    }
    return ZO_OK;
}

static enum zo_status refuse_opcode(const struct machine *machine, int opcode)
{
    static const struct {
        int opcode;
        const char *name;
    } known[] = {
        {'i', "INST"},       {'o', "OBJ"},           {0x81, "NEWOBJ"},
        {0x82, "EXT1"},      {0x83, "EXT2"},         {0x84, "EXT4"},
        {'P', "PERSID"},     {0x93, "STACK_GLOBAL"}, {0x92, "NEWOBJ_EX"},
        {']', "EMPTY_LIST"}, {'G', "BINFLOAT"},      {0x95, "FRAME"},
    };
    const char *name = "of another kind";

    for (size_t i = 0; i < ZO_COUNT(known); i++) {
        name = known[i].opcode == opcode ? known[i].name : name;
    }
    return refuse(machine, "opcode 0x%02x (%s), which no weights need: refused",
                  opcode, name);
}

static enum zo_status step(struct machine *machine, int opcode)
{
    size_t count = 0;

    switch (opcode) {
    case OP_PROTO:
        return op_proto(machine);
    case OP_MARK:
        return push(machine, (struct value){.kind = KIND_MARK});
    case OP_NONE:
        return push(machine, (struct value){.kind = KIND_NONE});
    case OP_TRUE:
    case OP_FALSE:
        return push(machine, (struct value){.kind = KIND_BOOL});
    case OP_BININT:
        return push_number(machine, 4, true);
    case OP_BININT1:
        return push_number(machine, 1, false);
    case OP_BININT2:
        return push_number(machine, 2, false);
    case OP_LONG1:
        return op_long1(machine);
    case OP_BINUNICODE:
        return op_text(machine);
    case OP_EMPTY_DICT:
        return push_dict(machine);
    case OP_EMPTY_TUPLE:
        return make_tuple(machine, 0);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        return make_tuple(machine, (size_t)(opcode - OP_TUPLE1) + 1);
    case OP_TUPLE:
        return op_tuple(machine);
    case OP_BINPUT:
    case OP_LONG_BINPUT:
        return op_put(machine, opcode == OP_BINPUT ? 1 : 4);
    case OP_BINGET:
    case OP_LONG_BINGET:
        return op_get(machine, opcode == OP_BINGET ? 1 : 4);
    case OP_GLOBAL:
        return op_global(machine);
    case OP_BINPERSID:
        return op_persistent_id(machine);
    case OP_REDUCE:
        return op_reduce(machine);
    case OP_SETITEM:
        return op_setitems(machine, 2, false);
    case OP_SETITEMS:
        ZO_TRY(count_to_mark(machine, &count));
        return op_setitems(machine, count, true);
    case OP_BUILD:
        return op_build(machine);
    default:
        return refuse_opcode(machine, opcode);
    }
}

/* After STOP: the names of the dict on the stack, in order. */
static enum zo_status collect(struct machine *machine, struct zo_pickle *pickle)
{
    struct value root = {0};

    ZO_TRY(pop_kind(machine, KIND_DICT, "what is in the file", &root));
    if (machine->depth != 0 || machine->at != machine->size_bytes) {
        return refuse(machine, "something is left after the end");
    }
    for (size_t i = 0; i < machine->item_count; i++) {
        const struct item *item = &machine->items[i];
        const char *name = text_of(machine, item->key);

        if (item->dict != root.first) {
            continue;
        }
        if (item->value.kind != KIND_TENSOR) {
            return refuse(machine,
                          "\"%.200s\" is %s; want a flat dict of tensors, as "
                          "model.state_dict() gives",
                          name, kind_names[item->value.kind]);
        }
        ZO_TRY(zo_grow(&pickle->tensors, pickle->tensor_count,
                       &pickle->tensor_capacity, sizeof(pickle->tensors[0]),
                       "a table of tensors"));
        pickle->tensors[pickle->tensor_count] =
            machine->out.tensors[item->value.first];
        pickle->tensors[pickle->tensor_count++].info.name = name;
    }
    return ZO_OK;
}

static enum zo_status interpret(struct machine *machine)
{
    for (;;) {
        char *opcode = NULL;

        machine->opcode_at = machine->at;
        ZO_TRY(take(machine, 1, &opcode));
        if (*opcode == OP_STOP) {
            return ZO_OK;
        }
        ZO_TRY(step(machine, (unsigned char)*opcode));
    }
}

enum zo_status zo_pickle_read(const char *path, char *text, size_t size_bytes,
                              struct zo_pickle *pickle_out)
{
    struct machine machine = {
        .path = path,
        .text = text,
        .size_bytes = size_bytes,
    };
    struct zo_pickle pickle = {0};
    enum zo_status status;

    ZO_ASSERT(size_bytes <= ZO_PICKLE_BYTES_MAX);
    ZO_TRY_GOTO(free_machine, interpret(&machine));
    ZO_TRY_GOTO(free_machine, collect(&machine, &pickle));
    pickle.storages = machine.out.storages;
    pickle.storage_count = machine.out.storage_count;
    machine.out.storages = NULL;
    *pickle_out = pickle;
    pickle = (struct zo_pickle){0};

free_machine:
    zo_pickle_fini(&pickle);
    zo_pickle_fini(&machine.out);
    zo_free(machine.stack);
    zo_free(machine.memo);
    zo_free(machine.pool);
    zo_free(machine.items);
    return status;
}

void zo_pickle_fini(struct zo_pickle *pickle)
{
    zo_free(pickle->storages);
    zo_free(pickle->tensors);
    *pickle = (struct zo_pickle){0};
}
