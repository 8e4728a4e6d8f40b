/* vast.c: an image of a kernel with more threadgroup memory than there is. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    (void)thread;
}

soft_image softmetal_image = {
    .abi = SOFT_KERNEL_ABI,
    .threadgroup_nbytes = 40000,
    .has_syncs = 1,
    .run_thread = run_thread,
};
