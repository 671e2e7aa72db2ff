#include "src/data/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/data/sentencepiece_shim.h"
#include "src/data/tokenizer_file.h"

/* What SentencePiece writes for a blank, and puts in front of a text. */
#define BLANK_PIECE "\xe2\x96\x81"

struct zo_tokenizer {
    struct zo_sentencepiece *model; /* owned */
    enum zo_chat_format chat;
    int32_t piece_count, special_count;
    int32_t eos, pad;
    int32_t blank; /* the piece of a blank alone, or -1 */
};

static const char *const special_names[ZO_SPECIAL_COUNT] = {
    "[MASK]",   "[gMASK]",       "[sMASK]",         "sop", "eop", "<|system|>",
    "<|user|>", "<|assistant|>", "<|observation|>",
};

/* A text under construction; all zero is empty. */
struct text {
    char *bytes; /* owned */
    size_t count, capacity;
};

static enum zo_status text_append(struct text *text, const char *bytes,
                                  size_t count)
{
    const size_t need = text->count + count;

    if (need > text->capacity) {
        ZO_TRY(zo_realloc(&text->bytes, 2 * need, 1, "a prompt"));
        text->capacity = 2 * need;
    }
    if (count > 0) {
        memcpy(text->bytes + text->count, bytes, count);
        text->count = need;
    }
    return ZO_OK;
}

static enum zo_status check_model(const struct zo_tokenizer *tokenizer,
                                  const char *path)
{
    if (tokenizer->eos < 0 || tokenizer->pad < 0) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: the model has no %s piece, which marks the %s of a "
                       "row",
                       path, tokenizer->eos < 0 ? "</s>" : "<unk>",
                       tokenizer->eos < 0 ? "end" : "padding");
    }
    if (zo_sentencepiece_find(tokenizer->model, "[gMASK]") >= 0) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: [gMASK] is a piece of this model, as in "
                       "ChatGLM-6B's first version; want the tokenizer.model "
                       "of ChatGLM2 or a later one of its kind",
                       path);
    }
    return ZO_OK;
}

enum zo_status zo_tokenizer_open(const char *path, enum zo_chat_format chat,
                                 struct zo_tokenizer **tokenizer_out)
{
    struct zo_tokenizer *tokenizer = NULL;
    unsigned char *bytes = NULL;
    size_t size_bytes = 0;
    enum zo_status status;

    ZO_TRY(zo_tokenizer_read(path, &bytes, &size_bytes));
    ZO_TRY_GOTO(free_bytes,
                zo_alloc(1, sizeof(*tokenizer), "the tokenizer", &tokenizer));
    ZO_TRY_GOTO(close_tokenizer, zo_sentencepiece_open(bytes, size_bytes, path,
                                                       &tokenizer->model));
    tokenizer->chat = chat;
    tokenizer->piece_count = zo_sentencepiece_count(tokenizer->model);
    tokenizer->special_count =
        chat == ZO_CHAT_ROLES ? ZO_SPECIAL_COUNT : ZO_SPECIAL_EOP + 1;
    tokenizer->eos = zo_sentencepiece_eos(tokenizer->model);
    tokenizer->pad = zo_sentencepiece_unk(tokenizer->model);
    tokenizer->blank = zo_sentencepiece_find(tokenizer->model, BLANK_PIECE);
    ZO_TRY_GOTO(close_tokenizer, check_model(tokenizer, path));
    zo_free(bytes);
    *tokenizer_out = tokenizer;
    return ZO_OK;

close_tokenizer:
    zo_tokenizer_close(tokenizer);
free_bytes:
    zo_free(bytes);
    return status;
}

void zo_tokenizer_close(struct zo_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    zo_sentencepiece_close(tokenizer->model);
    zo_free(tokenizer);
}

enum zo_chat_format zo_tokenizer_chat(const struct zo_tokenizer *tokenizer)
{
    return tokenizer->chat;
}

int32_t zo_tokenizer_piece_count(const struct zo_tokenizer *tokenizer)
{
    return tokenizer->piece_count;
}

int32_t zo_tokenizer_id_count(const struct zo_tokenizer *tokenizer)
{
    return tokenizer->piece_count + tokenizer->special_count;
}

int32_t zo_tokenizer_special(const struct zo_tokenizer *tokenizer,
                             enum zo_special special)
{
    return (int32_t)special < tokenizer->special_count
               ? tokenizer->piece_count + (int32_t)special
               : -1;
}

int32_t zo_tokenizer_eos(const struct zo_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

int32_t zo_tokenizer_pad(const struct zo_tokenizer *tokenizer)
{
    return tokenizer->pad;
}

enum zo_status zo_tokenizer_encode(const struct zo_tokenizer *tokenizer,
                                   const char *text, size_t size_bytes,
                                   struct zo_ids *ids)
{
    size_t bad = 0;

    if (!zo_utf8_valid(text, size_bytes, &bad)) {
        return ZO_FAIL(ZO_E_DATA,
                       "text of %zu bytes: byte %zu, \\x%02x, is not UTF-8",
                       size_bytes, bad, (unsigned)(unsigned char)text[bad]);
    }
    return zo_sentencepiece_encode(tokenizer->model, text, size_bytes, ids);
}

enum zo_status zo_tokenizer_encode_rest(const struct zo_tokenizer *tokenizer,
                                        const char *text, size_t size_bytes,
                                        struct zo_ids *ids)
{
    const size_t begin = ids->count;

    ZO_TRY(zo_tokenizer_encode(tokenizer, text, size_bytes, ids));
    if (ids->count > begin && ids->items[begin] == tokenizer->blank) {
        ids->count--;
        memmove(ids->items + begin, ids->items + begin + 1,
                (ids->count - begin) * sizeof(ids->items[0]));
    }
    return ZO_OK;
}

enum zo_status zo_tokenizer_prefix(const struct zo_tokenizer *tokenizer,
                                   struct zo_ids *ids)
{
    const int32_t prefix[] = {
        zo_tokenizer_special(tokenizer, ZO_SPECIAL_GMASK),
        zo_tokenizer_special(tokenizer, ZO_SPECIAL_SOP),
    };

    return zo_ids_append(ids, prefix, ZO_COUNT(prefix));
}

enum zo_status zo_tokenizer_answer(const struct zo_tokenizer *tokenizer,
                                   const char *text, size_t size_bytes,
                                   struct zo_ids *ids)
{
    if (tokenizer->chat == ZO_CHAT_ROLES) {
        ZO_TRY(zo_tokenizer_encode(tokenizer, "\n", 1, ids));
    }
    return zo_tokenizer_encode(tokenizer, text, size_bytes, ids);
}

/* Roles that alternate, user first, after an optional system turn. */
static enum zo_status check_rounds(const struct zo_turn *turns, size_t count)
{
    static const char *const names[] = {"system", "user", "assistant",
                                        "observation"};
    const size_t first = turns[0].role == ZO_ROLE_SYSTEM;

    for (size_t i = first; i < count; i++) {
        const enum zo_role want =
            (i - first) % 2 == 0 ? ZO_ROLE_USER : ZO_ROLE_ASSISTANT;

        if (turns[i].role != want) {
            return ZO_FAIL(ZO_E_DATA,
                           "turn %zu of the conversation is of role %s; "
                           "ChatGLM2's template wants %s there",
                           i + 1, names[turns[i].role], names[want]);
        }
    }
    return ZO_OK;
}

/* Appends what ChatGLM2's template writes for turn i, answers included. */
static enum zo_status append_round(struct text *text,
                                   const struct zo_turn *turns, size_t i,
                                   size_t *round)
{
    static const char question[] = "问：", answer[] = "\n\n答：";
    char title[48];

    if (turns[i].role == ZO_ROLE_USER) {
        (void)snprintf(title, sizeof(title), "[Round %zu]\n\n", ++*round);
        ZO_TRY(text_append(text, title, strlen(title)));
        ZO_TRY(text_append(text, question, strlen(question)));
        ZO_TRY(text_append(text, turns[i].text, turns[i].size_bytes));
        return text_append(text, answer, strlen(answer));
    }
    ZO_TRY(text_append(text, turns[i].text, turns[i].size_bytes));
    return text_append(text, "\n\n", 2);
}

/* One turn of ChatGLM3: its role token, "\n" and its text. */
static enum zo_status append_role(const struct zo_tokenizer *tokenizer,
                                  const struct zo_turn *turn,
                                  struct zo_ids *ids)
{
    static const enum zo_special tokens[] = {ZO_SPECIAL_SYSTEM, ZO_SPECIAL_USER,
                                             ZO_SPECIAL_ASSISTANT,
                                             ZO_SPECIAL_OBSERVATION};

    ZO_TRY(
        zo_ids_push(ids, zo_tokenizer_special(tokenizer, tokens[turn->role])));
    return zo_tokenizer_answer(tokenizer, turn->text, turn->size_bytes, ids);
}

static enum zo_status check_turns(const struct zo_tokenizer *tokenizer,
                                  const struct zo_turn *turns, size_t count,
                                  bool ends_with_answer)
{
    if (count == 0) {
        return ZO_FAIL(ZO_E_DATA, "a conversation without a turn");
    }
    if ((turns[count - 1].role == ZO_ROLE_ASSISTANT) != ends_with_answer) {
        return ZO_FAIL(ZO_E_DATA, "the last turn of the conversation is %s",
                       ends_with_answer ? "no answer" : "an answer");
    }
    return tokenizer->chat == ZO_CHAT_ROUNDS ? check_rounds(turns, count)
                                             : ZO_OK;
}

/* Templates that are one text: ChatGLM2's, and none. */
static enum zo_status encode_as_text(const struct zo_tokenizer *tokenizer,
                                     const struct zo_turn *turns, size_t count,
                                     struct zo_ids *ids)
{
    struct text text = {0};
    size_t round = 0;
    enum zo_status status = ZO_OK;

    for (size_t i = 0; i < count && status == ZO_OK; i++) {
        status = tokenizer->chat == ZO_CHAT_ROUNDS
                     ? append_round(&text, turns, i, &round)
                     : text_append(&text, turns[i].text, turns[i].size_bytes);
    }
    if (status == ZO_OK) {
        status = zo_tokenizer_encode(tokenizer, text.bytes, text.count, ids);
    }
    zo_free(text.bytes);
    return status;
}

enum zo_status zo_tokenizer_prompt(const struct zo_tokenizer *tokenizer,
                                   const struct zo_turn *turns, size_t count,
                                   struct zo_ids *ids)
{
    ZO_TRY(check_turns(tokenizer, turns, count, false));
    ZO_TRY(zo_tokenizer_prefix(tokenizer, ids));
    if (tokenizer->chat != ZO_CHAT_ROLES) {
        return encode_as_text(tokenizer, turns, count, ids);
    }
    for (size_t i = 0; i < count; i++) {
        ZO_TRY(append_role(tokenizer, &turns[i], ids));
    }
    return zo_ids_push(ids,
                       zo_tokenizer_special(tokenizer, ZO_SPECIAL_ASSISTANT));
}

void zo_spans_fini(struct zo_spans *spans)
{
    if (spans == NULL) {
        return;
    }
    zo_free(spans->items);
    *spans = (struct zo_spans){0};
}

static enum zo_status add_span(struct zo_spans *spans, size_t begin, size_t end)
{
    ZO_TRY(zo_grow(&spans->items, spans->count, &spans->capacity,
                   sizeof(spans->items[0]), "the answers of a row"));
    spans->items[spans->count++] =
        (struct zo_span){(int64_t)begin, (int64_t)end};
    return ZO_OK;
}

static enum zo_status converse_by_role(const struct zo_tokenizer *tokenizer,
                                       const struct zo_turn *turns,
                                       size_t count, struct zo_ids *ids,
                                       struct zo_spans *answers)
{
    for (size_t i = 0; i < count; i++) {
        const size_t begin = ids->count + 1; /* after the role token */

        ZO_TRY(append_role(tokenizer, &turns[i], ids));
        if (turns[i].role == ZO_ROLE_ASSISTANT) {
            ZO_TRY(add_span(answers, begin, ids->count));
        }
    }
    return ZO_OK;
}

/* An answer alone, after the text that has gathered before it. */
static enum zo_status append_answer(const struct zo_tokenizer *tokenizer,
                                    struct text *before, bool is_first,
                                    const struct zo_turn *answer,
                                    struct zo_ids *ids,
                                    struct zo_spans *answers)
{
    size_t begin;

    if (is_first) {
        ZO_TRY(
            zo_tokenizer_encode(tokenizer, before->bytes, before->count, ids));
    } else {
        ZO_TRY(zo_tokenizer_encode_rest(tokenizer, before->bytes, before->count,
                                        ids));
    }
    before->count = 0;
    begin = ids->count;
    ZO_TRY(
        zo_tokenizer_answer(tokenizer, answer->text, answer->size_bytes, ids));
    return add_span(answers, begin, ids->count);
}

static enum zo_status converse_by_text(const struct zo_tokenizer *tokenizer,
                                       const struct zo_turn *turns,
                                       size_t count, struct zo_ids *ids,
                                       struct zo_spans *answers)
{
    const bool is_glm2 = tokenizer->chat == ZO_CHAT_ROUNDS;
    struct text text = {0};
    size_t round = 0;
    bool is_first = true;
    enum zo_status status = ZO_OK;

    for (size_t i = 0; i < count && status == ZO_OK; i++) {
        if (turns[i].role == ZO_ROLE_ASSISTANT) {
            status = append_answer(tokenizer, &text, is_first, &turns[i], ids,
                                   answers);
            is_first = false;
            if (status == ZO_OK && is_glm2) {
                status = text_append(&text, "\n\n", 2);
            }
        } else if (is_glm2) {
            status = append_round(&text, turns, i, &round);
        } else {
            status = text_append(&text, turns[i].text, turns[i].size_bytes);
        }
    }
    zo_free(text.bytes);
    return status;
}

enum zo_status zo_tokenizer_conversation(const struct zo_tokenizer *tokenizer,
                                         const struct zo_turn *turns,
                                         size_t count, struct zo_ids *ids,
                                         struct zo_spans *answers)
{
    ZO_TRY(check_turns(tokenizer, turns, count, true));
    ZO_TRY(zo_tokenizer_prefix(tokenizer, ids));
    return tokenizer->chat == ZO_CHAT_ROLES
               ? converse_by_role(tokenizer, turns, count, ids, answers)
               : converse_by_text(tokenizer, turns, count, ids, answers);
}

static bool is_text(const struct zo_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->piece_count &&
           !zo_sentencepiece_is_special(tokenizer->model, id);
}

enum zo_status zo_tokenizer_decode(const struct zo_tokenizer *tokenizer,
                                   const int32_t *ids, size_t count,
                                   char **text_out, size_t *size_bytes_out)
{
    struct zo_ids kept = {0};
    enum zo_status status = ZO_OK;

    for (size_t i = 0; i < count && status == ZO_OK; i++) {
        if (is_text(tokenizer, ids[i])) {
            status = zo_ids_push(&kept, ids[i]);
        }
    }
    if (status == ZO_OK) {
        status = zo_sentencepiece_decode(tokenizer->model, kept.items,
                                         kept.count, text_out, size_bytes_out);
    }
    zo_ids_fini(&kept);
    return status;
}

const char *zo_tokenizer_spelling(const struct zo_tokenizer *tokenizer,
                                  int32_t id)
{
    if (id < 0 || id >= zo_tokenizer_id_count(tokenizer)) {
        return "<?>";
    }
    return id < tokenizer->piece_count
               ? zo_sentencepiece_piece(tokenizer->model, id)
               : special_names[id - tokenizer->piece_count];
}
