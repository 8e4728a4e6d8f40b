/* chosen_code.h: the code whose calls a preloaded library counts or fails.
 *
 * Owns:    nothing; one choice for each file that includes it.
 * Threads: chosen once, before any other thread calls.
 */
#ifndef CHOSEN_CODE_H
#define CHOSEN_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static const uintptr_t *chosen_bounds; /* begin, end, begin, end ... */
static size_t chosen_count;

/* `addresses` lives as long as the process. */
static inline void
chosen_code_set(const uintptr_t *addresses, size_t count)
{
    chosen_bounds = addresses;
    chosen_count = count;
}

static inline bool
chosen_code_has(const void *caller)
{
    for (size_t i = 0; i < chosen_count; i += 2) {
        if ((uintptr_t)caller >= chosen_bounds[i] && (uintptr_t)caller < chosen_bounds[i + 1]) {
            return true;
        }
    }
    return false;
}

#endif /* CHOSEN_CODE_H */
