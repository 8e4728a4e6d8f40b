/* pages.h: the memory of our shared storages, found by address.
 *
 * Owns:    a tree of the process, one node for each shared storage of storage_new; a reference
 *          to each that is used as plain memory, from storage_new_memory to storage_free_memory.
 * Why:     foreign CPU memory may be a view of an MTLBuffer of ours.  Work on a second
 *          MTLBuffer over the same bytes would be unknown to those who wait for the first.
 * Calls:   storage.h.  Never Python.
 * Threads: any, without the GIL; one short lock.
 * Fork:    the lock is held across fork(); in the child nothing is made, and what was made can
 *          be freed.
 */
#ifndef MD_PAGES_H
#define MD_PAGES_H

#include "metal/storage_record.h"

/* ---- for storage.c ---- */

/* The storage is shared and ours; its address and capacity never change. */
void pages_add(metal_storage *storage);
void pages_remove(metal_storage *storage); /* before its handle is released */

/* The storage whose MTLBuffer has room for [address, address + nbytes): +1; NULL: none.  The
 * range may lie in its spare bytes: the caller checks. */
metal_storage *pages_hold(const void *address, size_t nbytes, size_t *offset);
/* End the use as plain memory: the reference is the caller's.  NULL: it was not plain. */
metal_storage *pages_take_plain(void *address);

static inline bool
pages_fit(size_t room, size_t offset, size_t nbytes)
{
    return offset <= room && nbytes <= room - offset;
}

#endif /* MD_PAGES_H */
