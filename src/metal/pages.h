/* pages.h: the memory of our shared storages, found by address.
 *
 * Owns:    a tree of the process, one node for each shared storage that storage_new made and nobody destroyed;
 *          and of those that are used as plain memory (pages_new) a reference, until pages_free.
 * Why:     CPU memory that somebody hands us may be a view of an MTLBuffer that there is.  A second one over
 *          the same bytes would not be known to whoever waits for work on the first.
 * Calls:   storage.h.  Never Python.
 * Threads: any, without the GIL; one short lock.
 * Fork:    the lock is held across fork(); in the child nothing is made, and what was made can be freed.
 */
#ifndef MD_PAGES_H
#define MD_PAGES_H

#include "metal/storage.h"

/* ---- for storage.c ---- */

void pages_add(metal_storage *storage);    /* of ours, shared; its address and capacity never change */
void pages_remove(metal_storage *storage); /* before its handle is released */

/* ---- for all ---- */

/* The storage that holds [address, address + nbytes): +1.  NULL: none of ours does. */
metal_storage *pages_find(const void *address, size_t nbytes);

/* Memory of the default device, page-aligned; NULL: Metal has none.  The bytes are not set to anything. */
void *pages_new(size_t nbytes);
/* False: the memory is not of pages_new. */
bool pages_free(void *address);

#endif /* MD_PAGES_H */
