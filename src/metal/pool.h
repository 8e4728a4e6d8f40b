/* pool.h: free storages, kept for the next allocation of their size.
 *
 * Owns:    the cached storages of each device and mode, with their MTLBuffers, and the counts.
 * Calls:   metal_bridge.h, lookup.h.  Never Python.
 * Threads: any, without the GIL; one short lock, under which Metal is not called.
 * Rule:    a storage comes here with its last reference, so our GPU work on it is complete
 *          (work.h holds a reference until then) and no consumer has it.  One whose handle was
 *          given away comes back only if its retain count is ours alone: a framework's command
 *          buffer may retain it.  While MLX is loaded it does not come back: MLX's retain nothing.
 * Bytes:   a storage comes out with the bytes that it was given back with, or poisoned
 *          (SOFTMETAL_POISON).
 * Fork:    a child takes and keeps nothing.
 */
#ifndef MD_POOL_H
#define MD_POOL_H

#include "metal/storage_record.h"

#define POOL_MODES 3
#define POOL_NO_LIMIT UINT64_MAX

typedef struct pool_counts {
    uint64_t live_nbytes, live_count;     /* in use */
    uint64_t cached_nbytes, cached_count; /* waiting for use */
    uint64_t peak_nbytes;                 /* the most that was live at once */
    uint64_t allocations;                 /* asked for, since the process began */
    uint64_t hits;                        /* of them, answered without Metal */
} pool_counts;

/* The length of the MTLBuffer made for `nbytes` (> 0): at most an eighth more, from 256 bytes
 * up. */
size_t pool_round(size_t nbytes);

/* A cached storage for so many bytes, counted as live: +1.  NULL: there is none, or nbytes is 0.
 * Calls no Metal and never waits, so the GIL may be held. */
metal_storage *pool_take(const device_record *device, size_t nbytes, bridge_storage mode);
/* A storage of `capacity` bytes is about to be made: its bytes count as live.  False: they
 * would pass the limit even with an empty cache; nothing is counted. */
bool pool_admit(const device_record *device, size_t capacity, bridge_storage mode);
/* One that was admitted is made, or could not be made. */
void pool_settle(const device_record *device, size_t capacity, bridge_storage mode,
                 bool is_made);
/* Take a storage of storage_new that has no references.  It is kept if `is_reusable`, and if its
 * size has a class; else its MTLBuffer goes back to Metal. */
void pool_give(metal_storage *storage, bool is_reusable);

/* Destroy what is cached, of one device or of all (NULL).  Returns the bytes that were
 * let go. */
uint64_t pool_empty(const device_record *device);

/* The most bytes that may be live and cached at once; POOL_NO_LIMIT for none.  What is cached
 * beyond it is let go; what is live stays. */
void pool_set_limit(const device_record *device, uint64_t limit_nbytes);
uint64_t pool_limit(const device_record *device);

/* The counts of each mode, and of all together: their peak is its own, not a sum. */
void pool_read(const device_record *device, pool_counts modes[POOL_MODES], pool_counts *total);

#endif /* MD_POOL_H */
