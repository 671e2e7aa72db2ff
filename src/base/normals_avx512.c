/* Blocks of normals for AVX-512, where the build knows it. */
#define ZO_NORMALS_NAME zo_normals_avx512
#include "src/base/normals_body.h"
