/* shuffle.c: see shuffle.h.
 *
 * Owns:    the count of launches, which makes their orders differ.
 * Calls:   seed.h, settings.h.
 * Threads: see shuffle.h.
 */
#include "softmetal/kernels/shuffle.h"

#include "softmetal/settings.h"

static uint64_t launches;

static uint64_t
common_divisor(uint64_t one, uint64_t other)
{
    while (other != 0) {
        uint64_t rest = one % other;
        one = other;
        other = rest;
    }
    return one;
}

void
soft_shuffle_begin(soft_shuffle *shuffle, uint64_t count)
{
    *shuffle = (soft_shuffle){.order = soft_seed_order(), .count = count};
    if (shuffle->order != SOFT_ORDER_RANDOM) {
        return;
    }
    uint64_t state =
        soft_settings_get(SOFT_SEED) ^ __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED) << 32;
    shuffle->seed = soft_seed_random(&state);
    shuffle->distance = soft_seed_random(&state) % count;
    do {
        shuffle->factor = soft_seed_random(&state) % count;
    } while (common_divisor(count, shuffle->factor) != 1);
}

uint64_t
soft_shuffle_group(const soft_shuffle *shuffle, uint64_t index)
{
    switch (shuffle->order) {
    case SOFT_ORDER_FIRST: return index;
    case SOFT_ORDER_LAST: return shuffle->count - 1 - index;
    case SOFT_ORDER_RANDOM: break;
    }
    return (uint64_t)(((unsigned __int128)index * shuffle->factor + shuffle->distance) %
                      shuffle->count);
}

uint64_t
soft_shuffle_state(const soft_shuffle *shuffle, uint64_t group)
{
    return shuffle->seed ^ group;
}

unsigned
soft_shuffle_bit(const soft_shuffle *shuffle, uint64_t *state, uint32_t mask)
{
    if (shuffle->order == SOFT_ORDER_LAST) {
        return 31 - (unsigned)__builtin_clz(mask);
    }
    uint32_t from = mask & UINT32_MAX << (soft_seed_random(state) >> 59);
    return (unsigned)__builtin_ctz(from != 0 ? from : mask);
}
