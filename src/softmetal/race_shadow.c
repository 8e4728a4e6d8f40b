/* race_shadow.c: lists of ranges; see race_shadow.h.
 *
 * Owns:      the lists.
 * Threads:   see race_shadow.h.
 * Invariant: of two records that overlap, either both are reads or a race of them was reported.
 */
#include "softmetal/race_shadow.h"

#include <stdlib.h>
#include <string.h>

#define MOST_RECORDS \
    512 /* of a block; then the oldest is forgotten, and a race with it missed */

struct soft_race_shadow {
    size_t count, capacity;
    soft_race_record *records; /* oldest first */
};

void
soft_race_shadow_free(soft_race_shadow *shadow)
{
    if (shadow != NULL) {
        free(shadow->records);
        free(shadow);
    }
}

static bool
append(soft_race_shadow *shadow, soft_race_record record)
{
    if (shadow->count == MOST_RECORDS) {
        shadow->count -= 1;
        memmove(shadow->records, shadow->records + 1, shadow->count * sizeof record);
    }
    if (shadow->count == shadow->capacity) {
        size_t capacity = shadow->capacity == 0 ? 4 : shadow->capacity * 2;
        soft_race_record *larger = realloc(shadow->records, capacity * sizeof record);
        if (larger == NULL) {
            return false;
        }
        shadow->records = larger;
        shadow->capacity = capacity;
    }
    shadow->records[shadow->count] = record;
    shadow->count += 1;
    return true;
}

static bool
overlaps(const soft_race_record *one, const soft_race_record *other)
{
    return one->start < other->end && other->start < one->end;
}

/* Take the bytes of `record` away from the one at `index`.  True: nothing of it is left. */
static bool
cut(soft_race_shadow *shadow, size_t index, const soft_race_record *record)
{
    soft_race_record *old = &shadow->records[index];
    if (old->start < record->start && record->end < old->end) {
        soft_race_record rest = *old;
        rest.start = record->end;
        old->end = record->start;
        if (shadow->count < MOST_RECORDS) { /* else a part of an old record is forgotten */
            (void)append(shadow, rest);
        }
        return false;
    }
    if (old->start < record->start) {
        old->end = record->start;
    }
    else if (record->end < old->end) {
        old->start = record->end;
    }
    else {
        return true;
    }
    return false;
}

static bool
extends_last(const soft_race_shadow *shadow, const soft_race_record *record)
{
    const soft_race_record *last = &shadow->records[shadow->count - 1];
    return shadow->count > 0 && last->end == record->start &&
           last->component == record->component && last->number == record->number &&
           last->is_written == record->is_written && last->site == record->site;
}

bool
soft_race_shadow_use(soft_race_shadow **place, const soft_race_record *record,
                     soft_race_comes_before *comes_before, const void *context,
                     soft_race_record *earlier)
{
    if (*place == NULL && (*place = calloc(1, sizeof **place)) == NULL) {
        return false;
    }
    soft_race_shadow *shadow = *place;
    bool is_race = false;
    size_t kept = 0, count = shadow->count;
    for (size_t index = 0; index < shadow->count; index++) {
        soft_race_record *old = &shadow->records[index];
        bool is_gone = false;
        /* Parts that `cut` has put behind the end do not overlap. */
        if (index < count && overlaps(old, record)) {
            bool is_ordered = comes_before(context, old);
            if (!is_ordered && (old->is_written || record->is_written) && !is_race) {
                is_race = true;
                *earlier = *old;
            }
            if (record->is_written || (is_ordered && !old->is_written)) {
                is_gone = cut(shadow, index, record);
            }
        }
        if (!is_gone) {
            shadow->records[kept] = shadow->records[index];
            kept += 1;
        }
    }
    shadow->count = kept;
    if (kept > 0 && extends_last(shadow, record)) {
        shadow->records[kept - 1].end = record->end;
    }
    else {
        (void)append(shadow, *record);
    }
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
            (count == 0 || numbers[count - 1] != old->number)) {
            numbers[count] = old->number;
            count += 1;
        }
    }
    return count;
}
