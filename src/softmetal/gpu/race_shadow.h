/* race_shadow.h: the last uses of each byte of one block of memory.
 *
 * Owns:    the records of a block.
 * Calls:   nothing: it knows ranges of bytes, no buffers.
 * Threads: behind the lock of races.c.
 */
#ifndef SOFT_RACE_SHADOW_H
#define SOFT_RACE_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/call_site.h"

typedef struct soft_race_shadow soft_race_shadow;

/* One use that later ones are compared with. */
typedef struct soft_race_record {
    size_t start, end; /* bytes */
    int component;     /* of clocks: who used them */
    uint64_t number;   /* of the pass, or of the CPU's time */
    uint64_t queue;    /* its name in reports; 0: the CPU */
    bool is_written, is_tracked;
    const soft_call_site *site; /* borrowed for ever */
} soft_race_record;

/* Does the use of `earlier` come before the one that `context` is about? */
typedef bool soft_race_comes_before(const void *context, const soft_race_record *earlier);

/* Compare a use with those before it, then remember it.  Makes `*place` if it is NULL; with no
 * memory the use is forgotten.  True: it is a race, and `*earlier` gets the first use that it
 * races with. */
bool soft_race_shadow_use(soft_race_shadow **place, const soft_race_record *record,
                          soft_race_comes_before *comes_before, const void *context,
                          soft_race_record *earlier);
void soft_race_shadow_free(soft_race_shadow *shadow); /* NULL is allowed, as in all below */

/* Does the last record say all that this one does, with nothing left to compare? */
bool soft_race_shadow_has_last(const soft_race_shadow *shadow, const soft_race_record *record);
/* Are there uses that it does not know any more? */
bool soft_race_shadow_has_forgotten(const soft_race_shadow *shadow);
/* The passes of one queue that a read, or a write, of this memory conflicts with, each once, latest
 * first.  At most `capacity`; returns how many. */
size_t soft_race_shadow_list(const soft_race_shadow *shadow, int component, bool is_written,
                             uint64_t *numbers, size_t capacity);

#endif /* SOFT_RACE_SHADOW_H */
