/* wide.c: slots of 64 bytes, given again and again, with a barrier now and then. */
#include "image.h"

struct wide {
    soft_u32 words[SOFT_SIMD_SLOT / 4];
};

static void
run_thread(const soft_thread *thread)
{
    soft_u32 *out = thread->launch->buffers[0], wrong = 0;
    for (soft_u32 round = 0; round < 20; round++) {
        struct wide mine, other;
        const soft_u8 *values;
        for (int word = 0; word < SOFT_SIMD_SLOT / 4; word++) {
            mine.words[word] = thread->index * 1000 + round + (soft_u32)word;
        }
        soft_u32 lanes = RUNTIME->simd_exchange(&mine, sizeof mine, &values, SITE(1), 0);
        soft_u32 from = (thread->lane + round) % SOFT_SIMD_WIDTH;
        if (round % 3 == thread->simdgroup % 3) {
            BARRIER(2); /* ends what the exchange lent: not looked at */
            continue;
        }
        if (lanes >> from & 1) {
            __builtin_memcpy(&other, values + from * SOFT_SIMD_SLOT, sizeof other);
            soft_u32 index = thread->simdgroup * SOFT_SIMD_WIDTH + from;
            wrong += other.words[15] != index * 1000 + round + 15;
        }
        wrong += lanes == 0;
    }
    out[place_in_grid(thread)] = wrong;
}

IMAGE(1, run_thread, 0);
