/* thread_pool.h: OS threads that help a launch, and sleep otherwise.
 *
 * Owns:    the threads, started when first needed and kept; they hold nothing while they sleep.
 * Calls:   settings.h.
 * Threads: any; a job is its caller's, from invite to await.
 */
#ifndef SOFT_THREAD_POOL_H
#define SOFT_THREAD_POOL_H

#include <stdbool.h>

typedef struct soft_pool_job {
    void (*work)(void *context); /* returns when nothing is left to begin */
    void *context;
    int most_helpers, helpers; /* the pool's: how many may come, how many work */
    bool is_open;              /* ... and whether one more may come */
    struct soft_pool_job *next;
} soft_pool_job;

/* How many OS threads a launch may use, the caller's among them: SOFTMETAL_KERNEL_THREADS. */
int soft_thread_pool_size(void);

/* Let up to soft_thread_pool_size() - 1 others call job->work.  None may come. */
void soft_thread_pool_invite(soft_pool_job *job);
/* Invite nobody any more, and return when all who came have left. */
void soft_thread_pool_await(soft_pool_job *job);

#endif /* SOFT_THREAD_POOL_H */
