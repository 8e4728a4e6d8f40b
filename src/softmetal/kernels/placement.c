/* placement.c: see placement.h. */
#include "softmetal/kernels/placement.h"

#include <string.h>

#include "softmetal/checker/check.h"
#include "softmetal/settings.h"

/* One axis's share of a number that counts along x first.  Division is slow, and most grids are
 * lines. */
static inline soft_u32
take_axis(uint64_t *number, soft_u32 extent)
{
    uint64_t all = *number, more = all < extent ? 0 : all / extent;
    *number = more;
    return (soft_u32)(all - more * extent);
}

void
soft_placement_begin(soft_placement *placement, const soft_launch *launch, uint64_t number)
{
    placement->launch = launch;
    placement->thread_count = 1;
    for (int axis = 0; axis < 3; axis++) {
        soft_u32 at = take_axis(&number, launch->groups[axis]);
        soft_u32 first = at * launch->group[axis], left = launch->grid[axis] - first;
        placement->position[axis] = at;
        placement->first_in_grid[axis] = first;
        placement->size[axis] = left < launch->group[axis] ? left : launch->group[axis];
        placement->thread_count *= placement->size[axis];
    }
}

void
soft_placement_of(const soft_placement *placement, soft_u32 index, soft_thread *thread)
{
    uint64_t rest = index;
    thread->launch = placement->launch;
    for (int axis = 0; axis < 3; axis++) {
        soft_u32 at = take_axis(&rest, placement->size[axis]);
        thread->position_in_group[axis] = at;
        thread->position_in_grid[axis] = placement->first_in_grid[axis] + at;
        thread->group_position[axis] = placement->position[axis];
        thread->group_size[axis] = placement->size[axis];
    }
    thread->index = index;
    thread->lane = index % SOFT_SIMD_WIDTH;
    thread->simdgroup = index / SOFT_SIMD_WIDTH;
    thread->simdgroups = (placement->thread_count + SOFT_SIMD_WIDTH - 1) / SOFT_SIMD_WIDTH;
}

bool
soft_placement_advance(soft_thread *thread, soft_u32 count)
{
    if (thread->position_in_group[0] + count >= thread->group_size[0]) {
        return false;
    }
    thread->position_in_group[0] += count;
    thread->position_in_grid[0] += count;
    thread->index += count;
    thread->lane = thread->index % SOFT_SIMD_WIDTH;
    thread->simdgroup = thread->index / SOFT_SIMD_WIDTH;
    return true;
}

/* ---- memory of a threadgroup ---- */

#define POISON 0xCD /* as SOFTMETAL_POISON fills buffers */

void
soft_threadgroup_memory_clear(soft_threadgroup_memory *memory)
{
    memory->given_nbytes = memory->end = 0;
    memory->count = 0;
}

static void *
add_place(soft_threadgroup_memory *memory, soft_u32 number, bool is_argument, soft_u64 nbytes,
          soft_u64 alignment)
{
    soft_u64 unit = alignment > 16 ? alignment : 16;
    uintptr_t base = (uintptr_t)memory->bytes;
    soft_u64 begin = (base + memory->end + unit - 1) / unit * unit - base;
    if (nbytes > SOFT_MOST_THREADGROUP_NBYTES - memory->given_nbytes ||
        begin + nbytes > sizeof memory->bytes || memory->count == SOFT_MOST_PLACES) {
        return NULL;
    }
    memory->given_nbytes += nbytes;
    memory->end = begin + nbytes + (memory->is_checked ? SOFT_BETWEEN_PLACES_NBYTES : 0);
    soft_u8 *address = memory->bytes + begin;
    memory->places[memory->count++] = (soft_place){number, is_argument, address};
    if (memory->is_poisoned) {
        memset(address, POISON, nbytes);
    }
    if (memory->is_checked) {
        soft_check_place(address, nbytes, number, is_argument);
    }
    return address;
}

void *
soft_threadgroup_memory_place(soft_threadgroup_memory *memory, soft_u32 number,
                              bool is_argument, soft_u64 nbytes, soft_u64 alignment)
{
    for (soft_u32 index = 0; index < memory->count; index++) {
        const soft_place *place = &memory->places[index];
        if (place->number == number && place->is_argument == is_argument) {
            return place->address;
        }
    }
    return add_place(memory, number, is_argument, nbytes, alignment);
}

/* ---- the order in which threads run ---- */

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

unsigned
soft_shuffle_bit(const soft_shuffle *shuffle, uint64_t *state, uint32_t mask)
{
    if (shuffle->order == SOFT_ORDER_LAST) {
        return 31 - (unsigned)__builtin_clz(mask);
    }
    uint32_t from = mask & UINT32_MAX << (soft_seed_random(state) >> 59);
    return (unsigned)__builtin_ctz(from != 0 ? from : mask);
}
