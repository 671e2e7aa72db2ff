#include "src/base/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"

enum zo_status zo_note_add(struct zo_notes *notes, enum zo_note_level level,
                           const char *format, ...)
{
    char raw[2048], text[2048];
    va_list args;
    char *copy = NULL;

    va_start(args, format);
    (void)vsnprintf(raw, sizeof(raw), format, args);
    va_end(args);
    zo_text_escape(text, sizeof(text), raw, strlen(raw));
    ZO_TRY(zo_grow(&notes->items, notes->count, &notes->capacity,
                   sizeof(notes->items[0]), "notes"));
    ZO_TRY(zo_strndup(text, strlen(text), &copy));
    notes->items[notes->count++] = (struct zo_note){level, copy};
    return ZO_OK;
}

void zo_notes_fini(struct zo_notes *notes)
{
    if (notes == NULL) {
        return;
    }
    for (size_t i = 0; i < notes->count; i++) {
        zo_free(notes->items[i].text);
    }
    zo_free(notes->items);
    *notes = (struct zo_notes){0};
}
