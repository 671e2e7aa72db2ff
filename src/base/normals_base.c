/* Blocks of normals for any processor of the build's own target. */
#define ZO_NORMALS_NAME zo_normals_base
#include "src/base/normals_body.h"
