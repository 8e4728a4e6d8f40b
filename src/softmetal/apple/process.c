/* process.c: fork, exit, and the count of workers.
 *
 * Owns:    the counts, behind `lock`.
 * Calls:   host.h; lane.h and event.h, to wake workers at exit; races.h; the locks of
 *          kernel.h, soft_storage.h, failure.h, validation.h and object_list.h, which fork holds.
 * Threads: any.
 * Note:    at exit workers get two seconds to leave; one that is stuck in a handler is left
 *          behind rather than waited for.
 */
#include "softmetal/apple/process.h"

#include <pthread.h>
#include <stdlib.h>

#include "softmetal/apple/object_list.h"
#include "softmetal/failure.h"
#include "softmetal/gpu/event.h"
#include "softmetal/gpu/kernel.h"
#include "softmetal/gpu/lane.h"
#include "softmetal/gpu/races.h"
#include "softmetal/gpu/soft_storage.h"
#include "softmetal/host.h"
#include "softmetal/softmetal.h"
#include "softmetal/validation.h"

#define EXIT_PATIENCE_MS 2000

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static __thread bool is_worker; /* of a thread: exit() may be called by a handler */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static long worker_count, work_count;

/* A child needs these locks to let go of what it inherited: they are free there.  The runtime's
 * own is taken before them, since the first call of a method takes it. */
static pthread_mutex_t *const inherited[] = {&soft_kernel_mutex, &soft_failure_mutex,
                                             &soft_validation_mutex, &soft_object_list_mutex,
                                             &soft_storage_mutex};
#define INHERITED_COUNT (sizeof inherited / sizeof inherited[0])

static void
take_locks(void)
{
    soft_runtime_lock();
    for (size_t index = 0; index < INHERITED_COUNT; index++) {
        pthread_mutex_lock(inherited[index]);
    }
}

static void
drop_locks(void)
{
    for (size_t index = INHERITED_COUNT; index > 0; index--) {
        pthread_mutex_unlock(inherited[index - 1]);
    }
    soft_runtime_unlock();
}

static void
mark_child(void)
{
    __atomic_store_n(&soft_process_forked, 1, __ATOMIC_RELAXED);
    drop_locks();
}

static void
stop_workers(void)
{
    if (soft_process_is_forked()) {
        return; /* no worker exists here, and nobody may ever drop `lock` */
    }
    __atomic_store_n(&soft_process_exiting, 1, __ATOMIC_RELEASE);
    soft_lane_wake_all();
    soft_event_wake_all();
    uint64_t deadline = soft_monotonic_after(EXIT_PATIENCE_MS, 1000000);
    pthread_mutex_lock(&lock);
    while (worker_count > is_worker && soft_monotonic_ns() < deadline) {
        soft_monotonic_wait(&changed, &lock, deadline);
    }
    pthread_mutex_unlock(&lock);
}

static void
watch(void)
{
    soft_monotonic_init_cond(&changed);
    atexit(stop_workers);
}

/* First of all constructors.  Prepare handlers run last in, first out: a caller of Metal that
 * holds a lock of its own over fork takes that lock before these. */
__attribute__((constructor(101))) static void
watch_fork(void)
{
    pthread_atfork(take_locks, drop_locks, mark_child);
}

void
soft_process_watch(void)
{
    pthread_once(&watch_once, watch);
}

void
soft_process_enter_worker(void)
{
    is_worker = true;
}

static void
add(long *count, long change)
{
    pthread_mutex_lock(&lock);
    *count += change;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool
soft_process_start_worker(void *(*run)(void *), void *argument)
{
    add(&worker_count, 1);
    bool is_started = soft_thread_start(run, argument);
    if (!is_started) {
        soft_process_end_worker();
    }
    return is_started;
}

void
soft_process_end_worker(void)
{
    add(&worker_count, -1);
}

void
soft_process_count_work(long change)
{
    add(&work_count, change);
}

int
softmetal_wait_idle(uint64_t timeout_ms)
{
    soft_process_watch();
    if (soft_process_is_forked()) {
        return 1;
    }
    uint64_t deadline = soft_monotonic_after(timeout_ms, 1000000);
    pthread_mutex_lock(&lock);
    while (work_count > 0 && soft_monotonic_ns() < deadline) {
        soft_monotonic_wait(&changed, &lock, deadline);
    }
    int idle = work_count == 0;
    pthread_mutex_unlock(&lock);
    if (idle) {
        soft_races_cpu_waited_for_all();
    }
    return idle;
}
