/* fresh.c: see fresh.h. */
#include "softmetal/checker/fresh.h"

#include <stdlib.h>

#define WORD 64 /* bits */

struct soft_fresh {
    const char *address;
    size_t nbytes;
    size_t left; /* atomic: bits that are not set */
    int writers; /* atomic: soft_writers */
    uint64_t written[];
};

soft_fresh *
soft_fresh_new(const char *address, size_t nbytes, soft_writers writers)
{
    soft_fresh *fresh = calloc(1, sizeof *fresh + (nbytes / WORD + 1) * sizeof(uint64_t));
    if (fresh != NULL) {
        fresh->address = address;
        fresh->nbytes = fresh->left = nbytes;
        fresh->writers = writers;
    }
    return fresh;
}

void
soft_fresh_free(soft_fresh *fresh)
{
    free(fresh);
}

/* The part of the bytes that is ours: from `*first` up to the result. */
static size_t
clip(const soft_fresh *fresh, const char *address, size_t nbytes, size_t *first)
{
    uintptr_t base = (uintptr_t)fresh->address, low = (uintptr_t)address, high = low + nbytes;
    *first = low < base ? 0 : low - base;
    size_t end = high < base ? 0 : high - base;
    return end < fresh->nbytes ? end : fresh->nbytes;
}

/* The bits of word `at / WORD` from bit `at` on, up to bit `end`. */
static uint64_t
bits_of(size_t at, size_t end)
{
    size_t low = at % WORD, count = end - at;
    uint64_t bits = count >= WORD - low ? ~(uint64_t)0 : ((uint64_t)1 << (low + count)) - 1;
    return bits & ~(uint64_t)0 << low;
}

void
soft_fresh_write(soft_fresh *fresh, const char *address, size_t nbytes)
{
    if (fresh == NULL || __atomic_load_n(&fresh->left, __ATOMIC_RELAXED) == 0) {
        return;
    }
    size_t at, end = clip(fresh, address, nbytes, &at);
    for (; at < end; at = (at / WORD + 1) * WORD) {
        uint64_t bits = bits_of(at, end);
        uint64_t old = __atomic_fetch_or(&fresh->written[at / WORD], bits, __ATOMIC_RELAXED);
        (void)__atomic_fetch_sub(&fresh->left, (size_t)__builtin_popcountll(bits & ~old),
                                 __ATOMIC_RELAXED);
    }
}

/* Among [at, end), the first bit that is set, or not set, as `wanted` says; `end`: none is. */
static size_t
find(const soft_fresh *fresh, size_t at, size_t end, bool wanted)
{
    for (; at < end; at = (at / WORD + 1) * WORD) {
        uint64_t written = __atomic_load_n(&fresh->written[at / WORD], __ATOMIC_RELAXED);
        uint64_t bits = (wanted ? written : ~written) & bits_of(at, end);
        if (bits != 0) {
            return at / WORD * WORD + (size_t)__builtin_ctzll(bits);
        }
    }
    return end;
}

const char *
soft_fresh_first(const soft_fresh *fresh, const char *address, size_t nbytes)
{
    if (fresh == NULL || __atomic_load_n(&fresh->left, __ATOMIC_RELAXED) == 0) {
        return NULL;
    }
    size_t at, end = clip(fresh, address, nbytes, &at);
    at = find(fresh, at, end, false);
    return at < end ? fresh->address + at : NULL;
}

const char *
soft_fresh_end(const soft_fresh *fresh, const char *address, const char *end)
{
    size_t at, last = clip(fresh, address, (size_t)(end - address), &at);
    return fresh->address + find(fresh, at, last, true);
}

soft_writers
soft_fresh_take_writers(soft_fresh *fresh)
{
    return (soft_writers)__atomic_exchange_n(&fresh->writers, SOFT_WRITTEN_BY_ANY,
                                             __ATOMIC_RELAXED);
}
