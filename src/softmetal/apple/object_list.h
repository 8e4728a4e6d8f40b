/* object_list.h: what stands before every object in memory, and the list of all of them.
 *
 * Owns:    the list, behind one lock, which fork holds so that a child finds it whole.
 * Threads: any.
 */
#ifndef SOFT_OBJECT_LIST_H
#define SOFT_OBJECT_LIST_H

#include <objc/objc.h>
#include <objc/thr.h>
#include <pthread.h>
#include <sys/queue.h>

#include "softmetal/call_site.h"

typedef struct soft_object {
    TAILQ_ENTRY(soft_object) links;
    long retain_count;
    soft_call_site *site; /* owned; where the object was made, or NULL */
    soft_call_site *end;  /* owned; where a dead one was freed */
    Class former;         /* the class of a dead one */
} soft_object;

void soft_object_list_add(soft_object *object);
void soft_object_list_remove(soft_object *object);
extern pthread_mutex_t soft_object_list_mutex; /* fork holds it */

static inline soft_object *
soft_object_of(const void *object)
{
    return (soft_object *)object - 1;
}

static inline void *
soft_object_self(soft_object *object)
{
    return object + 1;
}

/* Keep the memory of a dead object for a while, so that a message to it can be reported; the
 * oldest dead one is freed in its place. */
void soft_object_list_bury(soft_object *object);
/* Free the memory of an object that is in no list. */
void soft_object_free(soft_object *object);

/* Add `change` to the references if there are more than `least`; true if there were. */
_Bool soft_object_count_if_above(const void *object, long least, long change);

/* ---- the lock of the Objective-C runtime ---- */

/* Exported by libobjc, declared in none of its headers.  Recursive.  Take it before every lock of
 * the software Metal: a fork() holds this one while it waits for those, so a thread that held one
 * of those and asked the runtime about a class would wait for ever. */
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

#endif /* SOFT_OBJECT_LIST_H */
