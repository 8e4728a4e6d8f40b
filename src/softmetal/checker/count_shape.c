/* count_shape.c: see count_shape.h. */
#include "softmetal/checker/count_shape.h"

#include "softmetal/fiber.h"

SOFT_ON_FIBER soft_shape
soft_shape_series(uint64_t first, uint64_t step, size_t count, size_t nbytes)
{
    if ((int64_t)step < 0) {
        first += step * (count - 1);
        step = -step;
    }
    return (soft_shape){first, step, NULL, step == 0 ? 1 : count, nbytes};
}

/* A bitonic network: addresses at random would make each branch of another sort a guess. */
SOFT_ON_FIBER static void
sort(uint64_t each[SOFT_MOST_TOGETHER])
{
    for (int run = 2; run <= SOFT_MOST_TOGETHER; run *= 2) {
        for (int apart = run / 2; apart > 0; apart /= 2) {
            for (int i = 0; i < SOFT_MOST_TOGETHER; i++) {
                int other = i ^ apart;
                if (other > i) {
                    uint64_t one = each[i], two = each[other];
                    uint64_t low = one < two ? one : two, high = one < two ? two : one;
                    each[i] = (i & run) == 0 ? low : high;
                    each[other] = (i & run) == 0 ? high : low;
                }
            }
        }
    }
}

SOFT_ON_FIBER soft_shape
soft_shape_list(uint64_t each[SOFT_MOST_TOGETHER], size_t count, size_t nbytes)
{
    for (size_t i = count; i < SOFT_MOST_TOGETHER; i++) {
        each[i] = UINT64_MAX;
    }
    sort(each);
    return (soft_shape){0, 0, each, count, nbytes};
}

SOFT_ON_FIBER static inline uint64_t
address_of(const soft_shape *shape, size_t index)
{
    return shape->each != NULL ? shape->each[index] : shape->first + shape->step * index;
}

/* No byte between them is left out. */
SOFT_ON_FIBER static inline bool
is_close(const soft_shape *shape)
{
    return shape->each == NULL && (shape->step <= shape->nbytes || shape->count == 1);
}

/* From the first byte of a close shape to the last. */
SOFT_ON_FIBER static inline uint64_t
extent(const soft_shape *shape)
{
    return shape->step * (shape->count - 1) + shape->nbytes;
}

/* Units of 1 << shift bytes that are touched, each counted once.  `banks` NULL: they are not told. */
SOFT_ON_FIBER static uint64_t
count_units(const soft_shape *shape, int shift, uint8_t *banks)
{
    uint64_t units = 0, next = 0; /* the units before `next` are counted */
    for (size_t i = 0; i < shape->count; i++) {
        uint64_t at = address_of(shape, i);
        uint64_t unit = at >> shift, end = (at + shape->nbytes - 1) >> shift;
        for (unit = unit < next ? next : unit; unit <= end; unit++) {
            units += 1;
            if (banks != NULL) {
                banks[unit % SOFT_BANKS] += 1;
            }
        }
        next = end + 1 > next ? end + 1 : next;
    }
    return units;
}

SOFT_ON_FIBER static uint64_t
units_of_close(const soft_shape *shape, int shift)
{
    uint64_t last = shape->first + extent(shape) - 1;
    return (last >> shift) - (shape->first >> shift) + 1;
}

SOFT_ON_FIBER void
soft_shape_lines(const soft_shape *shape, uint64_t *lines, uint64_t *least)
{
    uint64_t nbytes, whole = (uint64_t)1 << SOFT_LINE_NBYTES_SHIFT;
    if (is_close(shape)) {
        *lines = units_of_close(shape, SOFT_LINE_NBYTES_SHIFT);
        nbytes = extent(shape);
    }
    else if (shape->each == NULL) { /* with gaps, so that no two share a byte */
        *lines = shape->step <= whole ? units_of_close(shape, SOFT_LINE_NBYTES_SHIFT)
                                      : count_units(shape, SOFT_LINE_NBYTES_SHIFT, NULL);
        nbytes = shape->count * shape->nbytes;
    }
    else {
        *lines = count_units(shape, SOFT_LINE_NBYTES_SHIFT, NULL);
        nbytes = shape->nbytes; /* of the last; of each other, what is before the next */
        for (size_t i = 1; i < shape->count; i++) {
            uint64_t apart = shape->each[i] - shape->each[i - 1];
            nbytes += apart < shape->nbytes ? apart : shape->nbytes;
        }
    }
    *least = (nbytes + whole - 1) >> SOFT_LINE_NBYTES_SHIFT;
}

SOFT_ON_FIBER void
soft_shape_banks(const soft_shape *shape, uint64_t *rounds, uint64_t *least)
{
    uint64_t words;
    if (is_close(shape)) {
        words = units_of_close(shape, SOFT_WORD_NBYTES_SHIFT);
        *rounds = *least = (words + SOFT_BANKS - 1) / SOFT_BANKS;
        return;
    }
    uint8_t banks[SOFT_BANKS] = {0};
    words = count_units(shape, SOFT_WORD_NBYTES_SHIFT, banks);
    *rounds = 0;
    for (int i = 0; i < SOFT_BANKS; i++) {
        *rounds = banks[i] > *rounds ? banks[i] : *rounds;
    }
    *least = (words + SOFT_BANKS - 1) / SOFT_BANKS;
}

SOFT_ON_FIBER bool
soft_shape_is_run(const soft_shape *shape, uint64_t *low, uint64_t *high)
{
    *low = shape->first;
    *high = shape->first + extent(shape);
    return is_close(shape);
}

SOFT_ON_FIBER static void
mark_run(uint64_t *bits, uint64_t first, uint64_t count)
{
    uint64_t last = first + count - 1;
    uint64_t low = UINT64_MAX << first % 64, high = UINT64_MAX >> (63 - last % 64);
    if (first / 64 == last / 64) {
        bits[first / 64] |= low & high;
        return;
    }
    bits[first / 64] |= low;
    for (uint64_t word = first / 64 + 1; word < last / 64; word++) {
        bits[word] = UINT64_MAX;
    }
    bits[last / 64] |= high;
}

SOFT_ON_FIBER void
soft_shape_mark(const soft_shape *shape, uint64_t *bits, uint64_t base)
{
    if (is_close(shape)) {
        mark_run(bits, shape->first - base, extent(shape));
        return;
    }
    for (size_t i = 0; i < shape->count; i++) {
        mark_run(bits, address_of(shape, i) - base, shape->nbytes);
    }
}
