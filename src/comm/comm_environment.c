#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/comm/comm.h"

/* The variable that follows `before` in order of name; NULL: there is none. */
static const char *next_variable(const char *prefix, const char *before)
{
    const char *next = NULL;

    for (char **at = environ; at != NULL && *at != NULL; at++) {
        if (strncmp(*at, prefix, strlen(prefix)) == 0 &&
            (before == NULL || strcmp(*at, before) > 0) &&
            (next == NULL || strcmp(*at, next) < 0)) {
            next = *at;
        }
    }
    return next;
}

const char *zo_comm_environment(const char *prefix, char *target,
                                size_t target_bytes)
{
    size_t used = 0;

    target[0] = '\0';
    for (const char *variable = next_variable(prefix, NULL); variable != NULL;
         variable = next_variable(prefix, variable)) {
        const int length = snprintf(target + used, target_bytes - used, "%s%s",
                                    used > 0 ? " " : "", variable);

        if (length < 0 || (size_t)length >= target_bytes - used) {
            memcpy(target + target_bytes - 4, "...", 4);
            break;
        }
        used += (size_t)length;
    }
    return target;
}
