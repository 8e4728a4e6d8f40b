/* object_list.c: the list of living objects.
 *
 * Owns:    the list, and the dead objects that are kept for reports; behind `lock`.
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static soft_object *oldest, *newest;
static soft_object *oldest_dead, *newest_dead;
static size_t dead_count;

void
soft_object_list_lock(void)
{
    pthread_mutex_lock(&lock);
}

void
soft_object_list_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void
soft_object_list_add(soft_object *object)
{
    soft_object_list_lock();
    object->next = NULL;
    object->previous = newest;
    if (newest != NULL) {
        newest->next = object;
    }
    else {
        oldest = object;
    }
    newest = object;
    soft_object_list_unlock();
}

void
soft_object_list_remove(soft_object *object)
{
    soft_object_list_lock();
    if (object->previous != NULL) {
        object->previous->next = object->next;
    }
    else {
        oldest = object->next;
    }
    if (object->next != NULL) {
        object->next->previous = object->previous;
    }
    else {
        newest = object->previous;
    }
    soft_object_list_unlock();
}

void
soft_object_free(soft_object *object)
{
    soft_call_site_free(object->site);
    soft_call_site_free(object->end);
    free(object);
}

void
soft_object_list_bury(soft_object *object)
{
    soft_object *forgotten = NULL;
    object->next = NULL;
    soft_object_list_lock();
    if (newest_dead != NULL) {
        newest_dead->next = object;
    }
    else {
        oldest_dead = object;
    }
    newest_dead = object;
    dead_count += 1;
    if (dead_count > MOST_DEAD) {
        forgotten = oldest_dead;
        oldest_dead = forgotten->next;
        dead_count -= 1;
    }
    soft_object_list_unlock();
    if (forgotten != NULL) {
        soft_object_free(forgotten);
    }
}

_Bool
soft_object_release_unless_last(const void *object)
{
    long *count = &soft_object_of(object)->retain_count;
    long seen = __atomic_load_n(count, __ATOMIC_RELAXED);
    while (seen > 1) {
        if (__atomic_compare_exchange_n(count, &seen, seen - 1, true, __ATOMIC_ACQ_REL,
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
    soft_object_list_lock();
}

static void
unlock(void)
{
    soft_object_list_unlock();
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
    for (soft_object *object = oldest; object != NULL; object = object->next) {
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
    for (soft_object *object = oldest; object != NULL; object = object->next) {
        count += matches(object, name, protocol);
    }
    unlock();
    return count;
}
