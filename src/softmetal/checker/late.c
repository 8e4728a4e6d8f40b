/* late.c: see late.h. */
#include "softmetal/checker/late.h"

#include "softmetal/host.h"
#include "softmetal/settings.h"

#define SECOND_NS UINT64_C(1000000000)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* behind `lock`, as is what reads and writes the list */
static pthread_cond_t wanted;
static soft_progress *first;
static void (*tell_late)(pthread_t thread);
static bool has_watcher;
static bool is_wanted; /* also atomic: a launch has begun since the last look */

static void
init(void)
{
    soft_monotonic_init_cond(&wanted);
}

static uint64_t
processor_ns(const soft_progress *progress)
{
    struct timespec now;
    if (clock_gettime(progress->clock, &now) != 0) {
        return progress->seen_ns; /* nobody knows: then no time has passed */
    }
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void
look_at_locked(soft_progress *progress, uint64_t limit)
{
    uint64_t serial = __atomic_load_n(&progress->serial, __ATOMIC_RELAXED);
    uint64_t now_ns = processor_ns(progress);
    if (serial != progress->seen) {
        progress->seen = serial;
        progress->seen_ns = now_ns;
    }
    else if (limit != 0 && (now_ns - progress->seen_ns) / SECOND_NS >= limit) {
        __atomic_store_n(&progress->late, serial, __ATOMIC_RELAXED);
        tell_late(progress->thread);
    }
}

/* False: no kernel runs. */
static bool
look_at_all_locked(void)
{
    bool is_any = __atomic_exchange_n(&is_wanted, false, __ATOMIC_RELAXED);
    uint64_t limit = soft_settings_get(SOFT_KERNEL_TIMEOUT);
    for (soft_progress *progress = first; progress != NULL; progress = progress->next) {
        if (__atomic_load_n(&progress->is_running, __ATOMIC_RELAXED)) {
            look_at_locked(progress, limit);
            is_any = true;
        }
    }
    return is_any;
}

/* It holds nothing between two looks: the process may end at any time. */
static void *
watch(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        bool is_idle = !look_at_all_locked();
        while (is_idle && !is_wanted) {
            soft_monotonic_wait(&wanted, &lock, SOFT_FOREVER);
        }
        uint64_t next_ns = soft_monotonic_after(1, SECOND_NS);
        while (soft_monotonic_ns() < next_ns) {
            soft_monotonic_wait(&wanted, &lock, next_ns);
        }
    }
    return NULL;
}

void
soft_progress_add(soft_progress *progress)
{
    progress->thread = pthread_self();
    progress->late = UINT64_MAX;
    if (pthread_getcpuclockid(progress->thread, &progress->clock) != 0) {
        progress->clock = CLOCK_MONOTONIC;
    }
    pthread_mutex_lock(&lock);
    progress->next = first;
    first = progress;
    pthread_mutex_unlock(&lock);
}

void
soft_progress_remove(soft_progress *progress)
{
    if (soft_process_is_forked()) { /* the lock may never be free */
        return;
    }
    pthread_mutex_lock(&lock);
    soft_progress **link = &first;
    while (*link != progress) {
        link = &(*link)->next;
    }
    *link = progress->next;
    pthread_mutex_unlock(&lock);
}

void
soft_late_watch(void (*tell)(pthread_t thread))
{
    if (__atomic_load_n(&is_wanted, __ATOMIC_RELAXED)) {
        return;
    }
    pthread_once(&once, init);
    pthread_mutex_lock(&lock);
    tell_late = tell;
    __atomic_store_n(&is_wanted, true, __ATOMIC_RELAXED);
    if (!has_watcher) { /* without it a kernel may hang, and that is all */
        has_watcher = soft_thread_start(watch, NULL);
    }
    pthread_cond_signal(&wanted);
    pthread_mutex_unlock(&lock);
}
