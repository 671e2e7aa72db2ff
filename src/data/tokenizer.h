/*
 * The tokenizer of the ChatGLM2 family: a SentencePiece model, the special
 * tokens that follow its pieces, and the chat templates.
 *
 * Layer 6.  Life cycle: open, any number of encodes and decodes, close.
 * Read-only once open: any number of threads may share one.
 *
 * The template is the model's chat_format: rounds (ChatGLM2), roles (ChatGLM3)
 * or plain (CodeGeeX2, a base model).
 *
 * Special tokens are ids and never text: text that spells one ("[gMASK]",
 * "</s>") is encoded as the ordinary text that it is.
 */
#ifndef ZO_SRC_DATA_TOKENIZER_H
#define ZO_SRC_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/model_config.h"
#include "src/base/status.h"
#include "src/data/ids.h"

ZO_C_BEGIN

struct zo_tokenizer; /* opaque */

/* Special tokens, in the order of their ids: piece count + 0, 1, 2, ... */
enum zo_special {
    ZO_SPECIAL_MASK,  /* [MASK] */
    ZO_SPECIAL_GMASK, /* [gMASK] */
    ZO_SPECIAL_SMASK, /* [sMASK] */
    ZO_SPECIAL_SOP,   /* sop */
    ZO_SPECIAL_EOP,   /* eop */
    /* the others exist with ZO_CHAT_ROLES only */
    ZO_SPECIAL_SYSTEM,      /* <|system|> */
    ZO_SPECIAL_USER,        /* <|user|> */
    ZO_SPECIAL_ASSISTANT,   /* <|assistant|> */
    ZO_SPECIAL_OBSERVATION, /* <|observation|> */
    ZO_SPECIAL_COUNT
};

enum zo_role {
    ZO_ROLE_SYSTEM,
    ZO_ROLE_USER,
    ZO_ROLE_ASSISTANT,
    ZO_ROLE_OBSERVATION /* what a tool answered; ZO_CHAT_ROLES only */
};

/* One message of a conversation. */
struct zo_turn {
    enum zo_role role;
    const char *text; /* borrowed for the call; UTF-8, may hold NUL */
    size_t size_bytes;
};

/*
 * Reads a tokenizer.model file.
 *
 * On success the caller owns *tokenizer_out and ends it with
 * zo_tokenizer_close().
 *
 *   ZO_E_USAGE     path cannot be opened, or is no regular file
 *   ZO_E_CORRUPT   not a SentencePiece model: a Git LFS pointer, a web page,
 *                  cut off, above 64 MiB; no end token; [gMASK] among its
 *                  pieces, as in ChatGLM-6B's first version
 *   ZO_E_IO        reading failed; native is errno
 *   ZO_E_NOMEM     no memory
 */
enum zo_status
zo_tokenizer_open(const char *path, enum zo_chat_format chat,
                  struct zo_tokenizer **tokenizer_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_tokenizer_close(struct zo_tokenizer *tokenizer);

enum zo_chat_format zo_tokenizer_chat(const struct zo_tokenizer *tokenizer);

/* Pieces of the SentencePiece model. */
int32_t zo_tokenizer_piece_count(const struct zo_tokenizer *tokenizer);

/* All ids that may occur, specials included: what the vocabulary must hold. */
int32_t zo_tokenizer_id_count(const struct zo_tokenizer *tokenizer);

/* Id of a special token, -1 when this tokenizer does not have it. */
int32_t zo_tokenizer_special(const struct zo_tokenizer *tokenizer,
                             enum zo_special special);

/* The end token (2), and the id that fills up rows (0, the unknown piece). */
int32_t zo_tokenizer_eos(const struct zo_tokenizer *tokenizer);
int32_t zo_tokenizer_pad(const struct zo_tokenizer *tokenizer);

/*
 * Appends the ids of text, without special tokens.
 *
 *   ZO_E_DATA    the text is not UTF-8
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_tokenizer_encode(const struct zo_tokenizer *tokenizer,
                                   const char *text, size_t size_bytes,
                                   struct zo_ids *ids) ZO_MUST_CHECK;

/*
 * As encode, for text that continues a row: without the piece for a blank
 * that SentencePiece puts in front of a text, where that piece stands alone.
 */
enum zo_status zo_tokenizer_encode_rest(const struct zo_tokenizer *tokenizer,
                                        const char *text, size_t size_bytes,
                                        struct zo_ids *ids) ZO_MUST_CHECK;

/*
 * Appends the ids of an answer, which follows a prompt: with ZO_CHAT_ROLES the
 * "\n" of the role token comes first.  The end token is the caller's.
 */
enum zo_status zo_tokenizer_answer(const struct zo_tokenizer *tokenizer,
                                   const char *text, size_t size_bytes,
                                   struct zo_ids *ids) ZO_MUST_CHECK;

/* Appends [gMASK] sop, which begin every row. */
enum zo_status zo_tokenizer_prefix(const struct zo_tokenizer *tokenizer,
                                   struct zo_ids *ids) ZO_MUST_CHECK;

/*
 * Appends the prompt that asks for the answer to the last turn, as at
 * inference, [gMASK] sop included.
 *
 *   ZO_CHAT_ROUNDS  one text, "[Round i]\n\n问：Q\n\n答：A\n\n" a past round,
 *                   then "[Round n]\n\n问：Q\n\n答：".  A system turn may come
 *                   first; its text and "\n\n" precede the first round.  Then
 *                   user and assistant take turns, user first and last.
 *   ZO_CHAT_ROLES   per turn its role token, "\n" and the text, each encoded
 *                   alone; then <|assistant|>.  Roles in any order.
 *   ZO_CHAT_PLAIN   the texts, one after the other.
 *
 *   ZO_E_DATA    no turn, roles that the template cannot take, not UTF-8
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_tokenizer_prompt(const struct zo_tokenizer *tokenizer,
                                   const struct zo_turn *turns, size_t count,
                                   struct zo_ids *ids) ZO_MUST_CHECK;

/* A stretch [begin, end) of a list of ids: one answer of a conversation. */
struct zo_span {
    int64_t begin, end;
};

struct zo_spans {
    struct zo_span *items; /* owned */
    size_t count, capacity;
};

void zo_spans_fini(struct zo_spans *spans);

/*
 * Appends a whole conversation as training sees it, without the end token,
 * and to `answers` the stretch of ids of every assistant turn.
 *
 * With ZO_CHAT_ROUNDS and ZO_CHAT_PLAIN an answer is encoded alone (it is what
 * the model writes), and what stands between two answers as one text that
 * continues the row.  With ZO_CHAT_ROLES an answer is what follows
 * <|assistant|>: "\n" and the text.
 *
 *   ZO_E_DATA    as zo_tokenizer_prompt(), but the last turn must be an
 *                assistant's
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_tokenizer_conversation(
    const struct zo_tokenizer *tokenizer, const struct zo_turn *turns,
    size_t count, struct zo_ids *ids, struct zo_spans *answers) ZO_MUST_CHECK;

/*
 * The text of ids.  Special ids, the end token and the unknown piece among
 * them, stand for no text; so do ids outside the vocabulary (models have
 * rows without a token).  Bytes of a character that is cut off become
 * U+FFFD.  *text_out is owned, terminated, ended with zo_free(), and may
 * hold NUL bytes.
 */
enum zo_status zo_tokenizer_decode(const struct zo_tokenizer *tokenizer,
                                   const int32_t *ids, size_t count,
                                   char **text_out,
                                   size_t *size_bytes_out) ZO_MUST_CHECK;

/*
 * The spelling of one token: a piece, or "[gMASK]".  "<?>" for an id outside
 * the vocabulary.  Borrowed until close.
 */
const char *zo_tokenizer_spelling(const struct zo_tokenizer *tokenizer,
                                  int32_t id);

ZO_C_END

#endif
