/*
 * Lines that library code wants the user to see.  Library code never prints:
 * it adds a note, and the subcommand decides where notes go.
 *
 * Layer 0.  One thread at a time.
 */
#ifndef ZO_SRC_BASE_NOTES_H
#define ZO_SRC_BASE_NOTES_H

#include <stddef.h>

#include "src/base/status.h"

ZO_C_BEGIN

enum zo_note_level { ZO_NOTE_INFO, ZO_NOTE_WARN };

struct zo_note {
    enum zo_note_level level;
    char *text; /* owned by the list; control characters escaped */
};

/* All zero is an empty list. */
struct zo_notes {
    struct zo_note *items; /* owned */
    size_t count, capacity;
};

/* Adds a line, without \n at its end. */
enum zo_status zo_note_add(struct zo_notes *notes, enum zo_note_level level,
                           const char *format, ...)
    ZO_PRINTF(3, 4) ZO_MUST_CHECK;

/* Frees the lines; the list is empty afterwards.  NULL is allowed. */
void zo_notes_fini(struct zo_notes *notes);

ZO_C_END

#endif
