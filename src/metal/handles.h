/* handles.h: the storages whose memory is ours, found by their MTLBuffer.
 *
 * Owns:    a table of the process: handle -> storage, one entry for each storage_new that is
 *          alive.
 * Why:     a tensor that comes back from another framework names a buffer of ours.  Found
 *          here, its handle needs no proof and no message.
 * Threads: any thread, without the GIL; one short lock, which no callback runs under.
 * Fork:    the lock is held across fork(), so that a child never inherits it taken.
 */
#ifndef MD_HANDLES_H
#define MD_HANDLES_H

#include "metal/storage_record.h"

/* Remember a storage that has a handle.  Out of memory: it is not found later. */
void handles_add(metal_storage *storage);
void handles_remove(const metal_storage *storage); /* before its handle is released */

/* The storage of a handle, retained (+1), if it is one of ours and still alive; else NULL.
 * Does not look behind the handle. */
metal_storage *handles_find(const void *handle);

#endif /* MD_HANDLES_H */
