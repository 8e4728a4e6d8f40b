/* locks.h: the locks that a forked child still needs, and the order in which they nest.
 *
 * Owns:    the mutexes; what each guards is said where it is used.
 * Calls:   nothing.
 * Threads: any, without the GIL.
 * Order:   that of the list: a thread that holds one takes only later ones, and Metal's own
 *          last.  fork() takes them in this order and drops them on both sides, so a child
 *          finds them free.  Locks of what a child never does (kernels, torch's queue) are not
 *          here.
 */
#ifndef METAL_DLPACK_LOCKS_H
#define METAL_DLPACK_LOCKS_H

#include <pthread.h>

typedef enum lock_name {
    LOCK_TRACKING,
    LOCK_STREAMS,
    LOCK_LOOKUP,
    LOCK_POOL,
    LOCK_TIMELINE,
    LOCK_COUNT,
} lock_name;

extern pthread_mutex_t locks[LOCK_COUNT];

/* A mutex that was initialised statically and is used without recursion: neither call can
 * fail. */
static inline void
lock_take(lock_name name)
{
    (void)pthread_mutex_lock(&locks[name]);
}

static inline void
lock_drop(lock_name name)
{
    (void)pthread_mutex_unlock(&locks[name]);
}

#endif
