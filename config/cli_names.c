#include "config/cli_names.h"

#include <string.h>
#include <strings.h>

int zo_word_index(const char *words, const char *word)
{
    const size_t length = strlen(word);
    int index = 0;

    if (words == NULL || length == 0) {
        return -1;
    }
    for (const char *at = words; *at != '\0'; index++) {
        const size_t step = strcspn(at, " ");

        if (step == length && strncasecmp(at, word, length) == 0) {
            return index;
        }
        at += step;
        at += strspn(at, " ");
    }
    return -1;
}
