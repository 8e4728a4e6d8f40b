/* lookup.h: the storages whose memory is ours, found by their MTLBuffer and by their address, and
 * memory that may not be written, found again when a consumer brings it back.
 *
 * Owns:    a table and a tree of the process, with an entry for each storage of storage_new that
 *          is alive; a reference to each that is used as plain memory, from storage_new_memory to
 *          storage_free_memory; a list of the read-only storages whose handle or address was given
 *          away.
 * Why:     a tensor that comes back from another framework names our buffer.  Found here,
 *          its handle needs no proof and no message.  Foreign CPU memory may be a view of one of
 *          our MTLBuffers: work on a second MTLBuffer over the same bytes would be unknown to
 *          those who wait for the first.  torch and others drop DLPack's READ_ONLY flag; that the
 *          memory is read-only is known here.
 * Threads: any, without the GIL; one short lock, which no callback runs under.  When nothing is
 *          listed as read-only, a question about that costs one memory read.
 * Fork:    the lock is held across fork(), so that a child never inherits it taken.
 */
#ifndef MD_LOOKUP_H
#define MD_LOOKUP_H

#include "metal/storage_record.h"

/* Remember a storage that has a handle; its address and capacity never change. */
void lookup_add(metal_storage *storage);
void lookup_remove(metal_storage *storage); /* before its handle is released */

/* The storage of a handle, retained (+1), if it is ours and still alive; else NULL.
 * Does not look behind the handle. */
metal_storage *lookup_handle(const void *handle);

/* ---- memory that may not be written ---- */

/* List the storage if its memory is read-only: before its handle or its address leaves us.  A
 * storage over a parent is left out, since the parent's memory is ours and can be written. */
void lookup_publish_readonly(metal_storage *storage);
/* While the handle is still the storage's, and before the storage is freed. */
void lookup_forget_readonly(metal_storage *storage);

bool lookup_knows_no_readonly(void); /* Is nothing listed? */
/* Is the MTLBuffer that of a listed storage? */
bool lookup_is_readonly(const void *handle);
/* Are any of the bytes those of a listed storage? */
bool lookup_has_readonly(const char *address, size_t nbytes);

/* ---- for storage.c ---- */

/* The storage whose MTLBuffer has room for [address, address + nbytes): +1; NULL: none.  The
 * range may lie in its spare bytes: the caller checks. */
metal_storage *lookup_memory(const void *address, size_t nbytes, size_t *offset);
/* End the use as plain memory: the reference is the caller's.  NULL: it was not plain. */
metal_storage *lookup_take_plain(void *address);

static inline bool
lookup_fits(size_t room, size_t offset, size_t nbytes)
{
    return offset <= room && nbytes <= room - offset;
}

#endif /* MD_LOOKUP_H */
