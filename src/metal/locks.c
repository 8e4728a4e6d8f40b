/* locks.c: see locks.h. */
#include "metal/locks.h"

pthread_mutex_t locks[LOCK_COUNT] = {
    [0 ... LOCK_COUNT - 1] = PTHREAD_MUTEX_INITIALIZER,
};

static void
take_all(void)
{
    for (int name = 0; name < LOCK_COUNT; name++) {
        lock_take((lock_name)name);
    }
}

static void
drop_all(void)
{
    for (int name = LOCK_COUNT; name-- > 0;) {
        lock_drop((lock_name)name);
    }
}

/* When the module is loaded: before any thread can hold one, and after the software Metal,
 * whose locks come last in the order.  SPEC POSIX pthread_atfork: prepare handlers run last
 * in, first out. */
__attribute__((constructor)) static void
watch_fork(void)
{
    (void)pthread_atfork(take_all, drop_all, drop_all);
}
