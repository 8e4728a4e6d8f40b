/* object_list.c: the list of living objects.
 *
 * Owns:    the list, and the dead objects that are kept for reports; behind soft_object_list_mutex.
 * Calls:   the Objective-C runtime, to ask for the class and the protocols of an object.
 * Threads: any.  A visitor runs under the lock and must not make or release objects.
 */
#include "softmetal/apple/object_list.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <objc/runtime.h>

#include "softmetal/softmetal.h"

#define SITE_SIZE 512
#define MOST_DEAD 4096

pthread_mutex_t soft_object_list_mutex = PTHREAD_MUTEX_INITIALIZER;
static TAILQ_HEAD(, soft_object) living = TAILQ_HEAD_INITIALIZER(living);
static TAILQ_HEAD(, soft_object) dead = TAILQ_HEAD_INITIALIZER(dead);
static size_t dead_count;

void
soft_object_list_add(soft_object *object)
{
    pthread_mutex_lock(&soft_object_list_mutex);
    TAILQ_INSERT_TAIL(&living, object, links);
    pthread_mutex_unlock(&soft_object_list_mutex);
}

void
soft_object_list_remove(soft_object *object)
{
    pthread_mutex_lock(&soft_object_list_mutex);
    TAILQ_REMOVE(&living, object, links);
    pthread_mutex_unlock(&soft_object_list_mutex);
}

void
soft_object_free(soft_object *object)
{
    free(object->site);
    free(object->end);
    free(object);
}

void
soft_object_list_bury(soft_object *object)
{
    soft_object *forgotten = NULL;
    pthread_mutex_lock(&soft_object_list_mutex);
    TAILQ_INSERT_TAIL(&dead, object, links);
    dead_count += 1;
    if (dead_count > MOST_DEAD) {
        forgotten = TAILQ_FIRST(&dead);
        TAILQ_REMOVE(&dead, forgotten, links);
        dead_count -= 1;
    }
    pthread_mutex_unlock(&soft_object_list_mutex);
    if (forgotten != NULL) {
        soft_object_free(forgotten);
    }
}

_Bool
soft_object_count_if_above(const void *object, long least, long change)
{
    long *count = &soft_object_of(object)->retain_count;
    long seen = __atomic_load_n(count, __ATOMIC_RELAXED);
    while (seen > least) {
        if (__atomic_compare_exchange_n(count, &seen, seen + change, true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            return true;
        }
    }
    return false;
}

/* Both locks: a search of the list asks the runtime about the class of each object. */
static void
lock_to_ask(void)
{
    soft_runtime_lock();
    pthread_mutex_lock(&soft_object_list_mutex);
}

static void
unlock(void)
{
    pthread_mutex_unlock(&soft_object_list_mutex);
    soft_runtime_unlock();
}

static bool
matches(soft_object *object, const char *name, Protocol *protocol)
{
    if (name == NULL) {
        return true;
    }
    Class class = object_getClass((id)soft_object_self(object));
    for (; class != Nil; class = class_getSuperclass(class)) {
        if (strcmp(class_getName(class), name) == 0 ||
            (protocol != NULL && class_conformsToProtocol(class, protocol))) {
            return true;
        }
    }
    return false;
}

void
softmetal_visit_live_objects(const char *name,
                             void (*visit)(const char *class_name, const void *object,
                                           long retain_count, const char *site, void *context),
                             void *context)
{
    char site[SITE_SIZE];
    Protocol *protocol = name != NULL ? objc_getProtocol(name) : NULL;
    lock_to_ask();
    soft_object *object;
    TAILQ_FOREACH(object, &living, links)
    {
        if (matches(object, name, protocol)) {
            visit(object_getClassName((id)soft_object_self(object)), soft_object_self(object),
                  __atomic_load_n(&object->retain_count, __ATOMIC_RELAXED),
                  soft_call_site_describe(object->site, site, sizeof site), context);
        }
    }
    unlock();
}

size_t
softmetal_live_objects(const char *name)
{
    size_t count = 0;
    Protocol *protocol = name != NULL ? objc_getProtocol(name) : NULL;
    lock_to_ask();
    soft_object *object;
    TAILQ_FOREACH(object, &living, links)
    {
        count += matches(object, name, protocol);
    }
    unlock();
    return count;
}
