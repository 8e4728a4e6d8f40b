/* plain_memory.h: memory of shared storages by its address alone: found, made and freed.
 *
 * Threads: any, without the GIL.
 */
#ifndef MD_PLAIN_MEMORY_H
#define MD_PLAIN_MEMORY_H

#include "metal/storage.h"

/* The storage that holds [address, address + nbytes): +1.  NULL: none of ours does. */
metal_storage *plain_memory_find(const void *address, size_t nbytes);

/* Memory of the default device, page-aligned; NULL: Metal has none.  The bytes are not set to
 * anything. */
void *plain_memory_new(size_t nbytes);
/* False: the memory is not of plain_memory_new. */
bool plain_memory_free(void *address);

#endif /* MD_PLAIN_MEMORY_H */
