/* runtime_lock.h: the lock of the Objective-C runtime.
 *
 * Threads: any.  Recursive.  It comes before every lock of the software Metal: whoever holds
 *          one of those and asks the runtime about a class would else wait for a fork(), which
 *          holds this.
 */
#ifndef SOFTMETAL_RUNTIME_LOCK_H
#define SOFTMETAL_RUNTIME_LOCK_H

#include <objc/thr.h>

extern objc_mutex_t
    __objc_runtime_mutex; /* exported by libobjc, declared in none of its headers */

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
