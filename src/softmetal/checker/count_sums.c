/* count_sums.c: what accesses that belong together sum up to: lines, rounds of banks, bytes, branches.
 *
 * Owns:    the rows of each access; the bits and words of each piece of memory.
 * Calls:   count_shape.h; check_memory.c for what an address is part of.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/count_state.h"

#include <stdlib.h>

#include "softmetal/checker/count_shape.h"
#include "softmetal/fiber.h"

SOFT_ON_FIBER static __attribute__((noinline)) soft_count_row *
make_row(soft_count *count, soft_counted *site, uint32_t memory)
{
    soft_count_row *made = calloc(1, sizeof *made);
    if (made == NULL) {
        count->lacks_memory = true;
        return NULL;
    }
    made->sums = (soft_counts_row){.file = (char *)site->file,
                                   .line = site->line,
                                   .column = site->column,
                                   .nbytes = site->nbytes,
                                   .how = site->how,
                                   .memory = memory};
    made->next = site->rows;
    site->rows = made;
    return made;
}

/* NULL: there is no memory; count->lacks_memory says so. */
SOFT_ON_FIBER static inline soft_count_row *
row_of(soft_count *count, soft_counted *site, uint32_t memory)
{
    for (soft_count_row *found = site->rows; found != NULL; found = found->next) {
        if (found->sums.memory == memory) {
            return found;
        }
    }
    return make_row(count, site, memory);
}

SOFT_ON_FIBER static inline void
add_lanes(const soft_count *count, soft_counts_row *sums, size_t lanes)
{
    sums->executions += 1;
    sums->lanes += lanes;
    sums->possible += count->possible;
}

SOFT_ON_FIBER static void
add_atomics(soft_count *count, soft_count_memory *memory, const uint64_t *each, size_t lanes)
{
    if (memory->atomics == NULL) {
        memory->atomics = calloc(memory->facts.nbytes / 4 + 1, sizeof *memory->atomics);
    }
    if (memory->atomics == NULL) {
        count->lacks_memory = true;
        return;
    }
    for (size_t i = 0; i < lanes; i++) {
        uint32_t now = ++memory->atomics[(each[i] - memory->base) / 4];
        memory->facts.atomics += 1;
        if (now > memory->facts.most_atomics) {
            memory->facts.most_atomics = now;
        }
    }
}

SOFT_ON_FIBER static soft_shape
run_of(const soft_count_touched *touched)
{
    return (
        soft_shape){.first = touched->low, .count = 1, .nbytes = touched->high - touched->low};
}

/* False: there is no memory. */
SOFT_ON_FIBER static __attribute__((noinline)) bool
touch_bits(soft_count *count, const soft_count_memory *memory, soft_count_touched *touched,
           const soft_shape *shape, uint64_t base)
{
    if (touched->bits == NULL) {
        touched->bits = calloc(memory->facts.nbytes / 64 + 1, sizeof *touched->bits);
    }
    if (touched->bits == NULL) {
        count->lacks_memory = true;
        return false;
    }
    soft_shape_mark(shape, touched->bits, base);
    return true;
}

/* Apart from the run that grew last: another begins. */
SOFT_ON_FIBER static __attribute__((noinline)) void
touch_elsewhere(soft_count *count, const soft_count_memory *memory, soft_count_touched *touched,
                uint64_t low, uint64_t high)
{
    soft_shape before = run_of(touched);
    if (before.nbytes == 0 || touch_bits(count, memory, touched, &before, 0)) {
        touched->low = low;
        touched->high = high;
    }
}

SOFT_ON_FIBER static void
touch_run(soft_count *count, const soft_count_memory *memory, soft_count_touched *touched,
          uint64_t low, uint64_t high)
{
    if (low > touched->high || high < touched->low) {
        touch_elsewhere(count, memory, touched, low, high);
        return;
    }
    touched->low = low < touched->low ? low : touched->low;
    touched->high = high > touched->high ? high : touched->high;
}

SOFT_ON_FIBER static void
touch(soft_count *count, const soft_count_memory *memory, soft_count_touched *touched,
      const soft_shape *shape)
{
    uint64_t base = memory->base - memory->origin, low, high;
    if (soft_shape_is_run(shape, &low, &high)) {
        touch_run(count, memory, touched, low - base, high - base);
    }
    else {
        touch_bits(count, memory, touched, shape, base);
    }
}

uint64_t
soft_count_distinct(const soft_count_touched *touched, uint64_t nbytes)
{
    soft_shape run = run_of(touched);
    if (touched->bits == NULL) {
        return run.nbytes;
    }
    if (run.nbytes != 0) {
        soft_shape_mark(&run, touched->bits, 0);
    }
    uint64_t count = 0;
    for (uint64_t i = 0; i < nbytes / 64 + 1; i++) {
        uint64_t word = touched->bits[i];
        count += word + 1 <= 1 ? word & 64 : (uint64_t)__builtin_popcountll(word);
    }
    return count;
}

/* These lanes touched the same memory: at `each`, which is sorted, or NULL: as the series is. */
SOFT_ON_FIBER static void
sum_up(soft_count *count, soft_counted *site, const soft_range *range, const soft_together *one,
       uint64_t *each, size_t lanes)
{
    soft_count_memory *memory = &count->memories[range->counted];
    soft_count_row *row = row_of(count, site, range->counted);
    if (row == NULL) {
        return;
    }
    soft_counts_row *sums = &row->sums;
    bool is_atomic = (site->how & SOFT_ACCESS_ATOMIC) != 0;
    add_lanes(count, sums, lanes);
    if (is_atomic) {
        uint64_t list[SOFT_SIMD_WIDTH];
        for (size_t i = 0; each == NULL && i < lanes; i++) {
            list[i] = one->first + one->step * i;
        }
        add_atomics(count, memory, each == NULL ? list : each, lanes);
    }
    uint64_t origin = memory->origin;
    for (size_t i = 0; each != NULL && origin != 0 && i < lanes; i++) {
        each[i] -= origin;
    }
    soft_shape shape =
        each == NULL ? soft_shape_series(one->first - origin, one->step, lanes, site->nbytes)
                     : soft_shape_list(each, lanes, site->nbytes);
    uint64_t many, least;
    if (memory->facts.is_threadgroup) {
        if (!is_atomic) {
            soft_shape_banks(&shape, &many, &least);
            sums->rounds += many;
            sums->least_rounds += least;
        }
        return;
    }
    soft_shape_lines(&shape, &many, &least);
    sums->lines += many;
    sums->least_lines += least;
    if (!(site->how & SOFT_ACCESS_WRITE) || (site->how & SOFT_ACCESS_READ)) {
        touch(count, memory, &memory->read, &shape);
    }
    if (site->how & SOFT_ACCESS_WRITE) {
        touch(count, memory, &memory->written, &shape);
    }
}

/* Lanes of one access that touched several arguments: each argument's apart. */
SOFT_ON_FIBER static void
sum_up_apart(soft_check *check, soft_counted *site, const soft_together *one, uint64_t *each,
             size_t lanes)
{
    while (lanes > 0) {
        const soft_range *range;
        uint64_t here[SOFT_SIMD_WIDTH];
        size_t count = 0, left = 0;
        if (!soft_memory_find(check, each[0], site->nbytes, site->how, &range) ||
            range == NULL) { /* unreached: it was found when the lane came */
            return;
        }
        for (size_t i = 0; i < lanes; i++) {
            if (soft_range_has(range, each[i], site->nbytes)) {
                here[count++] = each[i];
            }
            else {
                each[left++] = each[i];
            }
        }
        sum_up(check->count, site, range, one, here, count);
        lanes = left;
    }
}

SOFT_ON_FIBER static void
sum_up_branch(soft_count *count, soft_counted *site, const soft_together *one, size_t lanes)
{
    soft_count_row *row = row_of(count, site, UINT32_MAX);
    if (row == NULL) {
        return;
    }
    uint64_t taken = 0;
    for (size_t i = 0; i < lanes; i++) {
        taken += one->each != NULL ? one->each[i] : one->first + one->step * i;
    }
    add_lanes(count, &row->sums, lanes);
    row->sums.lines += taken;
    row->sums.least_lines += taken != 0 && taken != lanes;
}

SOFT_ON_FIBER void
soft_count_sum_up(soft_check *check, soft_counted *site, const soft_together *one)
{
    size_t lanes = soft_count_lanes(one->lanes);
    if (soft_count_is_branch(site)) {
        sum_up_branch(check->count, site, one, lanes);
        return;
    }
    const soft_range *range = site->range;
    uint64_t list[SOFT_SIMD_WIDTH], *each = one->each;
    bool is_one_range;
    if (each == NULL) {
        is_one_range =
            soft_range_has(range, one->first, site->nbytes) &&
            soft_range_has(range, one->first + one->step * (lanes - 1), site->nbytes);
    }
    else {
        is_one_range = true;
        for (size_t i = 0; i < lanes; i++) {
            is_one_range &= soft_range_has(range, each[i], site->nbytes);
        }
    }
    if (is_one_range) {
        sum_up(check->count, site, range, one, each, lanes);
        return;
    }
    for (size_t i = 0; each == NULL && i < lanes; i++) {
        list[i] = one->first + one->step * i;
    }
    sum_up_apart(check, site, one, each == NULL ? list : each, lanes);
}

/* The bytes from `low` on, before `high`, of the first SIMD-group. */
SOFT_ON_FIBER static void
sum_up_runs(soft_count *count, const soft_counted *site, soft_counts_row *sums, uint64_t low,
            uint64_t high)
{
    const soft_range *range = site->range;
    soft_count_memory *memory = &count->memories[range->counted];
    bool is_write = (site->how & SOFT_ACCESS_WRITE) != 0;
    soft_count_touched *touched = is_write ? &memory->written : &memory->read;
    uint64_t origin = memory->base - memory->origin, nbytes = high - low;
    sums->executions += site->many;
    sums->lanes += (uint64_t)site->many * SOFT_SIMD_WIDTH;
    sums->possible += (uint64_t)site->many * SOFT_SIMD_WIDTH;
    sums->least_lines += site->many * soft_shape_units(0, nbytes, SOFT_LINE_NBYTES_SHIFT);
    for (uint64_t i = 0, at = origin + low; i < site->many; i++, at += site->apart) {
        sums->lines += soft_shape_units(at, at + nbytes, SOFT_LINE_NBYTES_SHIFT);
    }
    if (site->apart == nbytes) {
        touch_run(count, memory, touched, low, low + site->many * nbytes);
        return;
    }
    for (uint64_t i = 0; i < site->many; i++, low += site->apart) {
        touch_run(count, memory, touched, low, low + nbytes);
    }
}

SOFT_ON_FIBER void
soft_count_sum_up_series(soft_check *check, soft_counted *site)
{
    soft_together one = {.first = site->begin + site->apart,
                         .step = site->step,
                         .lanes = UINT32_MAX};
    if (!soft_count_is_of_neighbours(site)) { /* it is one */
        soft_count_sum_up(check, site, &one);
        return;
    }
    const soft_range *range = site->range;
    soft_count_row *row = row_of(check->count, site, range->counted);
    if (row != NULL) {
        uint64_t low = one.first - range->base;
        sum_up_runs(check->count, site, &row->sums, low,
                    low + one.step * (SOFT_SIMD_WIDTH - 1) + site->nbytes);
    }
}
