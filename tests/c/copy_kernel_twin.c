/* copy_kernel_twin.c: see copy_kernel_twin.h. */
#include "copy_kernel_twin.h"

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
#define COPY_KERNEL_TEXT(...) __VA_ARGS__
#include "metal/copy_kernel_shape.h"

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
                    copy_units_##size(arguments[0], arguments[1], arguments[2], at); \
                } \
            } \
        } \
    }
DEFINE_RUN(1)
DEFINE_RUN(2)
DEFINE_RUN(4)
DEFINE_RUN(8)
DEFINE_RUN(16)

copy_kernel_run *const copy_kernel_runs[COPY_KERNEL_COUNT] = {run_1, run_2, run_4, run_8,
                                                              run_16};
