/* count_shape.c: see count_shape.h. */
#include "softmetal/checker/count_shape.h"

#include "softmetal/fiber.h"

#define NOWHERE ((uint64_t)1 << 63) /* behind every address, and less than 1 << 63 from each */

/* Each has its place by how many are less: of addresses at random, each branch would be a guess. */
SOFT_ON_FIBER soft_shape
soft_shape_list(uint64_t each[SOFT_MOST_TOGETHER], size_t count, size_t nbytes)
{
    uint64_t given[SOFT_MOST_TOGETHER], sorted[SOFT_MOST_TOGETHER];
    for (size_t i = 0; i < SOFT_MOST_TOGETHER; i++) {
        given[i] = i < count ? each[i] : NOWHERE;
        sorted[i] = NOWHERE;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t less = 0;
        for (size_t other = 0; other < SOFT_MOST_TOGETHER; other++) {
            less += (given[other] - given[i]) >> 63;
        }
        sorted[less] = given[i]; /* equal ones have one place, and leave the next ones free */
    }
    soft_shape shape = {.each = each, .nbytes = nbytes};
    for (size_t i = 0; i < SOFT_MOST_TOGETHER && shape.count < count; i++) {
        each[shape.count] = sorted[i];
        shape.count += sorted[i] != NOWHERE;
    }
    return shape;
}

SOFT_ON_FIBER static inline uint64_t
address_of(const soft_shape *shape, size_t index)
{
    return shape->each != NULL ? shape->each[index] : shape->first + shape->step * index;
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

SOFT_ON_FIBER void
soft_shape_lines(const soft_shape *shape, uint64_t *lines, uint64_t *least)
{
    uint64_t nbytes, low, high, whole = (uint64_t)1 << SOFT_LINE_NBYTES_SHIFT;
    if (soft_shape_is_run(shape, &low, &high)) {
        *lines = soft_shape_units(low, high, SOFT_LINE_NBYTES_SHIFT);
        nbytes = high - low;
    }
    else if (shape->each == NULL) { /* with gaps, so that no two share a byte */
        *lines = shape->step <= whole ? soft_shape_units(low, high, SOFT_LINE_NBYTES_SHIFT)
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
    uint64_t words, low, high;
    if (soft_shape_is_run(shape, &low, &high)) {
        words = soft_shape_units(low, high, SOFT_WORD_NBYTES_SHIFT);
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
    uint64_t low, high;
    if (soft_shape_is_run(shape, &low, &high)) {
        mark_run(bits, low - base, high - low);
        return;
    }
    for (size_t i = 0; i < shape->count; i++) {
        mark_run(bits, address_of(shape, i) - base, shape->nbytes);
    }
}
