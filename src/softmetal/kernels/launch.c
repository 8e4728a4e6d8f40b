/* launch.c: a loaded kernel over a grid; see image.h.
 *
 * Owns:    the state of a launch, on the caller's stack.
 *          The OS threads that help: started when first needed and kept; they hold nothing while
 *          they sleep.
 * Calls:   image.h, threadgroup.h, check.h, check_guard.h, recorder.h, settings.h.
 */
#define _GNU_SOURCE /* sched_getaffinity */

#include "softmetal/kernels/image.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "softmetal/checker/check.h"
#include "softmetal/checker/check_guard.h"
#include "softmetal/checker/recorder.h"
#include "softmetal/host.h"
#include "softmetal/kernels/threadgroup.h"
#include "softmetal/settings.h"

#define ALONE_NS 20000  /* so long a launch runs before others are worth waking */
#define MOST_AT_ONCE 64 /* threadgroups */
#define SHARES 8        /* pieces for each OS thread, so that all end at about the same time */

typedef struct work {
    soft_run run;
    uint64_t begun_count; /* atomic: threadgroups that somebody has taken */
    int threads;
    /* behind `lock` */
    int most_helpers, helpers; /* how many may come, how many work */
    bool is_open;              /* ... and whether one more may come */
    struct work *next;
} work;

/* Take up to `most` threadgroups.  0: none is left. */
static uint64_t
claim(work *work, uint64_t most, uint64_t *first)
{
    uint64_t total = work->run.group_count;
    *first = __atomic_load_n(&work->begun_count, __ATOMIC_RELAXED);
    if (*first >= total) {
        return 0;
    }
    *first = __atomic_fetch_add(&work->begun_count, most, __ATOMIC_RELAXED);
    if (*first >= total) {
        return 0;
    }
    return most < total - *first ? most : total - *first;
}

/* Run threadgroups until none is left to begin. */
static void
work_off(work *work, soft_threadgroup *group)
{
    uint64_t first, count, share = work->run.group_count / (uint64_t)(SHARES * work->threads);
    uint64_t most = share == 0 ? 1 : share < MOST_AT_ONCE ? share : MOST_AT_ONCE;
    while ((count = claim(work, most, &first)) != 0 &&
           soft_threadgroup_run(group, &work->run, first, count)) {
    }
}

/* ---- OS threads that help, and sleep otherwise ---- */

/* The list of launches is behind `lock`.  Not in a forked child, where no helper is and `lock` may
 * never be free. */

#define MOST_THREADS 64
#define MOST_BY_DEFAULT 16 /* each may come to hold a thousand stacks */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t invited = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;
static work *first_work;
static int helper_count;

static pthread_once_t cpus_once = PTHREAD_ONCE_INIT;
static int cpus;

static void
count_cpus(void)
{
    cpu_set_t set;
    cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    cpus = cpus > MOST_BY_DEFAULT ? MOST_BY_DEFAULT : cpus;
}

/* How many OS threads a launch may use, the caller's among them: SOFTMETAL_KERNEL_THREADS. */
static int
pool_size(void)
{
    uint64_t asked = soft_settings_get(SOFT_KERNEL_THREADS);
    if (asked != 0) {
        return asked < MOST_THREADS ? (int)asked : MOST_THREADS;
    }
    pthread_once(&cpus_once, count_cpus);
    return cpus;
}

static work *
find_work_locked(void)
{
    work *found = first_work;
    while (found != NULL && (!found->is_open || found->helpers == found->most_helpers)) {
        found = found->next;
    }
    return found;
}

static void
help(work *work)
{
    soft_threadgroup *group = soft_threadgroup_take();
    if (group != NULL) {
        work_off(work, group);
        soft_threadgroup_give_back(group);
    }
}

static void *
help_launches(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        work *found = find_work_locked();
        if (found == NULL) {
            pthread_cond_wait(&invited, &lock);
            continue;
        }
        found->helpers += 1;
        pthread_mutex_unlock(&lock);
        help(found);
        pthread_mutex_lock(&lock);
        found->helpers -= 1;
        found->is_open = false; /* nothing is left to begin */
        pthread_cond_broadcast(&left);
    }
    return NULL;
}

/* Not among the workers whom the process waits for at exit: who sleeps here holds nothing. */
static void
start_helpers_locked(int wanted)
{
    while (helper_count < wanted && soft_thread_start(help_launches, NULL)) {
        helper_count += 1;
    }
}

/* With up to pool_size() - 1 others; none may come.  Returns when all who came have left. */
static void
work_together(work *work, soft_threadgroup *group)
{
    work->most_helpers = pool_size() - 1;
    work->is_open = true;
    pthread_mutex_lock(&lock);
    start_helpers_locked(work->most_helpers);
    work->next = first_work;
    first_work = work;
    pthread_cond_broadcast(&invited);
    pthread_mutex_unlock(&lock);
    work_off(work, group);
    pthread_mutex_lock(&lock);
    work->is_open = false;
    struct work **link = &first_work;
    while (*link != work) {
        link = &(*link)->next;
    }
    *link = work->next;
    while (work->helpers > 0) {
        pthread_cond_wait(&left, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- one launch ---- */

/* Run threadgroups, more at a time each time, until it has lasted a while.  False: all is done,
 * or the run is stopped. */
static bool
work_alone(work *work, soft_threadgroup *group, uint64_t begin_ns)
{
    uint64_t first, count, most = 1;
    while ((count = claim(work, most, &first)) != 0) {
        if (!soft_threadgroup_run(group, &work->run, first, count)) {
            return false;
        }
        if (soft_monotonic_ns() - begin_ns > ALONE_NS) {
            return true;
        }
        most = most < MOST_AT_ONCE ? 2 * most : most;
    }
    return false;
}

/* Where threads know nothing of their threadgroup, let several, beside each other along x, be one: its
 * rows are longer.  Together they last no longer than a short launch, if each lasts as in the last one,
 * and each OS thread finds as many as it needs to end when the others do. */
static void
join_groups(work *work, soft_launch *joined, uint64_t group_ns)
{
    const soft_run *run = &work->run;
    const soft_launch *launch = run->launch;
    if (!run->image->is_groupless || run->shuffle.order != SOFT_ORDER_FIRST || group_ns == 0) {
        return;
    }
    uint64_t count =
        SOFT_MOST_THREADS / (launch->group[0] * launch->group[1] * launch->group[2]);
    uint64_t share = run->group_count / (uint64_t)(SHARES * work->threads);
    count = count < share ? count : share;
    count = count < ALONE_NS / group_ns ? count : ALONE_NS / group_ns;
    if (count < 2) {
        return;
    }
    *joined = *launch;
    joined->group[0] *= (soft_u32)count;
    joined->groups[0] = (launch->groups[0] - 1) / (soft_u32)count + 1;
    work->run.group_count = run->group_count / launch->groups[0] * joined->groups[0];
    work->run.launch = joined;
}

/* Others are woken if the kernel's last launch says that it pays, or this one does by lasting.
 * `last_ns`: what a threadgroup of the last one took; 0: there was none. */
static void
run_plain(work *work, soft_threadgroup *group, uint64_t *last_ns)
{
    uint64_t all = work->run.group_count;
    if (all == 1) {
        work->threads = 1;
        work_off(work, group);
        return;
    }
    work->threads = pool_size();
    uint64_t begin_ns = soft_monotonic_ns(),
             group_ns = __atomic_load_n(last_ns, __ATOMIC_RELAXED);
    soft_launch joined;
    join_groups(work, &joined, group_ns);
    bool is_shared = work->threads > 1 && group_ns > 2 * ALONE_NS / all;
    if (work->threads == 1) {
        work_off(work, group);
    }
    else if (is_shared || work_alone(work, group, begin_ns)) {
        work_together(work, group);
        is_shared = true;
    }
    uint64_t lasted_ns = soft_monotonic_ns() - begin_ns;
    group_ns = lasted_ns * (uint64_t)(is_shared ? work->threads : 1) / all;
    __atomic_store_n(last_ns, group_ns != 0 ? group_ns : 1, __ATOMIC_RELAXED);
}

/* On this OS thread alone, one threadgroup after the other. */
static bool
run_checked(work *work, soft_threadgroup *group, const soft_loaded_image *image, char *error,
            size_t error_nbytes)
{
    const char *kernel = work->run.launch->kernel;
    soft_check_launch launch = {
        .kernel = kernel != NULL ? kernel : "kernel",
        .image_path = image->path,
        .image_base = image->base,
        .image_nbytes = image->nbytes,
        .image = work->run.image,
        .launch = work->run.launch,
        .abandon = soft_threadgroup_abandon,
    };
    if (!soft_check_begin(&launch)) {
        snprintf(error, error_nbytes, "The kernel cannot be checked: there is no memory.");
        return false;
    }
    bool is_done = soft_threadgroup_run(group, &work->run, 0, work->run.group_count);
    snprintf(error, error_nbytes, "%s", is_done ? "" : work->run.text);
    return soft_check_end(is_done, error, error_nbytes) && is_done;
}

/* The number of threadgroups; 0 with a text: these extents are not Metal's. */
static uint64_t
count_groups(const soft_launch *launch, char *error, size_t error_nbytes)
{
    uint64_t threads = 1, groups = 1;
    bool is_countable = true;
    for (int axis = 0; axis < 3; axis++) {
        threads *= launch->group[axis];
        is_countable &= !__builtin_mul_overflow(groups, launch->groups[axis], &groups);
    }
    if (!is_countable) {
        snprintf(error, error_nbytes, "The grid has 2^64 threadgroups or more.");
        return 0;
    }
    if (threads == 0 || threads > SOFT_MOST_THREADS) {
        snprintf(error, error_nbytes,
                 "A threadgroup (%u, %u, %u) has %llu threads; it may have 1 to %d.",
                 launch->group[0], launch->group[1], launch->group[2],
                 (unsigned long long)threads, SOFT_MOST_THREADS);
        return 0;
    }
    return groups;
}

bool
soft_image_run(soft_loaded_image *image, const soft_launch *launch, char *error,
               size_t error_nbytes)
{
    error[0] = '\0';
    if (soft_process_is_forked()) {
        snprintf(error, error_nbytes, "Kernels cannot run in a forked child.");
        return false;
    }
    uint64_t group_count = count_groups(launch, error, error_nbytes);
    if (group_count == 0) {
        return error[0] == '\0';
    }
    soft_threadgroup *group = soft_threadgroup_take();
    if (group == NULL) {
        snprintf(error, error_nbytes, "A kernel cannot run: there is no memory.");
        return false;
    }
    const soft_image *facts = image->image;
    const softmetal_recorder *recorder = soft_recorder_current();
    uint64_t begin_ns = recorder != NULL ? soft_monotonic_ns() : 0;
    work work = {.run = {.image = facts, .launch = launch, .group_count = group_count}};
    work.run.code_low = (uintptr_t)image->base;
    work.run.code_high = work.run.code_low + image->nbytes;
    work.run.is_checked = facts->is_checked;
    work.run.is_poisoned = soft_settings_get(SOFT_POISON) != 0;
    soft_shuffle_begin(&work.run.shuffle, group_count);
    if (facts->is_counting) { /* counts are no matter of the seed */
        work.run.shuffle.order = SOFT_ORDER_FIRST;
        work.run.is_poisoned = false;
    }
    work.run.is_straight = facts->regions != NULL ||
                           (!facts->has_syncs && work.run.shuffle.order == SOFT_ORDER_FIRST);
    bool is_done;
    if (facts->is_checked) {
        is_done = run_checked(&work, group, image, error, error_nbytes);
    }
    else {
        bool is_on_top = soft_guard_begin(launch->kernel);
        run_plain(&work, group, &image->group_ns);
        soft_guard_end(is_on_top);
        is_done = work.run.is_stopped == 0;
        snprintf(error, error_nbytes, "%s", is_done ? "" : work.run.text);
    }
    soft_threadgroup_give_back(group);
    if (recorder != NULL) {
        recorder->launch(&(soft_recorded_launch){
            .kernel = image->name,
            .image_path = image->path,
            .image = facts,
            .launch = launch,
            .runs_as = !work.run.is_straight    ? "fibers"
                       : facts->regions != NULL ? "regions"
                                                : "rows",
            .ns = soft_monotonic_ns() - begin_ns,
            .is_done = is_done,
        });
    }
    return is_done;
}
