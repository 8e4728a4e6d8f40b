/* fresh.h: which bytes of a new buffer nobody has written yet.
 *
 * Owns:      a bit for each byte: it may have been written.  Once set it stays.
 * Calls:     nothing.
 * Threads:   any.
 * Invariant: a bit is set where in doubt: a view went out, a kernel was not checked, a launch was
 *            stopped.
 */
#ifndef SOFT_FRESH_H
#define SOFT_FRESH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct soft_fresh soft_fresh;

/* Who writes new bytes. */
typedef enum {
    SOFT_WRITTEN_BY_ANY,
    SOFT_WRITTEN_BY_NEXT_MOSTLY, /* the next launch that may, or else somebody after it */
    SOFT_WRITTEN_BY_NEXT,        /* that launch, and nobody else can */
} soft_writers;

/* `nbytes` from `address` on that nobody has written.  Malloc'ed; NULL: no memory. */
soft_fresh *soft_fresh_new(const char *address, size_t nbytes, soft_writers writers);
void soft_fresh_free(soft_fresh *fresh); /* NULL is allowed, as in all below */

/* Bytes that lie elsewhere are ignored, and count as written. */
void soft_fresh_write(soft_fresh *fresh, const char *address, size_t nbytes);
/* The first byte of these that nobody has written; NULL: all are written. */
const char *soft_fresh_first(const soft_fresh *fresh, const char *address, size_t nbytes);
/* From there on, up to `end`: the first that is written, or `end`. */
const char *soft_fresh_end(const soft_fresh *fresh, const char *address, const char *end);
static inline bool
soft_fresh_has(const soft_fresh *fresh, uintptr_t at)
{
    return soft_fresh_first(fresh, (const char *)at, 1) != NULL;
}

/* Once, by a launch that may write: from then on anybody may. */
soft_writers soft_fresh_take_writers(soft_fresh *fresh);

#endif /* SOFT_FRESH_H */
