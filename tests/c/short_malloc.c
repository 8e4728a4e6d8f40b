/* short_malloc.c: preloaded, lets one allocation of given code fail.
 *
 * short_malloc_arm(n): the n-th call (from 1) by the code that short_malloc_choose named fails, of
 * those that give memory or a thread (FAILS below); n = 0: none does.
 * short_malloc_left(): how many more there would have to be; 0: it has failed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "chosen_code.h"

extern void *__libc_malloc(size_t nbytes);
extern void *__libc_calloc(size_t count, size_t nbytes);
extern void *__libc_realloc(void *memory, size_t nbytes);

static long countdown;

void
short_malloc_choose(const uintptr_t *addresses, size_t count)
{
    chosen_code_set(addresses, count);
}

void
short_malloc_arm(long n)
{
    __atomic_store_n(&countdown, n, __ATOMIC_SEQ_CST);
}

long
short_malloc_left(void)
{
    long left = __atomic_load_n(&countdown, __ATOMIC_SEQ_CST);
    return left < 0 ? 0 : left;
}

static int
must_fail(void *caller)
{
    return __atomic_load_n(&countdown, __ATOMIC_RELAXED) > 0 && chosen_code_has(caller) &&
           __atomic_sub_fetch(&countdown, 1, __ATOMIC_SEQ_CST) == 0;
}

#define FAILS must_fail(__builtin_return_address(0))

void *
malloc(size_t nbytes)
{
    return FAILS ? NULL : __libc_malloc(nbytes);
}

void *
calloc(size_t count, size_t nbytes)
{
    return FAILS ? NULL : __libc_calloc(count, nbytes);
}

void *
realloc(void *memory, size_t nbytes)
{
    return FAILS ? NULL : __libc_realloc(memory, nbytes);
}

char *
strdup(const char *text)
{
    size_t nbytes = strlen(text) + 1;
    char *copy = FAILS ? NULL : __libc_malloc(nbytes);
    return copy == NULL ? NULL : memcpy(copy, text, nbytes);
}

/* What the next library gives under the name: a variable of this type, found once. */
#define NEXT(variable, name) \
    static __typeof__(&(name)) variable; \
    if (variable == NULL) { \
        variable = (__typeof__(variable))dlsym(RTLD_NEXT, #name); \
    }

void *
aligned_alloc(size_t alignment, size_t nbytes)
{
    NEXT(next, aligned_alloc)
    return FAILS ? NULL : next(alignment, nbytes);
}

int
posix_memalign(void **memory, size_t alignment, size_t nbytes)
{
    NEXT(next, posix_memalign)
    return FAILS ? ENOMEM : next(memory, alignment, nbytes);
}

void *
mmap(void *address, size_t nbytes, int protection, int flags, int file, off_t offset)
{
    NEXT(next, mmap)
    return FAILS ? MAP_FAILED : next(address, nbytes, protection, flags, file, offset);
}

int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
               void *argument)
{
    NEXT(next, pthread_create)
    return FAILS ? EAGAIN : next(thread, attributes, run, argument);
}
