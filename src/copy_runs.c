/* copy_runs.c: loops that move one run after the other, one loop for each size class.
 *
 * A run whose size is not a power of two is moved as two pieces that overlap, both loaded before
 * either is stored: no branch in the loop, and no byte outside the run is touched. */
#include <string.h>

#include "copy_kernels.h"

typedef struct {
    uint64_t half[2];
} piece16;

#define DEFINE_RUNS(name, MOVE)                                                                \
    static void name(const copy_block *block, char *dst, const char *src)                      \
    {                                                                                          \
        const copy_axis outer = block->outer, inner = block->inner;                            \
        const size_t run = (size_t)block->run;                                                 \
        (void)run;                                                                             \
        for (int64_t i = 0; i < outer.extent; i++) {                                           \
            char *to = dst + i * outer.dst_step;                                               \
            const char *from = src + i * outer.src_step;                                       \
            for (int64_t j = 0; j < inner.extent; j++) {                                       \
                MOVE;                                                                          \
                to += inner.dst_step;                                                          \
                from += inner.src_step;                                                        \
            }                                                                                  \
        }                                                                                      \
    }

#define MOVE_WHOLE(type) memcpy(to, from, sizeof(type))

#define MOVE_PAIR(type)                                                                        \
    do {                                                                                       \
        type first, last;                                                                      \
        memcpy(&first, from, sizeof(type));                                                    \
        memcpy(&last, from + run - sizeof(type), sizeof(type));                                \
        memcpy(to, &first, sizeof(type));                                                      \
        memcpy(to + run - sizeof(type), &last, sizeof(type));                                  \
    } while (0)

DEFINE_RUNS(move_1, MOVE_WHOLE(uint8_t))
DEFINE_RUNS(move_2, MOVE_WHOLE(uint16_t))
DEFINE_RUNS(move_4, MOVE_WHOLE(uint32_t))
DEFINE_RUNS(move_8, MOVE_WHOLE(uint64_t))
DEFINE_RUNS(move_16, MOVE_WHOLE(piece16))
DEFINE_RUNS(move_2_to_4, MOVE_PAIR(uint16_t))
DEFINE_RUNS(move_4_to_8, MOVE_PAIR(uint32_t))
DEFINE_RUNS(move_8_to_16, MOVE_PAIR(uint64_t))
DEFINE_RUNS(move_16_to_32, MOVE_PAIR(piece16))
DEFINE_RUNS(move_any, memcpy(to, from, run))

static copy_kernel
small_run_kernel(int64_t run)
{
    switch (run) {
    case 1:
        return move_1;
    case 2:
        return move_2;
    case 4:
        return move_4;
    case 8:
        return move_8;
    case 16:
        return move_16;
    default:
        return run < 4 ? move_2_to_4 : run < 8 ? move_4_to_8 : move_8_to_16;
    }
}

copy_kernel
copy_runs_kernel(int64_t run)
{
    if (run <= 16) {
        return small_run_kernel(run);
    }
    return run <= 32 ? move_16_to_32 : move_any;
}
