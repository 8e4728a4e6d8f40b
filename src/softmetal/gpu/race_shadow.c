/* race_shadow.c: a list of ranges; see race_shadow.h.
 *
 * Owns:      the list; each use writes a new one.
 * Invariant: of each byte it knows the last write and the reads since, the oldest first; no
 *            read of them comes before a later one.
 */
#include "softmetal/gpu/race_shadow.h"

#include <stdlib.h>
#include <string.h>

/* The limit of one block.  Beyond it the oldest record goes: its race is missed, none is made up. */
#define MOST_RECORDS 512

struct soft_race_shadow {
    size_t count;
    bool has_forgotten;
    soft_race_record records[]; /* oldest first */
};

void
soft_race_shadow_free(soft_race_shadow *shadow)
{
    free(shadow);
}

/* An empty list with room for what one use leaves of `old`: two parts of each record at most,
 * and itself. */
static soft_race_shadow *
make_next(const soft_race_shadow *old)
{
    size_t room = old != NULL ? 2 * old->count + 1 : 1;
    if (room > MOST_RECORDS) {
        room = MOST_RECORDS;
    }
    soft_race_shadow *next = malloc(sizeof *next + room * sizeof next->records[0]);
    if (next != NULL) {
        next->count = 0;
        next->has_forgotten = old != NULL && old->has_forgotten;
    }
    return next;
}

static void
append(soft_race_shadow *shadow, const soft_race_record *record)
{
    if (shadow->count == MOST_RECORDS) {
        shadow->count -= 1;
        shadow->has_forgotten = true;
        memmove(shadow->records, shadow->records + 1, shadow->count * sizeof *record);
    }
    shadow->records[shadow->count] = *record;
    shadow->count += 1;
}

static bool
overlaps(const soft_race_record *one, const soft_race_record *other)
{
    return one->start < other->end && other->start < one->end;
}

/* What is left of `old` without the bytes of `record`, which overlaps it. */
static void
append_rest(soft_race_shadow *shadow, const soft_race_record *old,
            const soft_race_record *record)
{
    soft_race_record before = *old, after = *old;
    before.end = record->start;
    after.start = record->end;
    if (before.start < before.end) {
        append(shadow, &before);
    }
    if (after.start < after.end) {
        append(shadow, &after);
    }
}

/* The use itself: as part of the last record if that is of the same kind and ends here. */
static void
append_use(soft_race_shadow *shadow, const soft_race_record *record)
{
    soft_race_record *last = shadow->count > 0 ? &shadow->records[shadow->count - 1] : NULL;
    if (last != NULL && last->end == record->start && last->component == record->component &&
        last->number == record->number && last->is_written == record->is_written &&
        last->site == record->site) {
        last->end = record->end;
    }
    else {
        append(shadow, record);
    }
}

bool
soft_race_shadow_use(soft_race_shadow **place, const soft_race_record *record,
                     soft_race_comes_before *comes_before, const void *context,
                     soft_race_record *earlier)
{
    const soft_race_shadow *shadow = *place;
    soft_race_shadow *next = make_next(shadow);
    if (next == NULL) {
        return false;
    }
    bool is_race = false;
    for (size_t index = 0; shadow != NULL && index < shadow->count; index++) {
        const soft_race_record *old = &shadow->records[index];
        if (!overlaps(old, record)) {
            append(next, old);
            continue;
        }
        bool is_ordered = comes_before(context, old);
        if (!is_race && !is_ordered && (old->is_written || record->is_written)) {
            is_race = true;
            *earlier = *old;
        }
        if (record->is_written || (is_ordered && !old->is_written)) {
            append_rest(next, old, record);
        }
        else {
            append(next, old);
        }
    }
    append_use(next, record);
    free(*place);
    *place = next;
    return is_race;
}

bool
soft_race_shadow_has_last(const soft_race_shadow *shadow, const soft_race_record *record)
{
    if (shadow == NULL || shadow->count == 0) {
        return false;
    }
    const soft_race_record *last = &shadow->records[shadow->count - 1];
    return last->component == record->component && last->number == record->number &&
           last->start <= record->start && record->end <= last->end &&
           (last->is_written || !record->is_written);
}

bool
soft_race_shadow_has_forgotten(const soft_race_shadow *shadow)
{
    return shadow != NULL && shadow->has_forgotten;
}

static bool
is_listed(uint64_t number, const uint64_t *numbers, size_t count)
{
    while (count > 0 && numbers[count - 1] != number) {
        count -= 1;
    }
    return count > 0;
}

size_t
soft_race_shadow_list(const soft_race_shadow *shadow, int component, bool is_written,
                      uint64_t *numbers, size_t capacity)
{
    size_t count = 0;
    if (shadow == NULL) {
        return 0;
    }
    for (size_t index = shadow->count; index > 0 && count < capacity; index--) {
        const soft_race_record *old = &shadow->records[index - 1];
        if (old->component == component && (old->is_written || is_written) &&
            !is_listed(old->number, numbers, count)) {
            numbers[count] = old->number;
            count += 1;
        }
    }
    return count;
}
