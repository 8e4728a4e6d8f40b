/* race_shadow_laws.c: random uses of a small block, compared with a plain list for each byte;
 * run by test_race_shadow.py.
 *
 * Owns:    nothing: the cases follow from the seed.
 * Laws:    each use is compared, oldest first, with every use that is left of each of its
 *          bytes, and with nothing else.  A write leaves only itself; a read takes away the
 *          reads that come before it.  A race is reported with the oldest use that it is with.
 *          Beyond 512 records the oldest is forgotten.
 * Usage:   `race_shadow_laws SEED COUNT`: exits 0, or says which law and stops.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "laws.h"
#include "softmetal/gpu/race_shadow.h"

#define NBYTES 24
#define USES 40          /* of one block */
#define MOST_RECORDS 512 /* as race_shadow.c has it */
#define MOST_SEEN (4 * MOST_RECORDS)

/* ---- the plain list: for each byte the uses that are left of it, oldest first ---- */

static soft_race_record uses[USES];
static size_t use_count;
static size_t left[NBYTES][USES], left_count[NBYTES]; /* indices of `uses` */

/* Any answer will do, so long as it is always the same. */
static bool
answer(const soft_race_record *earlier, const soft_race_record *later)
{
    return earlier->number == later->number ||
           ((earlier->number * 0x9e3779b97f4a7c15u ^ later->number * 0xbf58476d1ce4e5b9u) >>
                60 &
            1) != 0;
}

static bool
is_race(const soft_race_record *earlier, const soft_race_record *later)
{
    return !answer(earlier, later) && (earlier->is_written || later->is_written);
}

/* Uses that the shadow may keep as one record. */
static bool
are_one(const soft_race_record *one, const soft_race_record *other)
{
    return one->component == other->component && one->number == other->number &&
           one->is_written == other->is_written && one->site == other->site;
}

static void
note_in_byte(size_t byte, size_t use)
{
    size_t kept = 0;
    for (size_t index = 0; index < left_count[byte]; index++) {
        const soft_race_record *old = &uses[left[byte][index]];
        bool is_gone = uses[use].is_written || (!old->is_written && answer(old, &uses[use]));
        if (!is_gone) {
            left[byte][kept++] = left[byte][index];
        }
    }
    left[byte][kept++] = use;
    left_count[byte] = kept;
}

/* ---- what the shadow compares with ---- */

static soft_race_record seen[MOST_SEEN];
static size_t seen_count;

static bool
comes_before(const void *context, const soft_race_record *earlier)
{
    CHECK(seen_count < MOST_SEEN);
    seen[seen_count++] = *earlier;
    return answer(earlier, context);
}

/* The records that cover a byte are the uses that are left of it, in their order. */
static void
check_byte(size_t byte)
{
    size_t found = 0;
    for (size_t index = 0; index < seen_count; index++) {
        if (seen[index].start <= byte && byte < seen[index].end) {
            CHECK(found < left_count[byte]);
            CHECK(are_one(&seen[index], &uses[left[byte][found]]));
            found += 1;
        }
    }
    CHECK(found == left_count[byte]);
}

static void
check_seen(const soft_race_record *use)
{
    for (size_t index = 0; index < seen_count; index++) {
        CHECK(seen[index].start < use->end && use->start < seen[index].end);
        CHECK(seen[index].start < seen[index].end);
        CHECK(index == 0 || seen[index - 1].queue <= seen[index].queue); /* oldest first */
    }
    for (size_t byte = use->start; byte < use->end; byte++) {
        check_byte(byte);
    }
}

static const soft_race_record *
find_race(const soft_race_record *use)
{
    for (size_t index = 0; index < seen_count; index++) {
        if (is_race(&seen[index], use)) {
            return &seen[index];
        }
    }
    return NULL;
}

/* Find in a pass, in any byte, a use that conflicts with a write, or with a read. */
static bool
is_left_of(int component, uint64_t number, bool is_written)
{
    for (size_t byte = 0; byte < NBYTES; byte++) {
        for (size_t index = 0; index < left_count[byte]; index++) {
            const soft_race_record *old = &uses[left[byte][index]];
            if (old->component == component && old->number == number &&
                (old->is_written || is_written)) {
                return true;
            }
        }
    }
    return false;
}

static void
check_list(const soft_race_shadow *shadow, int component, bool is_written)
{
    uint64_t numbers[MOST_SEEN];
    size_t count = soft_race_shadow_list(shadow, component, is_written, numbers, MOST_SEEN);
    for (size_t use = 0; use < use_count; use++) {
        bool is_listed = false;
        for (size_t index = 0; index < count; index++) {
            is_listed = is_listed || numbers[index] == uses[use].number;
        }
        CHECK(is_listed == is_left_of(component, uses[use].number, is_written));
    }
    for (size_t index = 0; index < count;
         index++) { /* each once: the list has no room for more */
        for (size_t other = 0; other < index; other++) {
            CHECK(numbers[index] != numbers[other]);
        }
    }
    CHECK(!soft_race_shadow_has_forgotten(shadow));
    CHECK(soft_race_shadow_list(shadow, component, is_written, numbers, 1) <= 1);
}

/* ---- random uses ---- */

static soft_race_record
pick_use(void)
{
    static const char sites[2];
    size_t start = pick(0, NBYTES - 1);
    soft_race_record use = {.start = start,
                            .end = pick(start + 1, NBYTES),
                            .component = (int)pick(0, 2),
                            .number = use_count + 1,
                            .queue = use_count + 1, /* its age */
                            .is_written = pick(0, 2) == 0,
                            .site = (const soft_call_site *)&sites[pick(0, 1)]};
    if (use_count > 0 &&
        pick(0, 2) == 0) { /* one more of the same pass, or of another with its number */
        const soft_race_record *last = &uses[use_count - 1];
        use.component = pick(0, 3) > 0 ? last->component : use.component;
        use.number = last->number;
        if (pick(0, 2) > 0 && last->end < NBYTES) { /* ... that goes on where it ended */
            use.start = last->end;
            use.end = pick(use.start + 1, NBYTES);
            use.is_written = last->is_written;
        }
    }
    return use;
}

static void
run_block(void)
{
    soft_race_shadow *shadow = NULL;
    use_count = 0;
    memset(left_count, 0, sizeof left_count);
    while (use_count < USES) {
        soft_race_record *use = &uses[use_count], earlier = {.number = 0};
        *use = pick_use();
        seen_count = 0;
        bool found = soft_race_shadow_use(&shadow, use, comes_before, use, &earlier);
        check_seen(use);
        const soft_race_record *expected = find_race(use);
        CHECK(found == (expected != NULL));
        CHECK(!found || (are_one(&earlier, expected) && earlier.start == expected->start &&
                         earlier.end == expected->end));
        for (size_t byte = use->start; byte < use->end; byte++) {
            note_in_byte(byte, use_count);
        }
        use_count += 1;
        CHECK(soft_race_shadow_has_last(shadow, use));
        check_list(shadow, (int)pick(0, 2), pick(0, 1) == 0);
    }
    soft_race_shadow_free(shadow);
}

/* ---- the limit ---- */

/* A read of everything meets records with these numbers, and no others. */
static void
check_records(soft_race_shadow *shadow, const uint64_t *numbers)
{
    soft_race_record all = {.end = SIZE_MAX, .number = UINT64_MAX}, earlier;
    seen_count = 0;
    soft_race_shadow_use(&shadow, &all, comes_before, &all, &earlier);
    CHECK(seen_count == MOST_RECORDS);
    for (size_t index = 0; index < MOST_RECORDS; index++) {
        CHECK(seen[index].number == numbers[index]);
    }
    soft_race_shadow_free(shadow);
}

/* Writes of ten bytes each, with a gap between: the last 512 are known. */
static soft_race_shadow *
write_apart(uint64_t count)
{
    soft_race_shadow *shadow = NULL;
    soft_race_record earlier;
    for (uint64_t number = 0; number < count; number++) {
        soft_race_record use = {.start = number * 20, .is_written = true, .number = number};
        use.end = use.start + 10;
        soft_race_shadow_use(&shadow, &use, comes_before, &use, &earlier);
    }
    return shadow;
}

static void
check_limit(void)
{
    uint64_t numbers[MOST_RECORDS];
    for (size_t index = 0; index < MOST_RECORDS; index++) {
        numbers[index] = 100 + index;
    }
    soft_race_shadow *full = write_apart(MOST_RECORDS), *over = write_apart(MOST_RECORDS + 100);
    CHECK(!soft_race_shadow_has_forgotten(full));
    CHECK(soft_race_shadow_has_forgotten(over));
    soft_race_shadow_free(full);
    check_records(over, numbers);

    /* A write in the middle of one record leaves two parts of it: with itself that makes two
     * records more, and the two oldest go. */
    soft_race_shadow *shadow = write_apart(MOST_RECORDS);
    soft_race_record use = {.start = 50 * 20 + 4,
                            .end = 50 * 20 + 6,
                            .is_written = true,
                            .number = 1000},
                     earlier;
    soft_race_shadow_use(&shadow, &use, comes_before, &use, &earlier);
    for (size_t index = 0; index < MOST_RECORDS - 1; index++) {
        numbers[index] = index + 2 - (index > 48);
    }
    numbers[MOST_RECORDS - 1] = 1000;
    check_records(shadow, numbers);
}

static void
check_nothing(void)
{
    uint64_t number;
    soft_race_record use = {.end = 1};
    CHECK(!soft_race_shadow_has_last(NULL, &use));
    CHECK(soft_race_shadow_list(NULL, 0, true, &number, 1) == 0);
    CHECK(!soft_race_shadow_has_forgotten(NULL));
    soft_race_shadow_free(NULL);
}

int
main(int argc, char **argv)
{
    int64_t blocks = begin_laws(argc, argv);
    check_nothing();
    check_limit();
    for (; blocks > 0; blocks--) {
        run_block();
    }
    return 0;
}
