/* race_shadow.c: lists of ranges; see race_shadow.h.
 *
 * Owns:      the lists.
 * Threads:   see race_shadow.h.
 * Invariant: of two records that overlap, either both are reads or a race of them was reported.
 */
#include "softmetal/race_shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/validation.h"

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

static soft_race_shadow **
shadow_of(const soft_race_use *use)
{
    bool is_second = use->is_gpu_block && use->storage->mode == SOFT_MANAGED;
    return &use->storage->shadows[is_second];
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

static void
fill_report(soft_race_report *report, const soft_storage *storage,
            const soft_race_record *earlier, const soft_race_record *later)
{
    report->is_found = true;
    report->earlier = *earlier;
    report->later = *later;
    report->nbytes = storage->nbytes;
    soft_storage_copy_label((soft_storage *)storage, report->label);
}

static bool
extends_last(const soft_race_shadow *shadow, const soft_race_record *record)
{
    const soft_race_record *last = &shadow->records[shadow->count - 1];
    return shadow->count > 0 && last->end == record->start &&
           last->component == record->component && last->number == record->number &&
           last->is_written == record->is_written && last->site == record->site;
}

void
soft_race_shadow_use(const soft_race_use *use,
                     bool (*comes_before)(const void *context, const soft_race_record *record),
                     const void *context, soft_race_report *report)
{
    soft_race_shadow **place = shadow_of(use);
    if (*place == NULL && (*place = calloc(1, sizeof **place)) == NULL) {
        return;
    }
    soft_race_shadow *shadow = *place;
    soft_race_record record = {.start = use->start,
                               .end = use->end,
                               .component = use->component,
                               .number = use->number,
                               .queue = use->queue,
                               .is_written = use->is_written,
                               .is_tracked = use->storage->is_tracked,
                               .site = use->site};
    size_t kept = 0, count = shadow->count;
    for (size_t index = 0; index < shadow->count; index++) {
        soft_race_record *old = &shadow->records[index];
        bool is_gone = false;
        /* Parts that `cut` has put behind the end do not overlap. */
        if (index < count && overlaps(old, &record)) {
            bool is_ordered = comes_before(context, old);
            if (!is_ordered && (old->is_written || record.is_written) && !report->is_found) {
                fill_report(report, use->storage, old, &record);
            }
            if (record.is_written || (is_ordered && !old->is_written)) {
                is_gone = cut(shadow, index, &record);
            }
        }
        if (!is_gone) {
            shadow->records[kept] = shadow->records[index];
            kept += 1;
        }
    }
    shadow->count = kept;
    if (kept > 0 && extends_last(shadow, &record)) {
        shadow->records[kept - 1].end = record.end;
    }
    else {
        (void)append(shadow, record);
    }
}

bool
soft_race_shadow_has_last(const soft_race_use *use)
{
    const soft_race_shadow *shadow = *shadow_of(use);
    if (shadow == NULL || shadow->count == 0) {
        return false;
    }
    const soft_race_record *last = &shadow->records[shadow->count - 1];
    return last->component == use->component && last->number == use->number &&
           last->start <= use->start && use->end <= last->end &&
           (last->is_written || !use->is_written);
}

size_t
soft_race_shadow_list(const soft_race_use *use, int component, uint64_t *numbers,
                      size_t capacity)
{
    const soft_race_shadow *shadow = *shadow_of(use);
    size_t count = 0;
    if (shadow == NULL || !use->storage->is_tracked) {
        return 0;
    }
    for (size_t index = shadow->count; index > 0 && count < capacity; index--) {
        const soft_race_record *old = &shadow->records[index - 1];
        if (old->component == component && (old->is_written || use->is_written) &&
            (count == 0 || numbers[count - 1] != old->number)) {
            numbers[count] = old->number;
            count += 1;
        }
    }
    return count;
}

static const char *
describe(const soft_race_record *record, char *text, size_t nbytes)
{
    char site[512];
    soft_call_site_describe(record->site, site, sizeof site);
    if (record->queue == 0) {
        snprintf(text, nbytes, "a %s of bytes %zu to %zu by the CPU at %s",
                 record->is_written ? "write" : "read", record->start, record->end, site);
    }
    else {
        snprintf(text, nbytes, "a %s of bytes %zu to %zu by queue %llu, encoded at %s",
                 record->is_written ? "write" : "read", record->start, record->end,
                 (unsigned long long)record->queue, site);
    }
    return text;
}

void
soft_race_report_make(const soft_race_report *report)
{
    if (!report->is_found) {
        return;
    }
    char earlier[700], later[700];
    soft_validation_report(SOFT_REPORT_RACE,
                           "nothing orders two uses of the buffer \"%s\" (%zu bytes): %s; and "
                           "%s.",
                           report->label, report->nbytes,
                           describe(&report->earlier, earlier, sizeof earlier),
                           describe(&report->later, later, sizeof later));
}
