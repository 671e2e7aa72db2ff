/* Blocks of normals for AVX2, where the build knows it. */
#define ZO_NORMALS_NAME zo_normals_avx2
#include "src/base/normals_body.h"
