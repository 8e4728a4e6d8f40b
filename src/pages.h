/* pages.h: shared storages that are used as plain memory, found by address.
 *
 * Owns:    a sorted table of the process: address -> storage, each +1, until pages_free.
 * Calls:   storage.h.  Never Python.
 * Threads: any, without the GIL; one short lock.
 * Fork:    the lock is held across fork(); in the child nothing is made, and what was made can be freed.
 */
#ifndef MD_PAGES_H
#define MD_PAGES_H

#include "storage.h"

/* Memory of the default device, page-aligned; NULL: Metal has none.  The bytes are not set to anything. */
void *pages_new(size_t nbytes);
/* False: the memory is not of pages_new. */
bool pages_free(void *address);
/* The storage that holds [address, address + nbytes): +1.  NULL: there is none.  One load where there are no
 * pages at all. */
metal_storage *pages_find(const void *address, size_t nbytes);

#endif /* MD_PAGES_H */
