/* thread_pool.c: see thread_pool.h.
 *
 * Owns:    the list of jobs, behind `lock`.
 * Calls:   settings.h.
 * Threads: any; not in a forked child, where no helper is and `lock` may never be free.
 */
#define _GNU_SOURCE /* sched_getaffinity */

#include "softmetal/kernels/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>

#include "softmetal/settings.h"

#define MOST_THREADS 64
#define MOST_BY_DEFAULT 16 /* each may come to hold a thousand stacks */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t invited = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;
static soft_pool_job *first_job;
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

int
soft_thread_pool_size(void)
{
    uint64_t asked = soft_settings_get(SOFT_KERNEL_THREADS);
    if (asked != 0) {
        return asked < MOST_THREADS ? (int)asked : MOST_THREADS;
    }
    pthread_once(&cpus_once, count_cpus);
    return cpus;
}

static soft_pool_job *
find_job_locked(void)
{
    soft_pool_job *job = first_job;
    while (job != NULL && (!job->is_open || job->helpers == job->most_helpers)) {
        job = job->next;
    }
    return job;
}

static void *
help(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        soft_pool_job *job = find_job_locked();
        if (job == NULL) {
            pthread_cond_wait(&invited, &lock);
            continue;
        }
        job->helpers += 1;
        pthread_mutex_unlock(&lock);
        job->work(job->context);
        pthread_mutex_lock(&lock);
        job->helpers -= 1;
        job->is_open = false; /* nothing is left to begin */
        pthread_cond_broadcast(&left);
    }
    return NULL;
}

/* Not among the workers whom the process waits for at exit: who sleeps here holds nothing. */
static void
start_helpers_locked(int wanted)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    while (helper_count < wanted && pthread_create(&thread, &attributes, help, NULL) == 0) {
        helper_count += 1;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

void
soft_thread_pool_invite(soft_pool_job *job)
{
    job->most_helpers = soft_thread_pool_size() - 1;
    job->helpers = 0;
    job->is_open = true;
    pthread_mutex_lock(&lock);
    start_helpers_locked(job->most_helpers);
    job->next = first_job;
    first_job = job;
    pthread_cond_broadcast(&invited);
    pthread_mutex_unlock(&lock);
}

void
soft_thread_pool_await(soft_pool_job *job)
{
    pthread_mutex_lock(&lock);
    job->is_open = false;
    soft_pool_job **link = &first_job;
    while (*link != job) {
        link = &(*link)->next;
    }
    *link = job->next;
    while (job->helpers > 0) {
        pthread_cond_wait(&left, &lock);
    }
    pthread_mutex_unlock(&lock);
}
