/*
 * What the tests of src/data share: files in a folder of their own, the files
 * of the shared folder, and a small SentencePiece model made from scratch.
 */
#ifndef ZO_TESTS_DATA_HELP_H
#define ZO_TESTS_DATA_HELP_H

#include <stdbool.h>
#include <stddef.h>

#include "src/data/dataset.h"
#include "src/data/tokenizer.h"

/*
 * Writes a file into a folder that is removed at exit.  The path is static:
 * valid until the next call with the same name.
 */
const char *help_write(const char *name, const void *bytes, size_t size_bytes);
const char *help_write_text(const char *name, const char *text);

/* The path of a name in that folder, whether it exists or not. */
const char *help_path(const char *name);

/*
 * The path of a file in the shared folder; NULL, and the case marked as
 * skipped, when it is not there.  Static: up to 8 paths at a time.
 */
const char *help_shared(const char *relative);

/* Reads a whole file; ended with free().  NULL when it cannot be read. */
char *help_read(const char *path, size_t *size_bytes_out);

/*
 * A byte-fallback BPE model of 3 special, 256 byte and a few text pieces:
 * blank, a..e, ab, cd, abcd, blank + ab.  The path of the file.
 */
const char *help_toy_model(void);

/*
 * The same with other spellings of the end token and the last piece, and,
 * without byte_fallback, the unknown piece for what no piece spells.
 */
const char *help_toy_model_with(const char *name, const char *eos,
                                const char *last, bool byte_fallback);

#define HELP_TOY_PIECES (3 + 256 + 10)
#define HELP_TOY_BLANK  (3 + 256)

/* The toy model, or the official one (NULL and skipped if not there). */
struct zo_tokenizer *help_toy_tokenizer(enum zo_chat_format chat);
struct zo_tokenizer *help_official_tokenizer(enum zo_chat_format chat);

/* A row's labels, one for every token, -100 where there is none. */
void help_labels(const struct zo_dataset *dataset, int64_t index,
                 int32_t *labels);

/* True if the last error's text holds `part`; prints it if not. */
bool help_error_has(const char *part);

#endif
