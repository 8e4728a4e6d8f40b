/* fuzz_copy.c: random copies and fills, by the engine and by the kernels, against a loop that
 * moves one item at a time.
 *
 *     fuzz_copy SEED COUNT
 *
 * Memory is allocated to the byte, so that a sanitizer sees a read or write past either end.
 * Built with -Dmalloc=test_malloc: the engine's allocations can be made to fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy/copy.h"
#include "laws.h"
#include "metal/copy_grid.h"

#undef malloc
void *malloc(size_t nbytes);
void *test_malloc(size_t nbytes);

static bool is_memory_short;
static int refusals;

void *
test_malloc(size_t nbytes)
{
    refusals += is_memory_short;
    return is_memory_short ? NULL : malloc(nbytes);
}

/* ---- chance ---- */

static int64_t
random_below(int64_t end)
{
    return pick(0, end - 1);
}

static bool
one_in(int64_t count)
{
    return random_below(count) == 0;
}

static void
fill_with_noise(char *memory, int64_t nbytes)
{
    for (int64_t i = 0; i < nbytes; i++) {
        memory[i] = (char)(next_random() >> 24);
    }
}

/* ---- layouts ---- */

static const int64_t extents[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 130};
static const int64_t itemsizes[] = {1, 2, 4, 8,  16, 1,  2,  4,  8,  3,
                                    5, 6, 7, 12, 15, 20, 33, 70, 300};
#define PICK(table) (table)[random_below((int64_t)(sizeof(table) / sizeof((table)[0])))]

static void
choose_shape(strided_layout *layout, int64_t limit)
{
    int64_t volume = 1;
    layout->ndim = (int)random_below(7);
    layout->itemsize = PICK(itemsizes);
    layout->offset = pick(-9, 9);
    for (int i = 0; i < layout->ndim; i++) {
        int64_t extent = PICK(extents);
        if (volume * extent * layout->itemsize > limit) {
            extent = one_in(300) ? 0 : 1;
        }
        layout->shape[i] = extent;
        volume *= extent > 0 ? extent : 1;
    }
}

/* No two indices share an item: each step is larger than all that lies within it. */
static void
choose_distinct_strides(strided_layout *layout)
{
    int order[LAYOUT_MAX_NDIM];
    for (int i = 0; i < layout->ndim; i++) {
        int at = one_in(2) ? i : (int)random_below(i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    int64_t step = 1;
    for (int i = layout->ndim - 1; i >= 0; i--) {
        step += one_in(6) ? random_below(3) : 0;
        layout->strides[order[i]] = one_in(5) ? -step : step;
        step *= layout->shape[order[i]] > 1 ? layout->shape[order[i]] : 1;
    }
}

static void
choose_strides(strided_layout *layout)
{
    choose_distinct_strides(layout);
    for (int i = 0; i < layout->ndim; i++) {
        if (one_in(8)) {
            layout->strides[i] = random_below(4) - 1;
        }
    }
}

static bool
is_empty(const strided_layout *layout)
{
    for (int i = 0; i < layout->ndim; i++) {
        if (layout->shape[i] == 0) {
            return true;
        }
    }
    return false;
}

/* Strides that mean nothing may be anything. */
static void
spoil_unused_strides(strided_layout *layout)
{
    for (int i = 0; i < layout->ndim; i++) {
        if ((is_empty(layout) || layout->shape[i] == 1) && one_in(3)) {
            layout->strides[i] = one_in(2) ? INT64_MAX : INT64_MIN;
        }
    }
}

/* The bytes that it spans, and where its base lies in them, or beside them: its offset is counted. */
static int64_t
reach(const strided_layout *layout, int64_t *base)
{
    int64_t low = 0, high = 0;
    for (int i = 0; i < layout->ndim && !is_empty(layout); i++) {
        int64_t last = layout->shape[i] > 1 ? (layout->shape[i] - 1) * layout->strides[i] : 0;
        *(last < 0 ? &low : &high) += last;
    }
    *base = -(low + layout->offset) * layout->itemsize;
    return (high - low + 1) * layout->itemsize;
}

/* ---- the loop that is surely right ---- */

static int64_t
place(const strided_layout *layout, const int64_t *index)
{
    int64_t at = layout->offset;
    for (int i = 0; i < layout->ndim; i++) {
        at += index[i] == 0 ? 0 : index[i] * layout->strides[i];
    }
    return at * layout->itemsize;
}

/* In C order; false after the last one, where it is the first again. */
static bool
next_index(const strided_layout *layout, int64_t *index)
{
    for (int axis = layout->ndim - 1; axis >= 0; axis--) {
        if (++index[axis] < layout->shape[axis]) {
            return true;
        }
        index[axis] = 0;
    }
    return false;
}

static void
copy_one_by_one(const strided_layout *dst, char *to, const strided_layout *src,
                const char *from)
{
    int64_t index[LAYOUT_MAX_NDIM] = {0};
    if (is_empty(dst)) {
        return;
    }
    do {
        memcpy(to + place(dst, index), from + place(src, index), (size_t)dst->itemsize);
    } while (next_index(dst, index));
}

/* ---- cases ---- */

static void
complain(const char *what, const strided_layout *dst, const strided_layout *src)
{
    printf("%s: itemsize %lld\n", what, (long long)dst->itemsize);
    for (int i = 0; i < dst->ndim; i++) {
        printf("  extent %lld, strides %lld <- %lld\n", (long long)dst->shape[i],
               (long long)dst->strides[i], (long long)src->strides[i]);
    }
    exit(1);
}

/* `memory` holds both; the source starts `from` bytes in, the destination `to` bytes in. */
static void
check_copy(const strided_layout *dst, int64_t to, const strided_layout *src, int64_t from,
           char *memory, int64_t nbytes)
{
    char *before = malloc((size_t)nbytes), *expected = malloc((size_t)nbytes);
    memcpy(before, memory, (size_t)nbytes);
    memcpy(expected, memory, (size_t)nbytes);
    copy_one_by_one(dst, expected + to, src, before + from);
    is_memory_short = one_in(4);
    bool is_done = copy_strided(dst, memory + to, src, memory + from);
    is_memory_short = false;
    if (memcmp(memory, is_done ? expected : before, (size_t)nbytes) != 0) {
        complain(is_done ? "wrong copy" : "a refused copy wrote", dst, src);
    }
    free(before);
    free(expected);
}

/* Source and destination in one allocation, often on top of each other. */
static void
check_shared(const strided_layout *dst, const strided_layout *src)
{
    int64_t dst_base, src_base;
    int64_t dst_nbytes = reach(dst, &dst_base), src_nbytes = reach(src, &src_base);
    int64_t larger = dst_nbytes > src_nbytes ? dst_nbytes : src_nbytes;
    int64_t nbytes = larger + random_below(2 * dst->itemsize + 1);
    char *memory = malloc((size_t)nbytes);
    fill_with_noise(memory, nbytes);
    int64_t to = dst_base + random_below(nbytes - dst_nbytes + 1);
    int64_t from = src_base + random_below(nbytes - src_nbytes + 1);
    check_copy(dst, to, src, from, memory, nbytes);
    free(memory);
}

/* Who makes grids: copy_kernel.c, and small_grids.c, for which no grid is large enough. */
typedef struct grid_maker {
    bool (*make)(const copy_plan *plan, int kernel, const char *dst_base, const char *src_base,
                 copy_grid *out);
    void (*halve)(const copy_plan *plan, int kernel, copy_plan *first, copy_plan *second);
    int64_t most_nbytes; /* of a copy that is tried */
} grid_maker;

bool small_grid_make(const copy_plan *plan, int kernel, const char *dst_base,
                     const char *src_base, copy_grid *out);
void small_grid_halve(const copy_plan *plan, int kernel, copy_plan *first, copy_plan *second);

static const grid_maker makers[] = {
    {copy_grid_make, copy_grid_halve, 1 << 20},
    {small_grid_make, small_grid_halve, 1 << 16},
};

/* The same by one kernel, every call of its grids. */
static void
copy_by_grid(const grid_maker *maker, const copy_plan *plan, int kernel, char *to,
             const char *from)
{
    copy_grid grid;
    if (maker->make(plan, kernel, to, from, &grid)) {
        void *arguments[] = {to, (char *)(uintptr_t)from, grid.shape};
        copy_kernels[kernel].run(arguments, grid.extents);
        return;
    }
    copy_plan first, second;
    maker->halve(plan, kernel, &first, &second);
    copy_by_grid(maker, &first, kernel, to, from);
    copy_by_grid(maker, &second, kernel, to, from);
}

static void
check_apart(const strided_layout *dst, const strided_layout *src)
{
    int64_t dst_base, src_base;
    int64_t dst_nbytes = reach(dst, &dst_base), src_nbytes = reach(src, &src_base);
    char *to = malloc((size_t)dst_nbytes), *from = malloc((size_t)src_nbytes);
    char *expected = malloc((size_t)dst_nbytes);
    fill_with_noise(to, dst_nbytes);
    fill_with_noise(from, src_nbytes);
    char *before = malloc((size_t)dst_nbytes);
    memcpy(before, to, (size_t)dst_nbytes);
    memcpy(expected, to, (size_t)dst_nbytes);
    copy_one_by_one(dst, expected + dst_base, src, from + src_base);
    is_memory_short = true; /* nothing is allocated where nothing overlaps */
    bool is_done = copy_strided(dst, to + dst_base, src, from + src_base);
    is_memory_short = false;
    if (!is_done || memcmp(to, expected, (size_t)dst_nbytes) != 0) {
        complain("wrong copy", dst, src);
    }
    copy_plan plan;
    bool has_plan = copy_plan_make(dst, to + dst_base, src, from + src_base, &plan);
    for (size_t i = 0; has_plan && i < sizeof makers / sizeof makers[0]; i++) {
        if (dst_nbytes >= makers[i].most_nbytes) {
            continue;
        }
        memcpy(to, before, (size_t)dst_nbytes);
        copy_by_grid(&makers[i], &plan, copy_grid_kernel(&plan, to, from), to, from);
        if (memcmp(to, expected, (size_t)dst_nbytes) != 0) {
            complain("wrong copy by a kernel", dst, src);
        }
    }
    free(before);
    free(to);
    free(from);
    free(expected);
}

static void
check_fill(const strided_layout *dst)
{
    int64_t base, nbytes = reach(dst, &base);
    char *memory = malloc((size_t)nbytes), *expected = malloc((size_t)nbytes);
    char *item = malloc((size_t)dst->itemsize);
    strided_layout one = *dst;
    memset(one.strides, 0, sizeof(one.strides));
    one.offset = 0;
    fill_with_noise(memory, nbytes);
    fill_with_noise(item, dst->itemsize);
    if (one_in(3)) {
        memset(item, item[0], (size_t)dst->itemsize);
    }
    memcpy(expected, memory, (size_t)nbytes);
    copy_one_by_one(dst, expected + base, &one, item);
    copy_fill(dst, memory + base, item);
    if (memcmp(memory, expected, (size_t)nbytes) != 0) {
        complain("wrong fill", dst, &one);
    }
    free(memory);
    free(expected);
    free(item);
}

static void
check_case(int64_t limit)
{
    strided_layout dst, src;
    choose_shape(&dst, limit);
    src = dst;
    src.offset = pick(-9, 9);
    choose_distinct_strides(&dst);
    if (one_in(8)) {
        memcpy(src.strides, dst.strides, sizeof(src.strides[0]) * (size_t)dst.ndim);
    }
    else {
        choose_strides(&src);
    }
    spoil_unused_strides(&dst);
    spoil_unused_strides(&src);
    switch (random_below(4)) {
    case 0: check_fill(&dst); break;
    case 1: check_shared(&dst, &src); break;
    default: check_apart(&dst, &src);
    }
}

int
main(int argc, char **argv)
{
    int64_t count = begin_laws(argc, argv);
    for (int64_t i = 0; i < count; i++) {
        copy_set_threads((int)random_below(4));
        check_case(i % 2000 == 1999 ? 24 << 20 : i % 50 == 0 ? 200000 : 4000);
    }
    printf("%lld cases, %d refused for want of memory\n", (long long)count, refusals);
    return refusals > 0 ? 0 : 1;
}
