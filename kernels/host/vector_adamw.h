/*
 * The AdamW part of vector_body.h: one loop over memory, whatever the types.
 *
 * No include guard: a part of each copy of the body.  adamw_run() is inlined
 * with its types constant, so that the loop that is left has no branch.
 */

/* Embedding rows long unseen would otherwise sit in subnormals, slowly. */
static ZO_VECTOR_INLINE float flush(float value)
{
    return (zo_f32_bits(value) & 0x7fffffffu) < 0x00800000u ? 0.0f : value;
}

/* Spreads the bits of x over all bits of the result: a bijection. */
static ZO_VECTOR_INLINE uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x21f0aaadu;
    x = (x ^ (x >> 15)) * 0xd35a2d97u;
    return x ^ (x >> 15);
}

/* zo_adamw_args: up with the chance of the 16 bits that fall away. */
static ZO_VECTOR_INLINE uint16_t moment_round(float value, uint32_t noise)
{
    const uint32_t bits = zo_f32_bits(value);
    const uint32_t rounded = (bits + noise) >> 16;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

/* Where the elements of one call lie; those that a type lacks are NULL. */
struct adamw_arrays {
    float *master;
    uint16_t *weight;
    uint16_t *remainder;
    float *m, *v;
    uint16_t *m_half, *v_half;
    const float *grad;
    const uint16_t *grad_half;
};

static ZO_VECTOR_INLINE struct adamw_arrays
adamw_arrays_at(const struct zo_adamw_args *args, int64_t first,
                enum zo_dtype type, enum zo_dtype moment_type, bool has_weight)
{
    struct adamw_arrays at = {0};

    switch (type) {
    case ZO_F32:
        at.master = (float *)args->weight + first;
        break;
    case ZO_BF16:
        at.weight = (uint16_t *)args->weight + first;
        at.remainder = (uint16_t *)args->remainder + first;
        break;
    case ZO_F16:
        at.master = args->master + first;
        at.weight = has_weight ? (uint16_t *)args->weight + first : NULL;
        break;
    }
    if (type == ZO_F32) {
        at.grad = (const float *)args->grad + first;
    } else {
        at.grad_half = (const uint16_t *)args->grad + first;
    }
    if (moment_type == ZO_F32) {
        at.m = (float *)args->exp_avg + first;
        at.v = (float *)args->exp_avg_sq + first;
    } else {
        at.m_half = (uint16_t *)args->exp_avg + first;
        at.v_half = (uint16_t *)args->exp_avg_sq + first;
    }
    return at;
}

static ZO_VECTOR_INLINE float grad_to_f32(const struct adamw_arrays *at,
                                          enum zo_dtype type, int64_t i)
{
    return type == ZO_F32    ? at->grad[i]
           : type == ZO_BF16 ? bf16_to_f32(at->grad_half[i])
                             : f16_to_f32(at->grad_half[i]);
}

static ZO_VECTOR_INLINE float master_load(const struct adamw_arrays *at,
                                          enum zo_dtype type, int64_t i)
{
    if (type == ZO_BF16) { /* the remainder is signed */
        return zo_f32_from_bits(((uint32_t)at->weight[i] << 16) +
                                (uint32_t)(int32_t)(int16_t)at->remainder[i]);
    }
    return at->master[i];
}

/* 1 when the master, or its weight in the model's type, is not finite. */
static ZO_VECTOR_INLINE uint32_t master_store(const struct adamw_arrays *at,
                                              enum zo_dtype type,
                                              bool has_weight, int64_t i,
                                              float p)
{
    const uint32_t bits = zo_f32_bits(p);
    const uint32_t high = ((bits + 0x8000u) >> 16) & 0xffffu;

    if (type == ZO_BF16) {
        at->weight[i] = (uint16_t)high;
        at->remainder[i] = (uint16_t)bits; /* bits - (high << 16) */
        return is_not_finite(p) | ((high & 0x7f80u) == 0x7f80u ? 1u : 0u);
    }
    at->master[i] = p;
    if (type == ZO_F32) {
        return is_not_finite(p);
    }
    if (has_weight) {
        at->weight[i] = f32_to_f16(p);
    }
    /* From 65520 on fp16 rounds to infinity. */
    return (bits & 0x7fffffffu) < 0x477ff000u ? 0u : 1u;
}

/* mask is of ones or of zeros; a condition that is the same for the whole loop
 * would keep GCC 12 from vectorising it. */
static ZO_VECTOR_INLINE float choose(uint32_t mask, float ones, float zeros)
{
    return zo_f32_from_bits((zo_f32_bits(ones) & mask) |
                            (zo_f32_bits(zeros) & ~mask));
}

static ZO_VECTOR_INLINE __attribute__((always_inline)) bool
adamw_run(const struct zo_adamw_args *args, int64_t first, int64_t n,
          bool decays, enum zo_dtype type, enum zo_dtype moment_type,
          bool has_weight)
{
    const struct zo_adamw_scalars s = args->scalars;
    const struct adamw_arrays at =
        adamw_arrays_at(args, first, type, moment_type, has_weight);
    const uint32_t index = (uint32_t)(args->first_index + first);
    const uint32_t key = mix(s.step);
    const uint32_t mask = decays ? 0xffffffffu : 0u;
    const bool is_half = moment_type == ZO_BF16;
    uint32_t bad = 0;

    ZO_VECTOR_IN_PLACE
    for (int64_t i = 0; i < n; i++) {
        const float old_m = is_half ? bf16_to_f32(at.m_half[i]) : at.m[i];
        const float old_v = is_half ? bf16_to_f32(at.v_half[i]) : at.v[i];
        const float g = grad_to_f32(&at, type, i) * s.grad_scale;
        const float m = flush(fmaf(s.beta1, old_m, s.one_minus_beta1 * g));
        const float v =
            flush(fmaf(s.beta2, old_v, (s.one_minus_beta2 * g) * g));
        const float d = fmaf(sqrtf(v), s.inverse_root2, s.epsilon);
        const float old_p = master_load(&at, type, i);
        const float decayed = fmaf(-s.decay, old_p, old_p);
        const float p = fmaf(-s.step_size, m / d, choose(mask, decayed, old_p));

        if (is_half) {
            const uint32_t noise = mix((index + (uint32_t)i) ^ key);

            at.m_half[i] = moment_round(m, noise & 0xffffu);
            at.v_half[i] = moment_round(v, noise >> 16);
        } else {
            at.m[i] = m;
            at.v[i] = v;
        }
        bad |= master_store(&at, type, has_weight, i, p);
    }
    return bad != 0;
}

static bool body_adamw(const struct zo_adamw_args *args, int64_t first,
                       int64_t n, bool decays)
{
    const bool has_weight = args->weight != NULL;

#define RUN(type, moment_type, has_weight) \
    adamw_run(args, first, n, decays, type, moment_type, has_weight)
#define RUN_MOMENTS(type, has_weight)                            \
    (args->moment_type == ZO_F32 ? RUN(type, ZO_F32, has_weight) \
                                 : RUN(type, ZO_BF16, has_weight))
    switch (args->type) {
    case ZO_F32:
        return RUN_MOMENTS(ZO_F32, true);
    case ZO_BF16:
        return RUN_MOMENTS(ZO_BF16, true);
    case ZO_F16:
        return has_weight ? RUN_MOMENTS(ZO_F16, true)
                          : RUN_MOMENTS(ZO_F16, false);
    }
#undef RUN_MOMENTS
#undef RUN
    return false;
}
