/* threadgroup_idle.c: threadgroups are made, and kept for the next launch; see threadgroup.h.
 *
 * Owns:    the list of threadgroups that nobody uses, behind `idle_lock`.
 * Calls:   mmap.
 * Threads: any.
 */
#include "softmetal/kernels/threadgroup.h"

#include <pthread.h>
#include <sys/mman.h>

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static soft_threadgroup *idle;

soft_threadgroup *
soft_threadgroup_take(void)
{
    pthread_mutex_lock(&idle_lock);
    soft_threadgroup *group = idle;
    if (group != NULL) {
        idle = group->next_idle;
    }
    pthread_mutex_unlock(&idle_lock);
    if (group == NULL) {
        group = mmap(NULL, sizeof *group, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
    }
    return group == MAP_FAILED ? NULL : group;
}

void
soft_threadgroup_give_back(soft_threadgroup *group)
{
    pthread_mutex_lock(&idle_lock);
    group->next_idle = idle;
    idle = group;
    pthread_mutex_unlock(&idle_lock);
}
