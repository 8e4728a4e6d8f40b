/* vast.c: an image of a kernel with more threadgroup memory than there is. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    (void)thread;
}

static void
run_row(const soft_thread *first, soft_u32 count)
{
    (void)first, (void)count;
}

soft_image softmetal_image = {
    .abi = SOFT_KERNEL_ABI,
    .threadgroup_nbytes = 40000,
    .run_thread = run_thread,
    .run_row = run_row,
};
