/* array_map.h: the items of an Array at a CPU address, for every storage mode.
 *
 * Rule:    array_map ... array_unmap bracket every access by the CPU: they wait for the GPU,
 *          move private bytes through a stage.
 * Threads: the GIL is held; it is released while waiting.
 */
#ifndef MD_ARRAY_MAP_H
#define MD_ARRAY_MAP_H

#include "array/array.h"
#include "metal/tracking_watch.h"
#include "streams/wait_rule.h"

/* The bytes of the buffer that the items lie in, from the first to the last. */
touched_bytes array_touched_bytes(const ArrayObject *self);

/* The same for the wait rule, which passes them on to the validation and uses none itself: they
 * are worked out where that listens. */
static inline touched_bytes
array_watched_bytes(const ArrayObject *self)
{
    return WATCH_IS_ON() ? array_touched_bytes(self)
                         : (touched_bytes){.storage = array_storage(self)};
}

/* MAP_WRITE may also read; MAP_OVERWRITE promises to write every item, or to end with
 * `is_written` false. */
typedef enum { MAP_READ, MAP_WRITE, MAP_OVERWRITE } map_access;

typedef struct array_mapping {
    char *origin;         /* where element 0 is */
    metal_storage *stage; /* owned (+1); NULL where the memory itself is mapped */
    map_access access;
    int64_t first_bytes, nbytes; /* of the buffer: what the stage holds */
} array_mapping;

/* -1 with an exception: ValueError for writing a read-only array, MemoryError, MetalError. */
int array_map(const char *function, ArrayObject *self, map_access access, array_mapping *out);

/* Ends the access.  `is_written` false: nothing is written back.  -1: MetalError. */
int array_unmap(const char *function, ArrayObject *self, array_mapping *mapping,
                bool is_written);

#endif /* MD_ARRAY_MAP_H */
