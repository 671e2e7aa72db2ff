#include "src/cli/output_folder.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static enum zo_status name_option(const char *path, enum zo_status status)
{
    return status != ZO_E_USAGE
               ? status
               : ZO_FAIL(status, "--output %s: %s", path, zo_err_last()->text);
}

enum zo_status zo_output_folder_make(struct zo_folders *folders,
                                     const char *path)
{
    ZO_TRY(name_option(path, zo_folders_make(folders, path, ZO_E_USAGE)));
    return access(path, W_OK | X_OK) == 0
               ? ZO_OK
               : ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "--output %s: %s", path,
                                strerror(errno));
}

enum zo_status zo_output_folder_make_parents(struct zo_folders *folders,
                                             const char *path)
{
    return name_option(path,
                       zo_folders_make_parents(folders, path, ZO_E_USAGE));
}

void zo_output_folder_end(struct zo_folders *folders)
{
    zo_folders_remove(folders);
    zo_folders_fini(folders);
}
