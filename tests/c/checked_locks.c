/* checked_locks.c: preloaded, stops the process where a thread unlocks a mutex that it does not
 * hold.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_HELD 64

static __thread pthread_mutex_t *held[MOST_HELD];
static __thread int held_count;

typedef int lock_call(pthread_mutex_t *);

static lock_call *
find(lock_call **known, const char *name)
{
    if (*known == NULL) {
        *known = (lock_call *)dlsym(RTLD_NEXT, name);
    }
    return *known;
}

static void
stop(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
    abort();
}

int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static lock_call *known;
    int result = find(&known, "pthread_mutex_lock")(mutex);
    if (result == 0) {
        if (held_count == MOST_HELD) {
            stop("checked_locks: more mutexes are held than there is room for\n");
        }
        held[held_count++] = mutex;
    }
    return result;
}

int
pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    static lock_call *known;
    int result = find(&known, "pthread_mutex_trylock")(mutex);
    if (result == 0 && held_count < MOST_HELD) {
        held[held_count++] = mutex;
    }
    return result;
}

int
pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static lock_call *known;
    int i = held_count;
    while (i > 0 && held[i - 1] != mutex) {
        i--;
    }
    if (i == 0) {
        stop("checked_locks: a mutex is unlocked by a thread that does not hold it\n");
    }
    held_count--;
    memmove(&held[i - 1], &held[i], (size_t)(held_count - (i - 1)) * sizeof held[0]);
    return find(&known, "pthread_mutex_unlock")(mutex);
}
