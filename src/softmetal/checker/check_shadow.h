/* check_shadow.h: what is remembered of each piece of a kernel's memory: who wrote it and who read
 * it last.
 *
 *     memory   | 0 1 2 3 | 4 5 6 7 | ...        a grain: 1 to 16 bytes, as the kernel's elements
 *     cells    |  cell   |  cell   | ...        the last write, and two reads since
 *     blocks   |  one for 16 grains    | ...
 *
 * Threads next to each other mostly touch grains next to each other.  As long as all 16 grains of a
 * block were touched alike, each by the thread after the one of the grain before it, the block's cell
 * is the first grain's and stands for all; else the block is split, and its cells count.
 *
 * An access that covers only a part of a grain makes all grains of that shadow smaller, so a cell
 * is exact: each mark in it is of all its bytes.
 *
 * Owns:    the cells and blocks: pages that exist once they are touched.
 * Calls:   mmap.
 * Threads: one at a time.
 */
#ifndef SOFT_CHECK_SHADOW_H
#define SOFT_CHECK_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct soft_mark {
    uint32_t time; /* check_order.h; 0: none */
    uint32_t who;  /* soft_mark_who */
} soft_mark;

typedef struct soft_cell {
    soft_mark write;
    soft_mark reads[2]; /* the last, and one by another thread */
} soft_cell;

typedef struct soft_shadow {
    uintptr_t base; /* a multiple of 16 */
    size_t nbytes;
    unsigned shift;     /* a grain is 1 << shift bytes */
    bool is_fresh_read; /* bytes of it that nobody had written before the launch were read */
    soft_cell *cells;   /* NULL: nobody writes here, or there was no memory for them */
    soft_cell *blocks;  /* of the same pages */
    void *mapped;       /* the pages; owned */
    size_t mapped_nbytes;
} soft_shadow;

#define SOFT_BLOCK 16         /* grains */
#define SOFT_SPLIT UINT32_MAX /* time of the write of a block whose cells count */

/* thread: 10 bits; is it atomic: 1 bit; where in the image: 21 bits, or 0. */
#define SOFT_MARK_ATOMIC (1u << 10)
static inline uint32_t
soft_mark_who(uint32_t thread, bool is_atomic, size_t offset)
{
    return thread | (is_atomic ? SOFT_MARK_ATOMIC : 0) |
           (offset < (1u << 21) ? (uint32_t)offset << 11 : 0);
}
static inline uint32_t
soft_mark_thread(soft_mark mark)
{
    return mark.who & (SOFT_MARK_ATOMIC - 1);
}
static inline uint32_t
soft_mark_offset(soft_mark mark)
{
    return mark.who >> 11;
}

/* Watch nbytes at `address`, in grains of `alignment` bytes or less.  The cells are empty. */
void soft_shadow_open(soft_shadow *shadow, uintptr_t address, size_t nbytes,
                      unsigned alignment);
void soft_shadow_close(soft_shadow *shadow);
/* Make the grains fit an access: afterwards `at` and `at` + nbytes are limits of grains. */
void soft_shadow_fit(soft_shadow *shadow, uintptr_t at, size_t nbytes);

/* Let the cells of a block count. */
void soft_shadow_split(soft_shadow *shadow, size_t block);
/* The cell of one grain, which is looked at or changed alone. */
static inline soft_cell *
soft_shadow_cell(soft_shadow *shadow, size_t grain)
{
    if (shadow->blocks[grain / SOFT_BLOCK].write.time != SOFT_SPLIT) {
        soft_shadow_split(shadow, grain / SOFT_BLOCK);
    }
    return &shadow->cells[grain];
}

#endif /* SOFT_CHECK_SHADOW_H */
