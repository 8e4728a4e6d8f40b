/* room.c: an image that writes down how it was launched, as a compiler makes one of
 *
 *     kernel void room(device uint *out [[buffer(0)]], threadgroup float *shared [[threadgroup(3)]],
 *                      ...)
 *
 * with 16 KiB of threadgroup memory of its own.
 */
#include "image.h"

static const soft_argument_facts arguments[] = {
    {"shared", SOFT_ARGUMENT_THREADGROUP, 1, 3, 3, 4, 4, 0, 0, 0, 1},
    {"out", SOFT_ARGUMENT_BUFFER, 1, 0, 33, 4, 4, 0, 0, 0, 1},
};

static void
run_thread(const soft_thread *thread)
{
    const soft_launch *launch = thread->launch;
    soft_u32 *out = launch->buffers[0];
    for (int axis = 0; axis < 3; axis++) {
        out[axis] = launch->grid[axis];
        out[3 + axis] = launch->groups[axis];
        out[6 + axis] = launch->group[axis];
    }
    out[9] = launch->threadgroup_nbytes[3];
    out[10] = (soft_u32)launch->buffer_nbytes[0];
}

soft_image softmetal_image = {
    .abi = SOFT_KERNEL_ABI,
    .argument_count = 2,
    .arguments = arguments,
    .threadgroup_nbytes = 16384,
    .has_syncs = 1,
    .run_thread = run_thread,
};
