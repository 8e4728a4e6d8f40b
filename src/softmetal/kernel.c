/* kernel.c: see kernel.h.
 *
 * Owns:    the table, which only grows.
 * Calls:   storage.h.
 * Threads: see kernel.h.
 */
#include "softmetal/kernel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KERNELS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static soft_kernel table[MOST_KERNELS];
static int table_count;

void
soft_kernel_lock(void)
{
    pthread_mutex_lock(&lock);
}

void
soft_kernel_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The place of a name in the table, or `table_count`. */
static int
place_of_locked(const char *name)
{
    int place = 0;
    while (place < table_count && strcmp(table[place].name, name) != 0) {
        place += 1;
    }
    return place;
}

int
softmetal_register_kernel(const char *name, softmetal_kernel *run, unsigned written)
{
    soft_kernel_lock();
    int place = place_of_locked(name);
    if (place < MOST_KERNELS) {
        table[place] = (soft_kernel){name, run, written};
        table_count = place == table_count ? place + 1 : table_count;
    }
    soft_kernel_unlock();
    return place < MOST_KERNELS ? 0 : -1;
}

bool
soft_kernel_find(const char *name, soft_kernel *out)
{
    soft_kernel_lock();
    int place = place_of_locked(name);
    bool found = place < table_count;
    if (found) {
        *out = table[place];
    }
    soft_kernel_unlock();
    return found;
}

bool
soft_argument_set_bytes(soft_argument *argument, const void *bytes, size_t nbytes)
{
    /* With the size in front, so that a dispatch can be copied. */
    size_t *block = malloc(2 * sizeof(size_t) + nbytes);
    if (block == NULL) {
        return false;
    }
    free(argument->bytes);
    block[0] = nbytes;
    memcpy(block + 2, bytes, nbytes);
    *argument = (soft_argument){.bytes = block};
    return true;
}

soft_dispatch *
soft_dispatch_copy(const soft_dispatch *dispatch)
{
    soft_dispatch *copy = malloc(sizeof *copy);
    if (copy == NULL) {
        return NULL;
    }
    *copy = *dispatch;
    for (int index = 0; index < SOFT_MOST_ARGUMENTS; index++) {
        copy->arguments[index].bytes = NULL;
    }
    for (int index = 0; index < SOFT_MOST_ARGUMENTS; index++) {
        const size_t *block = dispatch->arguments[index].bytes;
        if (block != NULL &&
            !soft_argument_set_bytes(&copy->arguments[index], block + 2, block[0])) {
            soft_dispatch_free(copy);
            return NULL;
        }
    }
    return copy;
}

void
soft_dispatch_clear(soft_dispatch *dispatch)
{
    for (int index = 0; index < SOFT_MOST_ARGUMENTS; index++) {
        free(dispatch->arguments[index].bytes);
        dispatch->arguments[index] = (soft_argument){0};
    }
}

void
soft_dispatch_free(soft_dispatch *dispatch)
{
    if (dispatch != NULL) {
        soft_dispatch_clear(dispatch);
        free(dispatch);
    }
}

void
soft_dispatch_run(const soft_dispatch *dispatch)
{
    void *addresses[SOFT_MOST_ARGUMENTS];
    for (int index = 0; index < SOFT_MOST_ARGUMENTS; index++) {
        const soft_argument *argument = &dispatch->arguments[index];
        addresses[index] = NULL;
        if (argument->storage != NULL) {
            addresses[index] = argument->storage->gpu + argument->offset;
        }
        else if (argument->bytes != NULL) {
            addresses[index] = (size_t *)argument->bytes + 2;
        }
    }
    if (dispatch->kernel.run != NULL) {
        dispatch->kernel.run(addresses, dispatch->grid);
    }
}
