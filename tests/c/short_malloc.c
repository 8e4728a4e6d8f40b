/* short_malloc.c: preloaded, lets one allocation of given code fail.
 *
 * short_malloc_arm(n): the n-th malloc, calloc or realloc (from 1) called by the code that
 * short_malloc_choose named gives NULL; n = 0: none does.
 * short_malloc_left(): how many more there would have to be; 0: it has failed.
 */
#define _GNU_SOURCE
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

void *
malloc(size_t nbytes)
{
    return must_fail(__builtin_return_address(0)) ? NULL : __libc_malloc(nbytes);
}

void *
calloc(size_t count, size_t nbytes)
{
    return must_fail(__builtin_return_address(0)) ? NULL : __libc_calloc(count, nbytes);
}

void *
realloc(void *memory, size_t nbytes)
{
    return must_fail(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, nbytes);
}
