/*
 * AdamW, bit for bit.
 *
 * Method: a scalar reference written from DESIGN 3, one element at a time,
 * with the fmaf() and sqrtf() of the C library; every bit must be the same,
 * everywhere that rig.h runs the cases.  Values lie around every edge:
 * subnormals, the 2^-126 rule, ties of both roundings, overflow.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/dtype.h"
#include "tests/rig.h"
#include "tests/tap.h"

/* ---- the reference --------------------------------------------------- */

/* One element; bits of the master leave through *p. */
static void reference_element(const struct zo_adamw_scalars *s, float grad,
                              bool decays, float *p, float *m, float *v)
{
    const float g = grad * s->grad_scale;
    float d;

    *m = fmaf(s->beta1, *m, s->one_minus_beta1 * g);
    *v = fmaf(s->beta2, *v, (s->one_minus_beta2 * g) * g);
    if (fabsf(*m) < 0x1p-126f) {
        *m = 0.0f;
    }
    if (fabsf(*v) < 0x1p-126f) {
        *v = 0.0f;
    }
    d = fmaf(sqrtf(*v), s->inverse_root2, s->epsilon);
    if (decays) {
        *p = fmaf(-s->decay, *p, *p);
    }
    *p = fmaf(-s->step_size, *m / d, *p);
}

static uint32_t spread(uint32_t x)
{
    static const uint64_t factors[] = {0x21f0aaad, 0xd35a2d97};
    static const int shifts[] = {16, 15};

    for (int i = 0; i < 2; i++) {
        x = (uint32_t)((x ^ (x >> shifts[i])) * factors[i] & 0xffffffffu);
    }
    return x ^ (x >> 15);
}

/* A moment in bf16: up when what falls away and the chance pass a place. */
static uint16_t rounded(float value, uint32_t chance)
{
    const uint32_t bits = zo_f32_bits(value);
    const bool goes_up = (bits & 0xffffu) + chance >= 0x10000u;

    return isnan(value) ? 0x7fc0 : (uint16_t)((bits >> 16) + goes_up);
}

static float join(uint16_t weight, int16_t remainder)
{
    return zo_f32_from_bits((uint32_t)(weight * 65536u) + (uint32_t)remainder);
}

/* Nearest, ties away from zero, by magnitudes. */
static void split(float p, uint16_t *weight, int16_t *remainder)
{
    const uint32_t bits = zo_f32_bits(p);
    uint32_t high = bits >> 16;

    if ((bits & 0xffffu) >= 0x8000u) {
        high++;
    }
    *weight = (uint16_t)high;
    *remainder = (int16_t)(int32_t)((int64_t)(bits & 0xffffu) -
                                    ((bits & 0xffffu) >= 0x8000u ? 65536 : 0));
}

static bool is_special(float value)
{
    return !isfinite(value);
}

/* ---- cases ----------------------------------------------------------- */

struct optimizer {
    enum zo_dtype type, moment_type;
    int64_t count, decay_count, first_index;
    struct rig_array *weight, *remainder, *master, *m, *v, *grad, *bad;
};

static struct zo_adamw_scalars scalars_of(int step, double grad_scale)
{
    const double lr = 3e-3, beta1 = 0.9, beta2 = 0.999, decay = 0.1;

    return (struct zo_adamw_scalars){
        .grad_scale = (float)grad_scale,
        .beta1 = (float)beta1,
        .one_minus_beta1 = (float)(1.0 - beta1),
        .beta2 = (float)beta2,
        .one_minus_beta2 = (float)(1.0 - beta2),
        .inverse_root2 = (float)(1.0 / sqrt(1.0 - pow(beta2, step))),
        .epsilon = (float)1e-8,
        .decay = (float)(lr * decay),
        .step_size = (float)(lr / (1.0 - pow(beta1, step))),
        .step = (uint32_t)step,
    };
}

/* From 2^-140 to 2^8, either sign, now and then zero. */
static double wild(struct rig *rig)
{
    const double value =
        ldexp(rig_uniform(rig) + 0.5, rig_below(rig, 149) - 140);

    return rig_below(rig, 16) == 0  ? 0.0
           : rig_below(rig, 2) == 0 ? value
                                    : -value;
}

static struct rig_array *wild_array(struct rig *rig, enum rig_type type,
                                    int64_t count, bool is_positive)
{
    struct rig_array *array = rig_array(rig, type, count);

    for (int64_t i = 0; i < count; i++) {
        const double value = wild(rig);

        rig_set(array, i, is_positive ? fabs(value) : value);
    }
    (void)rig_upload(rig, array);
    return array;
}

static struct optimizer optimizer_of(struct rig *rig, enum zo_dtype type,
                                     enum zo_dtype moment_type, int64_t count,
                                     int64_t decay_count)
{
    struct optimizer self = {.type = type,
                             .moment_type = moment_type,
                             .count = count,
                             .decay_count = decay_count,
                             .first_index = 0xfffffff0 /* passes 2^32 */};
    static const int32_t good = 0;

    self.weight = wild_array(rig, (enum rig_type)type, count, false);
    self.m = wild_array(rig, (enum rig_type)moment_type, count, false);
    self.v = wild_array(rig, (enum rig_type)moment_type, count, true);
    self.grad = wild_array(rig, (enum rig_type)type, count, false);
    self.bad = rig_ints(rig, &good, 1);
    if (type == ZO_BF16) {
        self.remainder = rig_bytes(rig, (uint64_t)count * 2);
        for (int64_t i = 0; i < count; i++) {
            const int16_t value = (int16_t)(rig_below(rig, 65536) - 32768);

            memcpy(self.remainder->host + 2 * i, &value, 2);
        }
        (void)rig_upload(rig, self.remainder);
    } else if (type == ZO_F16) {
        self.master = wild_array(rig, RIG_F32, count, false);
    }
    return self;
}

static struct optimizer optimizer_make(struct rig *rig, enum zo_dtype type,
                                       int64_t count, int64_t decay_count)
{
    return optimizer_of(rig, type, ZO_F32, count, decay_count);
}

static struct zo_adamw_args args_of(const struct optimizer *self,
                                    struct zo_adamw_scalars scalars)
{
    return (struct zo_adamw_args){
        .weight = self->weight != NULL ? self->weight->at : NULL,
        .remainder = self->remainder != NULL ? self->remainder->at : NULL,
        .master = self->master != NULL ? self->master->at : NULL,
        .exp_avg = self->m->at,
        .exp_avg_sq = self->v->at,
        .grad = self->grad->at,
        .bad = self->bad->at,
        .count = self->count,
        .decay_count = self->decay_count,
        .first_index = self->first_index,
        .scalars = scalars,
        .type = self->type,
        .moment_type = self->moment_type,
    };
}

static void keep_moments(struct optimizer *self, int64_t i, uint32_t step,
                         float m, float v)
{
    const uint32_t chance =
        spread((uint32_t)(self->first_index + i) ^ spread(step));

    if (self->moment_type == ZO_F32) {
        zo_store(self->m->host, ZO_F32, i, m);
        zo_store(self->v->host, ZO_F32, i, v);
    } else {
        ((uint16_t *)(void *)self->m->host)[i] = rounded(m, chance & 0xffffu);
        ((uint16_t *)(void *)self->v->host)[i] = rounded(v, chance >> 16);
    }
}

/* The reference on the host copies. */
static void reference_step(struct optimizer *self,
                           const struct zo_adamw_scalars *scalars)
{
    uint16_t *half =
        self->weight != NULL ? (uint16_t *)(void *)self->weight->host : NULL;
    const uint32_t bad = 1;
    bool is_bad = false;

    for (int64_t i = 0; i < self->count; i++) {
        const float grad = (float)rig_get(self->grad, i);
        const bool decays = i < self->decay_count;
        float m = (float)rig_get(self->m, i), v = (float)rig_get(self->v, i);
        int16_t *remainder;
        float *master, p;

        switch (self->type) {
        case ZO_F32:
            master = (float *)(void *)self->weight->host + i;
            reference_element(scalars, grad, decays, master, &m, &v);
            is_bad |= is_special(*master);
            break;
        case ZO_BF16:
            remainder = (int16_t *)(void *)self->remainder->host + i;
            p = join(half[i], *remainder);
            reference_element(scalars, grad, decays, &p, &m, &v);
            split(p, &half[i], remainder);
            is_bad |= is_special(p) || is_special(zo_bf16_to_f32(half[i]));
            break;
        case ZO_F16:
            master = (float *)(void *)self->master->host + i;
            reference_element(scalars, grad, decays, master, &m, &v);
            is_bad |= is_special(zo_f16_to_f32(zo_f32_to_f16(*master)));
            if (half != NULL) {
                half[i] = zo_f32_to_f16(*master);
            }
            break;
        }
        keep_moments(self, i, scalars->step, m, v);
    }
    if (is_bad) {
        memcpy(self->bad->host, &bad, sizeof(bad));
    }
}

/* The device's bytes are those of the host copy. */
static bool is_same(struct rig *rig, const char *what, struct rig_array *array)
{
    char *want;
    size_t at = 0;

    if (array == NULL) {
        return true;
    }
    want = malloc(array->bytes + 1);
    if (want == NULL) {
        abort();
    }
    memcpy(want, array->host, array->bytes);
    if (rig_fetch(rig, array)) {
        while (at < array->bytes && array->host[at] == want[at]) {
            at++;
        }
    }
    free(want);
    if (at < array->bytes) {
        tap_fail(__FILE__, __LINE__, "%s: byte %zu of %zu differs", what, at,
                 array->bytes);
    }
    return at == array->bytes;
}

static bool all_same(struct rig *rig, struct optimizer *self)
{
    return is_same(rig, "weight", self->weight) &&
           is_same(rig, "remainder", self->remainder) &&
           is_same(rig, "master", self->master) &&
           is_same(rig, "exp_avg", self->m) &&
           is_same(rig, "exp_avg_sq", self->v) &&
           is_same(rig, "bad", self->bad);
}

/* Some steps in a row, so that moments shrink through the 2^-126 rule. */
static void check_steps(struct rig *rig, enum zo_dtype type,
                        enum zo_dtype moment_type, int64_t count,
                        int64_t decay_count, bool has_weight)
{
    struct optimizer self =
        optimizer_of(rig, type, moment_type, count, decay_count);

    if (!has_weight) {
        self.weight = NULL;
    }
    for (int step = 1; step <= 4; step++) {
        const struct zo_adamw_scalars scalars =
            scalars_of(step, step == 3 ? 1.0 / 3.0 : 1.0);
        const struct zo_adamw_args args = args_of(&self, scalars);

        if (step == 4) {
            memset(self.grad->host, 0, self.grad->bytes);
            RIG_CHECK(rig_upload(rig, self.grad));
        }
        reference_step(&self, &scalars);
        RIG_CHECK(rig->ops->adamw(rig->kernels, rig->stream, &args) == ZO_OK);
        RIG_CHECK(all_same(rig, &self));
    }
    rig_clear(rig);
}

static void steps_with(struct rig *rig, enum zo_dtype moment_type)
{
    static const int64_t shapes[][2] = {{0, 0},   {1, 0},       {1, 1},
                                        {77, 33}, {1025, 1024}, {40000, 16390}};

    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
            check_steps(rig, rig_types[t], moment_type, shapes[i][0],
                        shapes[i][1], true);
        }
    }
    check_steps(rig, ZO_F16, moment_type, 3000, 100, false);
}

static void step_cases(struct rig *rig)
{
    steps_with(rig, ZO_F32);
}

static void test_steps(void)
{
    rig_everywhere(step_cases);
}

static void half_step_cases(struct rig *rig)
{
    steps_with(rig, ZO_BF16);
}

static void test_half_steps(void)
{
    rig_everywhere(half_step_cases);
}

/* ---- what bf16 moments keep ------------------------------------------ */

/*
 * A gradient of 1 for 2000 steps: m tends to 1 and v to 1 - 0.999^2000, which
 * rounding to nearest would stop near 0.13.  Their means over many elements
 * must be right, and v's spread what kernels.h says.
 */
static void drift_cases(struct rig *rig)
{
    enum { COUNT = 2048, STEPS = 2000 };
    struct optimizer self = optimizer_of(rig, ZO_F32, ZO_BF16, COUNT, 0);
    const double want = 1.0 - pow(0.999, STEPS);
    double m_mean = 0.0, v_mean = 0.0, v_spread = 0.0;

    memset(self.m->host, 0, self.m->bytes);
    memset(self.v->host, 0, self.v->bytes);
    for (int64_t i = 0; i < COUNT; i++) {
        rig_set(self.grad, i, 1.0);
    }
    RIG_CHECK(rig_upload(rig, self.m) && rig_upload(rig, self.v) &&
              rig_upload(rig, self.grad));
    for (int step = 1; step <= STEPS; step++) {
        const struct zo_adamw_args args = args_of(&self, scalars_of(step, 1.0));

        RIG_CHECK(rig->ops->adamw(rig->kernels, rig->stream, &args) == ZO_OK);
    }
    RIG_CHECK(rig_fetch(rig, self.m) && rig_fetch(rig, self.v));
    for (int64_t i = 0; i < COUNT; i++) {
        const double v = rig_get(self.v, i);

        m_mean += rig_get(self.m, i) / COUNT;
        v_mean += v / COUNT;
        v_spread += (v / want - 1.0) * (v / want - 1.0) / COUNT;
    }
    v_spread = sqrt(v_spread);
    if (!(fabs(m_mean - 1.0) < 1e-3 && fabs(v_mean / want - 1.0) < 4e-3 &&
          v_spread > 0.02 && v_spread < 0.06)) {
        tap_fail(__FILE__, __LINE__, "m %g, v %g of %g, spread %g", m_mean,
                 v_mean, want, v_spread);
    }
    rig_clear(rig);
}

static void test_drift(void)
{
    rig_everywhere(drift_cases);
}

/* The rule and what is around it, by value. */
static void flush_cases(struct rig *rig)
{
    struct optimizer self = optimizer_make(rig, ZO_F32, 4, 0);
    struct zo_adamw_scalars scalars = scalars_of(1, 1.0);

    scalars.beta1 = 1.0f; /* so that m and v stay what they are */
    scalars.beta2 = 1.0f;
    memset(self.grad->host, 0, self.grad->bytes);
    for (int i = 0; i < 4; i++) {
        rig_set(self.weight, i, 1.0);
    }
    rig_set(self.m, 0, 0x1p-126);
    rig_set(self.m, 1, -0x1.fffffcp-127);
    rig_set(self.m, 2, -0x1p-126);
    rig_set(self.m, 3, 0x1p-149);
    rig_set(self.v, 0, 0x1p-126);
    rig_set(self.v, 1, 0x1.fffffcp-127);
    rig_set(self.v, 2, 0x1p-100);
    rig_set(self.v, 3, 0x1p-149);
    RIG_CHECK(rig_upload(rig, self.grad) && rig_upload(rig, self.m) &&
              rig_upload(rig, self.v) && rig_upload(rig, self.weight));
    RIG_CHECK(rig->ops->adamw(
                  rig->kernels, rig->stream,
                  &(const struct zo_adamw_args){.weight = self.weight->at,
                                                .exp_avg = self.m->at,
                                                .exp_avg_sq = self.v->at,
                                                .grad = self.grad->at,
                                                .bad = self.bad->at,
                                                .count = 4,
                                                .scalars = scalars}) == ZO_OK);
    RIG_CHECK(rig_fetch(rig, self.m) && rig_fetch(rig, self.v));
    RIG_CHECK(rig_get(self.m, 0) == 0x1p-126);
    RIG_CHECK(rig_get(self.m, 2) == -0x1p-126);
    RIG_CHECK(rig_get(self.v, 0) == 0x1p-126);
    for (int i = 1; i < 4; i += 2) { /* +0, not -0 */
        RIG_CHECK(zo_f32_bits((float)rig_get(self.m, i)) == 0);
        RIG_CHECK(zo_f32_bits((float)rig_get(self.v, i)) == 0);
    }
    rig_clear(rig);
}

static void test_flush(void)
{
    rig_everywhere(flush_cases);
}

/* ---- the bf16 pair --------------------------------------------------- */

/* Bits of a master: each exponent's edges and ties, then a walk. */
static uint32_t pattern(int64_t i)
{
    static const uint32_t low[] = {0,      1,      0x7fff,  0x8000,
                                   0x8001, 0xffff, 0x10000, 0x18000};

    if (i < 512 * 8) {
        return ((uint32_t)(i / 8) << 23) + low[i % 8];
    }
    return (uint32_t)((uint64_t)i * 2654435761u);
}

/* Without decay, gradient and moments a step leaves the master alone: the
 * pair must come back as it was. */
static void pair_cases(struct rig *rig)
{
    enum { COUNT = 300000 };
    struct optimizer self = optimizer_make(rig, ZO_BF16, COUNT, 0);
    struct zo_adamw_scalars scalars = scalars_of(1, 1.0);
    uint16_t *weight = (uint16_t *)(void *)self.weight->host;
    int16_t *remainder = (int16_t *)(void *)self.remainder->host;
    const struct zo_adamw_args *args;

    scalars.step_size = 0.0f;
    memset(self.grad->host, 0, self.grad->bytes);
    memset(self.m->host, 0, self.m->bytes);
    memset(self.v->host, 0, self.v->bytes);
    for (int64_t i = 0; i < COUNT; i++) {
        const uint32_t bits = pattern(i);
        float p = zo_f32_from_bits(bits);

        if (!isfinite(p) || (bits & 0x7fffffffu) >= 0x7f7f8000u) {
            p = 0.0f; /* those are the next test's */
        }
        split(p, &weight[i], &remainder[i]);
        RIG_CHECK(zo_f32_bits(join(weight[i], remainder[i])) == zo_f32_bits(p));
        /* nearest: no bf16 is nearer, and a tie is away from zero */
        RIG_CHECK(remainder[i] >= -32768 && remainder[i] <= 32767);
    }
    RIG_CHECK(rig_upload(rig, self.grad) && rig_upload(rig, self.m) &&
              rig_upload(rig, self.v) && rig_upload(rig, self.weight) &&
              rig_upload(rig, self.remainder));
    args = &(const struct zo_adamw_args){
        .weight = self.weight->at,
        .remainder = self.remainder->at,
        .exp_avg = self.m->at,
        .exp_avg_sq = self.v->at,
        .grad = self.grad->at,
        .bad = self.bad->at,
        .count = COUNT,
        .scalars = scalars,
        .type = ZO_BF16,
    };
    RIG_CHECK(rig->ops->adamw(rig->kernels, rig->stream, args) == ZO_OK);
    RIG_CHECK(all_same(rig, &self));
    rig_clear(rig);
}

static void test_pair(void)
{
    rig_everywhere(pair_cases);
}

/* ---- what is not finite ---------------------------------------------- */

struct bad_case {
    enum zo_dtype type;
    float p, grad;
    bool is_bad;
};

static void check_bad(struct rig *rig, const struct bad_case *test,
                      int64_t count, int64_t where)
{
    struct optimizer self = optimizer_make(rig, test->type, count, 0);
    const struct zo_adamw_args args = args_of(&self, scalars_of(1, 1.0));
    int16_t remainder = 0;
    uint16_t weight = 0;

    memset(self.grad->host, 0, self.grad->bytes);
    memset(self.m->host, 0, self.m->bytes);
    memset(self.v->host, 0, self.v->bytes);
    memset(self.weight->host, 0, self.weight->bytes);
    rig_set(self.grad, where, (double)test->grad);
    switch (test->type) {
    case ZO_F32:
        rig_set(self.weight, where, (double)test->p);
        break;
    case ZO_BF16:
        memset(self.remainder->host, 0, self.remainder->bytes);
        split(test->p, &weight, &remainder);
        memcpy(self.weight->host + 2 * where, &weight, 2);
        memcpy(self.remainder->host + 2 * where, &remainder, 2);
        RIG_CHECK(rig_upload(rig, self.remainder));
        break;
    case ZO_F16:
        memset(self.master->host, 0, self.master->bytes);
        rig_set(self.master, where, (double)test->p);
        RIG_CHECK(rig_upload(rig, self.master));
        break;
    }
    self.bad->host[0] = 6; /* untouched means: as it was */
    RIG_CHECK(rig_upload(rig, self.grad) && rig_upload(rig, self.m) &&
              rig_upload(rig, self.v) && rig_upload(rig, self.weight) &&
              rig_upload(rig, self.bad));
    RIG_CHECK(rig->ops->adamw(rig->kernels, rig->stream, &args) == ZO_OK);
    RIG_CHECK(rig_fetch(rig, self.bad));
    RIG_CHECK((int)rig_get(self.bad, 0) == (test->is_bad ? 1 : 6));
    rig_clear(rig);
}

static void bad_cases(struct rig *rig)
{
    const float infinity = INFINITY, nan = NAN;
    const struct bad_case tests[] = {
        {ZO_F32, 1.0f, 0.0f, false},
        {ZO_F32, 0x1.fffffep127f, 0.0f, false},
        {ZO_F32, infinity, 0.0f, true},
        {ZO_F32, nan, 0.0f, true},
        {ZO_F32, 1.0f, infinity, true},
        {ZO_F32, 1.0f, nan, true},
        {ZO_BF16, 0x1.fefffep127f, 0.0f, false}, /* the last to stay finite */
        {ZO_BF16, 0x1.ffp127f, 0.0f, true},      /* its weight is infinite */
        {ZO_BF16, -0x1.fffffep127f, 0.0f, true},
        {ZO_BF16, 1.0f, infinity, true},
        {ZO_BF16, nan, 0.0f, true},
        {ZO_F16, 65519.996f, 0.0f, false},
        {ZO_F16, -65519.996f, 0.0f, false},
        {ZO_F16, 65520.0f, 0.0f, true},
        {ZO_F16, -65520.0f, 0.0f, true},
        {ZO_F16, nan, 0.0f, true},
    };

    RIG_CHECK(is_special(infinity) && is_special(nan));
    for (size_t i = 0; i < TAP_COUNT(tests); i++) {
        check_bad(rig, &tests[i], 1, 0);
        check_bad(rig, &tests[i], 20000, 17003);
    }
}

static void test_bad(void)
{
    rig_everywhere(bad_cases);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"steps have the bits of the scalar reference", test_steps},
        {"and with bf16 moments too", test_half_steps},
        {"bf16 moments keep the means that small increments make", test_drift},
        {"moments below 2^-126 become +0, no others", test_flush},
        {"the bf16 pair keeps every bit of a master", test_pair},
        {"what is not finite is told, in the master and its weight", test_bad},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
