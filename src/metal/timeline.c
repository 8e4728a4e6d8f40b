/* timeline.c: see timeline.h. */
#include "metal/timeline.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "metal/locks.h"

#define MOST_QUEUES 256 /* the others go without a label */
#define BIRTH_BITS 12

#ifdef __APPLE__
#define CLOCK CLOCK_UPTIME_RAW
#else
#define CLOCK CLOCK_MONOTONIC
#endif

uint32_t timeline_opening;
_Thread_local timeline_note timeline_next;

/* All behind LOCK_TIMELINE.  Record n lies at n % capacity until n + capacity takes its place. */
static timeline_record *ring; /* owned; NULL: nobody has one open */
static size_t capacity;
static uint64_t next_number = 1;
static size_t recording, kept; /* how many record, and how many may read */
static uint32_t openings = 1;  /* odd, also when it overflows: 0 is none */
static timeline_queue queues[MOST_QUEUES];
static size_t queue_count;
static uint64_t births[1 << BIRTH_BITS]; /* the next record's number then */

double
timeline_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- recording ---- */

timeline_note *
timeline_note_now(void)
{
    uint32_t opening = __atomic_load_n(&timeline_opening, __ATOMIC_RELAXED);
    if (timeline_next.opening != opening) {
        timeline_next = (timeline_note){.opening = opening};
    }
    return &timeline_next;
}

/* NULL: it is lost. */
static timeline_record *
find_locked(uint64_t number)
{
    timeline_record *place = ring == NULL ? NULL : &ring[number % capacity];
    return place != NULL && number != 0 && place->number == number ? place : NULL;
}

/* Returns its number; 0: none is kept. */
static uint64_t
add_locked(const timeline_record *record)
{
    if (recording == 0) {
        return 0;
    }
    uint64_t number = next_number++;
    timeline_note *note = timeline_note_now();
    timeline_record *place = &ring[number % capacity];
    *place = *record;
    place->number = number;
    place->submitted = record->submitted != 0 ? record->submitted : timeline_now();
    place->thread = (uint64_t)(uintptr_t)pthread_self();
    place->place = note->place;
    place->reason = note->reason;
    (void)strncpy(place->name, note->name == NULL ? "" : note->name, sizeof place->name - 1);
    note->name = NULL;
    note->reason = TIMELINE_ASKED;
    return number;
}

static bool
wants_queue_locked(uint32_t stream)
{
    for (size_t i = queue_count; i-- > 0;) { /* the newest first: it is asked about most */
        if (queues[i].stream == stream) {
            return false;
        }
    }
    return recording > 0 && queue_count < MOST_QUEUES;
}

bool
timeline_add(const timeline_record *record, const timeline_queue *queue, uint64_t *number)
{
    *number = 0;
    lock_take(LOCK_TIMELINE);
    bool is_told = !wants_queue_locked(record->stream);
    if (!is_told && queue != NULL) {
        queues[queue_count++] = *queue;
        is_told = true;
    }
    if (is_told) {
        *number = add_locked(record);
    }
    lock_drop(LOCK_TIMELINE);
    return is_told;
}

/* What is no piece of a queue's. */
static void
add_other(const timeline_record *record)
{
    lock_take(LOCK_TIMELINE);
    (void)add_locked(record);
    lock_drop(LOCK_TIMELINE);
}

void
timeline_committed(uint64_t number)
{
    if (number == 0) {
        return;
    }
    lock_take(LOCK_TIMELINE);
    timeline_record *place = find_locked(number);
    if (place != NULL) {
        place->launch = timeline_now() - place->submitted;
    }
    lock_drop(LOCK_TIMELINE);
}

void
timeline_end(uint64_t number, double scheduled, double started, double ended, bool has_failed)
{
    if (number == 0) {
        return;
    }
    lock_take(LOCK_TIMELINE);
    timeline_record *place = find_locked(number);
    if (place != NULL) {
        place->scheduled = scheduled;
        place->started = started;
        place->ended = ended;
        place->has_failed = has_failed;
    }
    lock_drop(LOCK_TIMELINE);
}

static void
add_finished(double started, timeline_kind kind, timeline_record *record)
{
    record->kind = (uint8_t)kind;
    record->submitted = record->started = started;
    record->scheduled = NAN;
    record->ended = timeline_now();
    add_other(record);
}

void
timeline_waited(double started, const char *name, timeline_record what)
{
    /* mutant survives (condition always): who waits often asks before it makes the record */
    if (started != 0) {
        timeline_note *note = timeline_note_now();
        timeline_note next = *note; /* the wait comes before what that is about */
        note->name = name;
        note->reason = TIMELINE_ASKED;
        add_finished(started, TIMELINE_CPU_WAITS, &what);
        *note = next;
    }
}

void
timeline_computed(double started, timeline_kind kind, timeline_record what)
{
    /* mutant survives (condition always): the same, of copies */
    if (started != 0) {
        add_finished(started, kind, &what);
    }
}

void
timeline_held(uint64_t waiter, timeline_record what)
{
    if (waiter != 0) {
        what.kind = TIMELINE_GPU_WAITS;
        what.waiter = waiter;
        add_other(&what);
    }
}

void
timeline_drop(uint64_t number)
{
    lock_take(LOCK_TIMELINE);
    timeline_record *place = find_locked(number);
    if (place != NULL) {
        place->was_dropped = true;
    }
    lock_drop(LOCK_TIMELINE);
}

static uint64_t *
birth_of(const void *buffer)
{
    return &births[(uintptr_t)buffer / 16 * 0x9E3779B97F4A7C15U >> (64 - BIRTH_BITS)];
}

void
timeline_note_birth(const void *buffer)
{
    lock_take(LOCK_TIMELINE);
    *birth_of(buffer) = next_number;
    lock_drop(LOCK_TIMELINE);
}

uint64_t
timeline_birth(const void *buffer)
{
    lock_take(LOCK_TIMELINE);
    uint64_t number = *birth_of(buffer);
    lock_drop(LOCK_TIMELINE);
    return number;
}

/* ---- opening and reading ---- */

bool
timeline_open(size_t wanted, uint64_t *first)
{
    bool is_open = true;
    lock_take(LOCK_TIMELINE);
    /* mutant survives (bound): a ring of the same length takes its place */
    if (wanted > capacity) { /* the records move to where the longer ring has them */
        timeline_record *longer = calloc(wanted, sizeof *longer);
        is_open = longer != NULL;
        for (size_t i = 0; is_open && i < capacity; i++) {
            if (ring[i].number != 0) {
                longer[ring[i].number % wanted] = ring[i];
            }
        }
        if (is_open) {
            free(ring);
            ring = longer;
            capacity = wanted;
        }
    }
    if (is_open) {
        if (recording++ == 0) {
            /* mutant survives (sign): also another number each time */
            __atomic_store_n(&timeline_opening, openings += 2, __ATOMIC_RELAXED);
        }
        kept++;
        *first = next_number;
    }
    lock_drop(LOCK_TIMELINE);
    return is_open;
}

uint64_t
timeline_close(void)
{
    lock_take(LOCK_TIMELINE);
    if (--recording == 0) {
        __atomic_store_n(&timeline_opening, 0, __ATOMIC_RELAXED);
    }
    uint64_t end = next_number;
    lock_drop(LOCK_TIMELINE);
    return end;
}

uint64_t
timeline_end_number(void)
{
    lock_take(LOCK_TIMELINE);
    uint64_t end = next_number;
    lock_drop(LOCK_TIMELINE);
    return end;
}

void
timeline_forget(void)
{
    lock_take(LOCK_TIMELINE);
    if (--kept == 0) {
        free(ring);
        ring = NULL;
        capacity = queue_count = 0;
    }
    lock_drop(LOCK_TIMELINE);
}

bool
timeline_read(uint64_t number, timeline_record *out, bool *is_lost)
{
    lock_take(LOCK_TIMELINE);
    const timeline_record *place = find_locked(number);
    bool is_there = place != NULL && !place->was_dropped;
    *is_lost = place == NULL;
    if (is_there) {
        *out = *place;
    }
    lock_drop(LOCK_TIMELINE);
    return is_there;
}

bool
timeline_read_queue(size_t index, timeline_queue *out)
{
    lock_take(LOCK_TIMELINE);
    bool is_there = index < queue_count;
    if (is_there) {
        *out = queues[index];
    }
    lock_drop(LOCK_TIMELINE);
    return is_there;
}
