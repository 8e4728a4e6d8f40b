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

/* `nbytes` from `address` on that nobody has written.  `is_output`: the first launch that may write there
 * is to write all of them.  Malloc'ed; NULL: no memory. */
soft_fresh *soft_fresh_new(const char *address, size_t nbytes, bool is_output);
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

/* True, once: the launch that asks is to write all. */
bool soft_fresh_take_output(soft_fresh *fresh);

#endif /* SOFT_FRESH_H */
