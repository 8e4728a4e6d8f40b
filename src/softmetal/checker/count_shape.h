/* count_shape.h: what lanes touch together: how many cache lines, which banks, which bytes.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: any; these are functions of their arguments.
 * Model:   a line has 128 bytes and begins at a multiple of them.  Threadgroup memory has 32 banks
 *          of 4 bytes: word w is in bank w % 32.  Different words of one bank come one after the
 *          other; one word goes to all lanes that want it at once.
 */
#ifndef SOFT_COUNT_SHAPE_H
#define SOFT_COUNT_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/fiber.h"

#define SOFT_LINE_NBYTES_SHIFT 7
#define SOFT_BANKS 32
#define SOFT_MOST_TOGETHER 32 /* lanes of a SIMD-group */
#define SOFT_WORD_NBYTES_SHIFT 2

/* `count` accesses of `nbytes` each: at `each`, in ascending order, or NULL: at `first` + `step` * k. */
typedef struct soft_shape {
    uint64_t first, step;
    const uint64_t *each; /* borrowed */
    size_t count, nbytes;
} soft_shape;

/* In ascending order. */
SOFT_ON_FIBER static inline soft_shape
soft_shape_series(uint64_t first, uint64_t step, size_t count, size_t nbytes)
{
    if ((int64_t)step < 0) {
        first += step * (count - 1);
        step = -step;
    }
    return (soft_shape){first, step, NULL, step == 0 ? 1 : count, nbytes};
}
/* Sorts `each`, which has room for SOFT_MOST_TOGETHER; equal ones become one. */
soft_shape soft_shape_list(uint64_t each[SOFT_MOST_TOGETHER], size_t count, size_t nbytes);

/* Is no byte between them left out?  Then they are those from `*low` on, before `*high`. */
SOFT_ON_FIBER static inline bool
soft_shape_is_run(const soft_shape *shape, uint64_t *low, uint64_t *high)
{
    *low = shape->first;
    *high = shape->first + shape->step * (shape->count - 1) + shape->nbytes;
    return shape->each == NULL && (shape->step <= shape->nbytes || shape->count == 1);
}

/* Units of 1 << shift bytes that a run touches. */
SOFT_ON_FIBER static inline uint64_t
soft_shape_units(uint64_t low, uint64_t high, int shift)
{
    return ((high - 1) >> shift) - (low >> shift) + 1;
}

/* How many lines they touch, and in how many their bytes would lie if they lay close. */
void soft_shape_lines(const soft_shape *shape, uint64_t *lines, uint64_t *least);
/* How many rounds the banks need, and how many if the words lay in different banks. */
void soft_shape_banks(const soft_shape *shape, uint64_t *rounds, uint64_t *least);
/* Set the bits of the bytes, the first bit of which is that of the byte at `base`. */
void soft_shape_mark(const soft_shape *shape, uint64_t *bits, uint64_t base);

#endif /* SOFT_COUNT_SHAPE_H */
