/* pages.h: the memory of our shared storages, found by address.
 *
 * Owns:    a tree of the process, one node for each shared storage that storage_new made and
 *          nobody destroyed; and of those that are used as plain memory (pages_new) a
 *          reference, until pages_free.
 * Why:     CPU memory that somebody hands us may be a view of an MTLBuffer that there is.  A
 *          second one over the same bytes would not be known to whoever waits for work on the
 *          first.
 * Calls:   storage.h.  Never Python.
 * Threads: any, without the GIL; one short lock.
 * Fork:    the lock is held across fork(); in the child nothing is made, and what was made can
 *          be freed.
 */
#ifndef MD_PAGES_H
#define MD_PAGES_H

#include "metal/storage_record.h"

/* ---- for storage.c ---- */

/* of ours, shared; its address and capacity never change */
void pages_add(metal_storage *storage);
void pages_remove(metal_storage *storage); /* before its handle is released */

/* ---- for plain_memory.c ---- */

/* The storage whose MTLBuffer has room for [address, address + nbytes): +1; what of it may be
 * used is for the caller to ask. */
metal_storage *pages_hold(const void *address, size_t nbytes, size_t *offset);
/* The storage behind plain memory, which is so no longer: the reference is the caller's.
 * NULL: it is not plain. */
metal_storage *pages_take_plain(void *address);

static inline bool
pages_fit(size_t room, size_t offset, size_t nbytes)
{
    return offset <= room && nbytes <= room - offset;
}

#endif /* MD_PAGES_H */
