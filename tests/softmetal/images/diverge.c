/* diverge.c: lanes part in a branch, meet after it, part in a loop, and meet after that.
 *
 * A lane leaves four numbers: who met in its branch and their sum, who met after the loop, and
 * how often it met others in the loop, as a sum of their counts. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    soft_u32 *out = (soft_u32 *)thread->launch->buffers[0] + 4 * place_in_grid(thread);
    soft_u32 sum, in_loop = 0, lane = thread->lane;
    if (lane % 2 == 0) {
        out[0] = meet(lane, 1, &out[1]);
        meet(lane, 2, &sum); /* one more: the others wait at their site meanwhile */
    }
    else {
        out[0] = meet(lane, 3, &out[1]);
    }
    if (meet(1, 4, &sum) == ~0u && sum == SOFT_SIMD_WIDTH) {
        for (soft_u32 round = 0; round <= lane; round++) {
            meet(1, 5, &sum);
            in_loop += sum;
        }
    }
    out[2] = meet(lane, 6, &sum);
    out[3] = in_loop;
}

IMAGE(1, run_thread, 0);
