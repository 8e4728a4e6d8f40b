/* host.c: see host.h. */
#include "softmetal/host.h"

#include <signal.h>
#include <stdio.h>

int soft_process_forked, soft_process_exiting, soft_process_aborting;

bool
soft_thread_start(void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = pthread_create(&thread, NULL, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_started) {
        pthread_detach(thread);
    }
    return is_started;
}

void
soft_abort(void)
{
    __atomic_store_n(&soft_process_aborting, 1, __ATOMIC_RELAXED);
    abort();
}

void
soft_end_without_memory(const char *what)
{
    fprintf(stderr, "softmetal: there is no memory for %s, so the process ends.\n", what);
    soft_abort();
}
