/* runtime_lock.h: the lock of the Objective-C runtime.
 *
 * Owns:    nothing; libobjc has it.
 * Threads: any.  Recursive.  Take it before every lock of the software Metal: a fork() holds
 *          this one while it waits for those, so a thread that held one of those and asked the
 *          runtime about a class would wait for ever.
 */
#ifndef SOFTMETAL_RUNTIME_LOCK_H
#define SOFTMETAL_RUNTIME_LOCK_H

#include <objc/thr.h>

/* Exported by libobjc, declared in none of its headers. */
extern objc_mutex_t __objc_runtime_mutex;

static inline void
soft_runtime_lock(void)
{
    objc_mutex_lock(__objc_runtime_mutex);
}

static inline void
soft_runtime_unlock(void)
{
    objc_mutex_unlock(__objc_runtime_mutex);
}

#endif /* SOFTMETAL_RUNTIME_LOCK_H */
