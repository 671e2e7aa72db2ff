#include "offload/gaps.h"

#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"

#define LEVELS_MAX 33
#define NODES_MAX  (4 * LEVELS_MAX) /* that a span needs, with those above */
#define NO_RANGE   SIZE_MAX

struct range {
    uint64_t begin, end;
};

/* Ranges that neither overlap nor meet, in order: a piece of the pool. */
struct ranges {
    size_t at;
    uint32_t count, room; /* room: 0 or a power of two */
};

/*
 * Node 1 is the root, 2i and 2i + 1 are the halves of i, and leaf m is node
 * leaves + m.  A span is cut into the largest nodes that it covers.
 */
struct zo_gaps {
    size_t leaves_max, leaves;
    struct ranges *within; /* [node]: of spans cut into it or a part of it */
    struct ranges *throughout; /* [node that is no leaf]: cut into it */
    struct range *pool;
    size_t pool_used, pool_room;
    size_t freed[LEVELS_MAX]; /* by log2 of room; linked through begin */
};

/* ---- ranges -------------------------------------------------------------- */

static int log2_of(uint32_t room)
{
    int log2 = 0;

    while (room >> log2 > 1) {
        log2++;
    }
    return log2;
}

static enum zo_status reserve(struct zo_gaps *gaps, uint32_t room,
                              size_t *at_out)
{
    size_t *freed = &gaps->freed[log2_of(room)];
    size_t wanted = gaps->pool_room > 0 ? gaps->pool_room : 64;

    if (*freed != NO_RANGE) {
        *at_out = *freed;
        *freed = (size_t)gaps->pool[*freed].begin;
        return ZO_OK;
    }
    while (wanted < gaps->pool_used + room) {
        wanted *= 2;
    }
    if (wanted > gaps->pool_room) {
        ZO_TRY(zo_realloc(&gaps->pool, wanted, sizeof(gaps->pool[0]),
                          "the layout"));
        gaps->pool_room = wanted;
    }
    *at_out = gaps->pool_used;
    gaps->pool_used += room;
    return ZO_OK;
}

/* Room for one more. */
static enum zo_status widen(struct zo_gaps *gaps, struct ranges *ranges)
{
    const uint32_t room = ranges->room > 0 ? 2 * ranges->room : 1;
    size_t at;

    if (ranges->count < ranges->room) {
        return ZO_OK;
    }
    ZO_ASSERT(room > ranges->room);
    ZO_TRY(reserve(gaps, room, &at));
    if (ranges->room > 0) {
        size_t *freed = &gaps->freed[log2_of(ranges->room)];

        memcpy(&gaps->pool[at], &gaps->pool[ranges->at],
               ranges->count * sizeof(gaps->pool[0]));
        gaps->pool[ranges->at].begin = *freed;
        *freed = ranges->at;
    }
    ranges->at = at;
    ranges->room = room;
    return ZO_OK;
}

/* The first of ranges `from` .. count - 1 that ends at or behind `at`. */
static uint32_t first_ending(const struct range *ranges, uint32_t from,
                             uint32_t count, uint64_t at)
{
    while (from < count) {
        const uint32_t middle = from + (count - from) / 2;

        if (ranges[middle].end < at) {
            from = middle + 1;
        } else {
            count = middle;
        }
    }
    return from;
}

/* Unites the ranges with one more. */
static enum zo_status add(struct zo_gaps *gaps, struct ranges *ranges,
                          const struct range *added)
{
    uint32_t first, behind;
    struct range *all;

    ZO_TRY(widen(gaps, ranges));
    all = &gaps->pool[ranges->at];
    first = first_ending(all, 0, ranges->count, added->begin);
    for (behind = first;
         behind < ranges->count && all[behind].begin <= added->end; behind++) {
    }
    if (first == behind) {
        memmove(&all[first + 1], &all[first],
                (ranges->count - first) * sizeof(all[0]));
        all[first] = *added;
        ranges->count++;
        return ZO_OK;
    }
    all[first].begin =
        all[first].begin < added->begin ? all[first].begin : added->begin;
    all[first].end =
        all[behind - 1].end > added->end ? all[behind - 1].end : added->end;
    memmove(&all[first + 1], &all[behind],
            (ranges->count - behind) * sizeof(all[0]));
    ranges->count -= behind - first - 1;
    return ZO_OK;
}

/* ---- the tree ------------------------------------------------------------ */

enum zo_status zo_gaps_open(size_t moments_max, struct zo_gaps **gaps_out)
{
    enum zo_status status;
    struct zo_gaps *gaps = NULL;

    ZO_ASSERT(moments_max <= UINT32_MAX);
    ZO_TRY(zo_alloc(1, sizeof(*gaps), "the layout", &gaps));
    for (gaps->leaves_max = 1; gaps->leaves_max < moments_max;) {
        gaps->leaves_max *= 2;
    }
    ZO_TRY_GOTO(close_gaps,
                zo_alloc(2 * gaps->leaves_max, sizeof(gaps->within[0]),
                         "the layout", &gaps->within));
    ZO_TRY_GOTO(close_gaps,
                zo_alloc(gaps->leaves_max, sizeof(gaps->throughout[0]),
                         "the layout", &gaps->throughout));
    zo_gaps_clear(gaps, 1);
    *gaps_out = gaps;
    return ZO_OK;

close_gaps:
    zo_gaps_close(gaps);
    return status;
}

void zo_gaps_close(struct zo_gaps *gaps)
{
    if (gaps == NULL) {
        return;
    }
    zo_free(gaps->within);
    zo_free(gaps->throughout);
    zo_free(gaps->pool);
    zo_free(gaps);
}

void zo_gaps_clear(struct zo_gaps *gaps, size_t moments)
{
    /* What the last arena used is all that is not zero. */
    memset(gaps->within, 0, 2 * gaps->leaves * sizeof(gaps->within[0]));
    memset(gaps->throughout, 0, gaps->leaves * sizeof(gaps->throughout[0]));
    for (gaps->leaves = 1; gaps->leaves < moments;) {
        gaps->leaves *= 2;
    }
    ZO_ASSERT(gaps->leaves <= gaps->leaves_max);
    gaps->pool_used = 0;
    for (int i = 0; i < LEVELS_MAX; i++) {
        gaps->freed[i] = NO_RANGE;
    }
}

/* Of a span: the nodes that it is cut into, and all nodes above them. */
struct cut {
    size_t pieces[NODES_MAX], above[NODES_MAX];
    int piece_count, above_count;
};

static void cut_span(const struct zo_gaps *gaps, struct zo_gaps_span span,
                     struct cut *cut)
{
    size_t left = gaps->leaves + span.first;
    size_t right = gaps->leaves + span.last; /* both are inside */
    size_t left_piece, right_piece;          /* the outermost ones */

    ZO_ASSERT(span.first <= span.last && span.last < gaps->leaves);
    cut->piece_count = cut->above_count = 0;
    left_piece = right_piece = 0;
    while (left <= right) {
        if (left % 2 == 1) {
            left_piece = left_piece != 0 ? left_piece : left;
            cut->pieces[cut->piece_count++] = left++;
        }
        if (left <= right && right % 2 == 0) {
            right_piece = right_piece != 0 ? right_piece : right;
            cut->pieces[cut->piece_count++] = right--;
        }
        left /= 2;
        right /= 2;
    }
    /* Every other piece lies inside a node above these two. */
    left = left_piece / 2;
    right = right_piece / 2;
    while (left > 0 || right > 0) {
        const size_t higher = left > right ? left : right;

        cut->above[cut->above_count++] = higher; /* the deeper one first */
        left = left == higher ? left / 2 : left;
        right = right == higher ? right / 2 : right;
    }
}

/* A node's ranges, during a search: those before `next` end before it. */
struct cursor {
    const struct range *ranges;
    uint32_t next, count;
};

static int add_cursor(const struct zo_gaps *gaps, const struct ranges *ranges,
                      struct cursor *cursors, int count)
{
    if (ranges->count == 0) {
        return count;
    }
    cursors[count] = (struct cursor){&gaps->pool[ranges->at], 0, ranges->count};
    return count + 1;
}

/* Past all of its ranges that are in the way of `bytes` from `at`. */
static uint64_t pass_by(struct cursor *cursor, uint64_t at, uint64_t bytes)
{
    cursor->next =
        first_ending(cursor->ranges, cursor->next, cursor->count, at + 1);
    while (cursor->next < cursor->count &&
           cursor->ranges[cursor->next].begin < at + bytes) {
        at = cursor->ranges[cursor->next++].end;
    }
    return at;
}

uint64_t zo_gaps_find(struct zo_gaps *gaps, struct zo_gaps_span span,
                      uint64_t base, uint64_t bytes)
{
    struct cursor cursors[2 * NODES_MAX];
    struct cut cut;
    uint64_t at = base;
    int count = 0, agreed = 0;

    if (bytes == 0) {
        return base; /* no bytes are free everywhere */
    }
    cut_span(gaps, span, &cut);
    for (int i = 0; i < cut.above_count; i++) {
        count =
            add_cursor(gaps, &gaps->throughout[cut.above[i]], cursors, count);
    }
    for (int i = 0; i < cut.piece_count; i++) {
        count = add_cursor(gaps, &gaps->within[cut.pieces[i]], cursors, count);
    }
    /* Round and round, until all in a row have nothing against a place. */
    for (int i = 0; agreed < count; i = i + 1 < count ? i + 1 : 0) {
        const uint64_t next = pass_by(&cursors[i], at, bytes);

        agreed = next == at ? agreed + 1 : 1;
        at = next;
    }
    return at;
}

enum zo_status zo_gaps_take(struct zo_gaps *gaps, struct zo_gaps_span span,
                            uint64_t at, uint64_t bytes)
{
    const struct range taken = {at, at + bytes};
    struct cut cut;

    if (bytes == 0) {
        return ZO_OK;
    }
    cut_span(gaps, span, &cut);
    for (int i = 0; i < cut.above_count; i++) {
        ZO_TRY(add(gaps, &gaps->within[cut.above[i]], &taken));
    }
    for (int i = 0; i < cut.piece_count; i++) {
        const size_t node = cut.pieces[i];

        ZO_TRY(add(gaps, &gaps->within[node], &taken));
        if (node < gaps->leaves) {
            ZO_TRY(add(gaps, &gaps->throughout[node], &taken));
        }
    }
    return ZO_OK;
}
