#include "offload/stream.h"

#include "offload/builder.h"

struct slot {
    int unit;
    int64_t last_use; /* -1: never used */
};

/* Index of the next use of a unit behind use `at`; INT64_MAX: none. */
static int64_t next_use(const struct zo_use *uses, size_t count, size_t at,
                        int unit)
{
    for (size_t i = at + 1; i < count; i++) {
        if (uses[i].unit == unit && uses[i].streams) {
            return (int64_t)i;
        }
    }
    return INT64_MAX;
}

/* Elements used between two uses. */
static int64_t distance(const struct zo_use *uses, int64_t from, int64_t to)
{
    int64_t elems = 0;

    for (int64_t i = from + 1; i < to; i++) {
        elems += uses[i].elems;
    }
    return elems;
}

/* The slot to give up for use `at`: needed last; of several, free first. */
static int choose(const struct zo_use *uses, size_t count, size_t at,
                  const struct slot *slots, int depth)
{
    int best = 0;
    int64_t best_next = -1;

    for (int s = 0; s < depth; s++) {
        const int64_t next = slots[s].last_use < 0
                                 ? INT64_MAX
                                 : next_use(uses, count, at, slots[s].unit);

        if (next > best_next ||
            (next == best_next && slots[s].last_use < slots[best].last_use)) {
            best = s;
            best_next = next;
        }
    }
    return best;
}

static int find(const struct slot *slots, int depth, int unit)
{
    for (int s = 0; s < depth; s++) {
        if (slots[s].last_use >= 0 && slots[s].unit == unit) {
            return s;
        }
    }
    return ZO_NO_SLOT;
}

void zo_stream_plan(struct zo_use *uses, size_t count, int depth,
                    int64_t reuse_max_elems)
{
    struct slot slots[ZO_RING_MAX];

    ZO_ASSERT(depth >= 1 && depth <= ZO_RING_MAX);
    for (int s = 0; s < depth; s++) {
        slots[s] = (struct slot){-1, -1};
    }
    for (size_t i = 0; i < count; i++) {
        struct zo_use *use = &uses[i];

        use->slot = ZO_NO_SLOT;
        use->after = -1;
        use->fetches = false;
        if (!use->streams) {
            continue;
        }
        use->slot = find(slots, depth, use->unit);
        if (use->slot != ZO_NO_SLOT && reuse_max_elems > 0 &&
            distance(uses, slots[use->slot].last_use, (int64_t)i) >
                reuse_max_elems) {
            use->fetches = true; /* into the same slot */
        } else if (use->slot == ZO_NO_SLOT) {
            use->fetches = true;
            use->slot = choose(uses, count, i, slots, depth);
        }
        if (use->fetches) {
            use->after = slots[use->slot].last_use;
        }
        slots[use->slot] = (struct slot){use->unit, (int64_t)i};
    }
}
