/* threadgroup_memory.c: see threadgroup_memory.h.
 *
 * Owns:    nothing of its own.
 * Calls:   check.h.
 * Threads: see threadgroup_memory.h.
 */
#include "softmetal/kernels/threadgroup_memory.h"

#include <string.h>

#include "softmetal/checker/check.h"

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
    soft_u64 begin = (memory->end + unit - 1) / unit * unit;
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
