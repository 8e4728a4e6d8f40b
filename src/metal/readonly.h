/* readonly.h: memory that may not be written, found again when a consumer brings it back.
 *
 * Owns:    the list of read-only storages whose handle or address was given away.  torch and
 *          others drop DLPack's READ_ONLY flag; that the memory is read-only is known here.
 * Calls:   locks.h.
 * Threads: any, without the GIL.  When nothing is listed, a question costs one memory read.
 * Fork:    the lock is held across fork().
 */
#ifndef MD_READONLY_H
#define MD_READONLY_H

#include "metal/storage_record.h"

/* List the storage if its memory is read-only: before its handle or its address leaves us.  A
 * storage over a parent is left out, since the parent's memory is ours and can be written. */
void readonly_publish(metal_storage *storage);
/* While the handle is still the storage's, and before the storage is freed. */
void readonly_forget(metal_storage *storage);

/* Is nothing listed? */
bool readonly_is_empty(void);
/* Is the MTLBuffer that of a listed storage? */
bool readonly_knows_handle(const void *handle);
/* Are any of the bytes those of a listed storage? */
bool readonly_knows_bytes(const char *address, size_t nbytes);

#endif /* MD_READONLY_H */
