/* check_outputs.c: what a launch wrote of the bytes that nobody had written, and what it left so.
 *
 * Owns:    nothing.
 * Calls:   check_shadow.h, fresh.h.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/check_state.h"

/* The part of the range that the shadow's grains [begin, end) are. */
static void
write_grains(const soft_range *range, size_t begin, size_t end)
{
    const soft_shadow *shadow = range->shadow;
    soft_fresh_write(range->fresh, (const char *)shadow->base + (begin << shadow->shift),
                     (end - begin) << shadow->shift);
}

/* What the launch wrote is not fresh any more.  One of the writes, or time 0: there is none. */
static soft_mark
take_writes(const soft_range *range)
{
    const soft_shadow *shadow = range->shadow;
    size_t before = range->base - shadow->base, grain = before >> shadow->shift;
    size_t end = (before + range->nbytes) >> shadow->shift;
    soft_mark some = {0};
    while (grain < end) {
        const soft_cell *cell = &shadow->blocks[grain / SOFT_BLOCK];
        size_t next = (grain / SOFT_BLOCK + 1) * SOFT_BLOCK;
        if (cell->write.time == SOFT_SPLIT) {
            cell = &shadow->cells[grain];
            next = grain + 1;
        }
        next = next < end ? next : end;
        if (cell->write.time != 0) {
            write_grains(range, grain, next);
            some = some.time == 0 ? cell->write : some;
        }
        grain = next;
    }
    return some;
}

/* The items of the range that nobody has written, whole or in part.  As advice those without a first byte: a
 * row of three and a struct may end in bytes that nobody writes. */
static soft_finding
count_items(const soft_check *check, const soft_range *range, bool is_advice)
{
    const soft_argument_facts *facts =
        soft_facts_find(check->launch.image, SOFT_ARGUMENT_BUFFER, range->number);
    size_t item = facts->nbytes == 0 ? 1 : facts->nbytes,
           next = 0; /* next: the item not counted */
    const char *base = (const char *)range->base, *end = base + range->nbytes, *at = base;
    soft_finding found = {.kind = SOFT_FOUND_UNWRITTEN_OUTPUT,
                          .memory = soft_range_found(range),
                          .is_advice = is_advice};
    while ((at = soft_fresh_first(range->fresh, at, (size_t)(end - at))) != NULL) {
        size_t first = ((size_t)(at - base) + (is_advice ? item - 1 : 0)) / item;
        at = soft_fresh_end(range->fresh, at, end);
        size_t last = (size_t)(at - base - 1) / item;
        first = first < next ? next : first;
        if (first > last) {
            continue;
        }
        found.offset = found.first == 0 ? (int64_t)(first * item) : found.offset;
        found.first += last + 1 - first;
        found.second = last;
        next = last + 1;
    }
    return found;
}

void
soft_outputs_end(soft_check *check)
{
    for (int i = 0; i < check->view_count; i++) {
        const soft_range *range = &check->ranges[i];
        if (range->fresh == NULL || range->shadow->cells == NULL) {
            continue;
        }
        soft_mark some = take_writes(range);
        soft_writers writers =
            range->is_writable ? soft_fresh_take_writers(range->fresh) : SOFT_WRITTEN_BY_ANY;
        if (writers == SOFT_WRITTEN_BY_ANY || range->number >= SOFT_FIRST_RESOURCE) {
            continue; /* which resources are outputs nobody says */
        }
        soft_finding found = count_items(check, range, writers != SOFT_WRITTEN_BY_NEXT);
        if (some.time != 0) {
            found.at[0] = soft_at_mark(check, some);
            found.count = 1;
        }
        if (found.first > 0) {
            (void)soft_findings_add(&check->findings, &found);
        }
    }
}
