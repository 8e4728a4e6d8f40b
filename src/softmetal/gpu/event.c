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

struct soft_event {
    long references;
    uint64_t value;
    soft_race_history *history; /* owned */
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
        soft_race_history_free(event->history);
        free(event);
    }
}

soft_race_history **
soft_event_history(soft_event *event)
{
    return &event->history;
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
