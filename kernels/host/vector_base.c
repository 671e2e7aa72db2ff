/* The inner loops for any processor of the build's own target. */
#include "kernels/host/vector_target.h"

ZO_VECTOR_OPTIMIZE

#define ZO_VECTOR_TABLE zo_vector_base
#define ZO_VECTOR_NAME  "base"
#include "kernels/host/vector_body.h"
