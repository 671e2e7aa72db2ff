#include "tests/fake_root.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tap.h"

static char root[] = "fake_root.XXXXXX";
static bool is_made;
static char files[64][256]; /* written so far, for the end */
static int file_count;

const char *fake_root(void)
{
    is_made = is_made || mkdtemp(root) != NULL;
    return is_made ? root : NULL;
}

bool fake_root_put(const char *name, const char *text)
{
    char path[256];
    FILE *file;
    bool done;

    if (fake_root() == NULL || file_count == (int)TAP_COUNT(files)) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0777);
        *at = '/';
    }
    file = fopen(path, "w");
    if (file == NULL) {
        return false;
    }
    (void)snprintf(files[file_count++], sizeof(files[0]), "%s", path);
    done = fputs(text, file) >= 0;
    return fclose(file) == 0 && done;
}

void fake_root_clear(void)
{
    while (file_count > 0) {
        char *path = files[--file_count];
        char *slash;

        (void)unlink(path);
        while ((slash = strrchr(path, '/')) != NULL) {
            *slash = '\0';
            if (strcmp(path, root) == 0 || rmdir(path) != 0) {
                break;
            }
        }
    }
}

void fake_root_remove(void)
{
    fake_root_clear();
    if (is_made) {
        (void)rmdir(root);
    }
}
