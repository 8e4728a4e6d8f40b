/* texture.c: an image, as a compiler makes one of
 *
 *     kernel void texture(device uint4 *out [[buffer(0)]],
 *                         texture2d<uint, access::read_write> image [[texture(3)]],
 *                         array<texture2d<uint, access::read>, 2> both [[texture(5)]],
 *                         sampler how [[sampler(2)]])
 *     { out[0] = what is known of them; image.write(7, uint2(1, 2)); }
 */
#include "image.h"

static const soft_argument_facts arguments[] = {
    {"out", SOFT_ARGUMENT_BUFFER, 1, 0, 36, 16, 16, 0, 0, 0, 1},
    {"image", SOFT_ARGUMENT_TEXTURE, 1, 3, 33, 0, 0, 2, 0, 1, 1},
    {"both", SOFT_ARGUMENT_TEXTURE, 0, 5, 33, 0, 0, 2, 0, 1, 2},
    {"how", SOFT_ARGUMENT_SAMPLER, 0, 2, 0, 0, 0, 0, 0, 0, 1},
};

static void
run_thread(const soft_thread *thread)
{
    const soft_launch *launch = thread->launch;
    soft_u64 *out = launch->buffers[0];
    const soft_texture *image = launch->textures[3];
    out[0] = (soft_u64)(__UINTPTR_TYPE__)image;
    out[1] = launch->samplers[2];
    soft_u64 count = 0;
    for (int i = 0; i < SOFT_MOST_TEXTURES; i++) {
        count += launch->textures[i] != 0;
    }
    out[2] = count * 1000 + launch->reached_count;
    out[3] = *(const soft_u32 *)(launch->textures[6]->pixels);
    *(soft_u32 *)(image->pixels + 4 + 2 * image->level[0].row_nbytes) += 7;
}

static void
run_rows(const soft_thread *first, soft_u32 count, soft_u32 rows)
{
    (void)count, (void)rows;
    run_thread(first);
}

soft_image softmetal_image = {
    .abi = SOFT_KERNEL_ABI,
    .argument_count = 4,
    .arguments = arguments,
    .run_thread = run_thread,
    .run_rows = run_rows,
};
