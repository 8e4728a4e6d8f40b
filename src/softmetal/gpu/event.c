/* event.c: events, on one board: one lock, one condition, for all of them.
 *
 * Owns:    the values.
 * Calls:   host.h, to stop waiting when the process exits.
 * Threads: any.
 * Note:    one board is simple and cannot deadlock; waiters are few, so waking all is cheap.
 */
#include "softmetal/gpu/event.h"

#include <pthread.h>
#include <stdlib.h>

#include "softmetal/host.h"

#define MOST_VALUES 256 /* of an event that are remembered apart */

/* What came before each signal; values grow. */
struct history {
    size_t count;
    struct {
        uint64_t value;
        soft_race_clock clock;
    } entries[MOST_VALUES];
};

struct soft_event {
    long references;
    uint64_t value;
    struct history *history; /* owned; NULL: races are not watched */
    soft_fence_updates updates;
};

static pthread_mutex_t board = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t raised;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
init_board(void)
{
    soft_monotonic_init_cond(&raised);
}

soft_event *
soft_event_new(void)
{
    pthread_once(&once, init_board);
    soft_event *event = calloc(1, sizeof *event);
    if (event != NULL) {
        event->references = 1;
    }
    return event;
}

soft_event *
soft_event_retain(soft_event *event)
{
    __atomic_add_fetch(&event->references, 1, __ATOMIC_RELAXED);
    return event;
}

void
soft_event_release(soft_event *event)
{
    if (event != NULL && __atomic_sub_fetch(&event->references, 1, __ATOMIC_ACQ_REL) == 0) {
        free(event->history);
        free(event);
    }
}

soft_fence_updates *
soft_event_fence_updates(soft_event *event)
{
    return &event->updates;
}

uint64_t
soft_event_value(soft_event *event)
{
    return __atomic_load_n(&event->value, __ATOMIC_ACQUIRE);
}

void
soft_event_raise(soft_event *event, uint64_t value)
{
    pthread_mutex_lock(&board);
    if (value > event->value) {
        __atomic_store_n(&event->value, value, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&raised);
    }
    pthread_mutex_unlock(&board);
}

soft_event_outcome
soft_event_wait(soft_event *event, uint64_t value, uint64_t deadline_ns)
{
    soft_event_outcome outcome = SOFT_EVENT_REACHED;
    pthread_mutex_lock(&board);
    while (event->value < value && outcome == SOFT_EVENT_REACHED) {
        if (soft_process_is_exiting()) {
            outcome = SOFT_EVENT_EXIT;
        }
        else if (deadline_ns != SOFT_FOREVER && soft_monotonic_ns() >= deadline_ns) {
            outcome = SOFT_EVENT_LATE;
        }
        else {
            soft_monotonic_wait(&raised, &board, deadline_ns);
        }
    }
    pthread_mutex_unlock(&board);
    return outcome;
}

void
soft_event_wake_all(void)
{
    pthread_once(&once, init_board);
    pthread_mutex_lock(&board);
    pthread_cond_broadcast(&raised);
    pthread_mutex_unlock(&board);
}

/* ---- for races.c ---- */

/* Half of the values go: a wait for one of them counts as a wait for the next that is left,
 * which knows more.  So a race can be missed, and none is made up. */
static void
thin_out(struct history *history)
{
    size_t kept = 0;
    for (size_t index = 1; index < history->count; index += 2) {
        history->entries[kept] = history->entries[index];
        kept += 1;
    }
    history->count = kept;
}

void
soft_event_note_signal(soft_event *event, uint64_t value, const soft_race_clock *clock)
{
    if (event->history == NULL) {
        event->history = calloc(1, sizeof *event->history);
    }
    struct history *history = event->history;
    if (history == NULL) { /* what is not remembered here would be a race elsewhere */
        soft_end_without_memory("what came before the signal of an event");
    }
    if (history->count > 0 && history->entries[history->count - 1].value >= value) {
        return; /* the value stays as it is, and nobody wakes */
    }
    if (history->count == MOST_VALUES) {
        thin_out(history);
    }
    history->entries[history->count].value = value;
    history->entries[history->count].clock = *clock;
    history->count += 1;
}

void
soft_event_learn_signal(const soft_event *event, uint64_t value, soft_race_clock *clock)
{
    const struct history *history = event->history;
    if (history == NULL || value == 0) {
        return;
    }
    size_t low = 0, high = history->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (history->entries[middle].value < value) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    if (low < history->count) {
        soft_race_clock_join(clock, &history->entries[low].clock);
    }
}
