/* copy_kernel.c: the text of copy_kernel.h, as a string and as C, and grids for it; see
 * copy_grid.h. */
#include "metal/copy_grid.h"

/* ---- for the compiler of Metal's language ---- */

#undef COPY_KERNEL_TEXT
#define COPY_KERNEL_STRING(...) #__VA_ARGS__
#define COPY_KERNEL_TEXT(...) COPY_KERNEL_STRING(__VA_ARGS__)
static const char source[] = "#include <metal_stdlib>\n"
                             "using namespace metal;\n"
                             "#define BUFFER(index) [[buffer(index)]]\n"
                             "#define POSITION_IN_GRID [[thread_position_in_grid]]\n"
#include "metal/copy_kernel.h"
                             "\n";
#undef COPY_KERNEL_TEXT

/* ---- for the compiler of C ---- */

#define COPY_KERNEL_TEXT(...) __VA_ARGS__
typedef struct uint3 {
    uint32_t x, y, z;
} uint3;

typedef struct uint4 {
    uint32_t x, y, z, w;
} uint4;

#define kernel static inline
#define device
#define constant const
#define BUFFER(index)
#define POSITION_IN_GRID
#include "metal/copy_kernel.h"
#undef kernel
#undef device
#undef constant
#undef COPY_KERNEL_TEXT

/* All calls of one kernel, in the order of the grid. */
#define DEFINE_RUN(size) \
    static void run_##size(void *const *arguments, const size_t grid[3]) \
    { \
        uint3 at; \
        for (at.z = 0; at.z < grid[2]; at.z++) { \
            for (at.y = 0; at.y < grid[1]; at.y++) { \
                for (at.x = 0; at.x < grid[0]; at.x++) { \
                    metal_dlpack_copy_##size(arguments[0], arguments[1], arguments[2], at); \
                } \
            } \
        } \
    }
DEFINE_RUN(1)
DEFINE_RUN(2)
DEFINE_RUN(4)
DEFINE_RUN(8)
DEFINE_RUN(16)

#define KERNEL(size) {.source = source, .name = "metal_dlpack_copy_" #size, .run = run_##size},
device_kernel copy_kernels[COPY_KERNEL_COUNT] = {KERNEL(1) KERNEL(2) KERNEL(4) KERNEL(8)
                                                     KERNEL(16)};

/* ---- from a plan to a grid ---- */

#ifndef COPY_MOST_CALLS            /* a test sets it small */
#define COPY_MOST_CALLS UINT32_MAX /* along one direction: positions have 32 bits */
#endif

_Static_assert(sizeof(copy_kernel_shape) <= sizeof((copy_grid *)0)->shape,
               "the shape has room");
_Static_assert(sizeof((copy_grid *)0)->shape <= 4096, "what setBytes takes");
_Static_assert(LAYOUT_MAX_NDIM + 2 == 66, "axes of a plan, one within a run, one to make two");

/* Kernel k moves units of 2^k bytes. */
static int64_t
unit_nbytes(int kernel)
{
    return (int64_t)1 << kernel;
}

/* The unit divides the run, both places and all steps. */
int
copy_grid_kernel(const copy_plan *plan, const char *dst_base, const char *src_base)
{
    int64_t bits = plan->run | (plan->dst - dst_base) | (plan->src - src_base) |
                   unit_nbytes(COPY_KERNEL_COUNT - 1);
    for (int i = 0; i < plan->naxes; i++) {
        bits |= plan->axes[i].dst_step | plan->axes[i].src_step;
    }
    return __builtin_ctzll((unsigned long long)bits);
}

static void
add_axis(copy_kernel_shape *shape, int64_t extent, int64_t dst_step, int64_t src_step)
{
    uint32_t axis = shape->naxes++;
    shape->extents[axis] = (uint32_t)extent;
    shape->dst_steps[axis] = dst_step;
    shape->src_steps[axis] = src_step;
}

static bool
set_extents(const copy_kernel_shape *shape, size_t extents[3])
{
    uint64_t rest = 1;
    for (uint32_t axis = 2; axis < shape->naxes; axis++) {
        rest *= shape->extents[axis]; /* both below 2^32 */
        if (rest > COPY_MOST_CALLS) {
            return false;
        }
    }
    extents[0] = shape->extents[0];
    extents[1] = shape->extents[1];
    extents[2] = (size_t)rest;
    return true;
}

bool
copy_grid_make(const copy_plan *plan, int kernel, const char *dst_base, const char *src_base,
               copy_grid *out)
{
    copy_kernel_shape *shape = (copy_kernel_shape *)(void *)out->shape;
    int64_t unit = unit_nbytes(kernel);
    if (plan->run / unit > COPY_MOST_CALLS) {
        return false;
    }
    shape->naxes = 0;
    shape->dst_first = (plan->dst - dst_base) / unit;
    shape->src_first = (plan->src - src_base) / unit;
    if (plan->run > unit) {
        add_axis(shape, plan->run / unit, 1, 1);
    }
    for (int i = plan->naxes - 1; i >= 0; i--) {
        const copy_axis *axis = &plan->axes[i];
        if (axis->extent > COPY_MOST_CALLS) {
            return false;
        }
        add_axis(shape, axis->extent, axis->dst_step / unit, axis->src_step / unit);
    }
    while (shape->naxes < 2) {
        add_axis(shape, 1, 0, 0);
    }
    out->shape_nbytes = sizeof *shape;
    return set_extents(shape, out->extents);
}

/* Between two units, so that they stay as large as they are. */
static void
halve_run(const copy_plan *plan, int64_t unit, copy_plan *first, copy_plan *second)
{
    first->run = plan->run / unit / 2 * unit;
    second->run = plan->run - first->run;
    second->dst += first->run;
    second->src += first->run;
}

void
copy_grid_halve(const copy_plan *plan, int kernel, copy_plan *first, copy_plan *second)
{
    int64_t unit = unit_nbytes(kernel);
    int longest = 0;
    *first = *second = *plan;
    for (int i = 1; i < plan->naxes; i++) {
        longest = plan->axes[i].extent > plan->axes[longest].extent ? i : longest;
    }
    if (plan->naxes == 0 || plan->run / unit > plan->axes[longest].extent) {
        halve_run(plan, unit, first, second);
        return;
    }
    const copy_axis *axis = &plan->axes[longest];
    int64_t half = axis->extent / 2;
    first->axes[longest].extent = half;
    second->axes[longest].extent = axis->extent - half;
    second->dst += half * axis->dst_step;
    second->src += half * axis->src_step;
}
