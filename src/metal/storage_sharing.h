/* storage_sharing.h: who else reads and writes the bytes of a storage: the CPU, and GPU work of
 * frameworks.
 *
 *     managed storage:   the CPU's   ── didModifyRange, before GPU work ─────────►   the GPU's
 *                        copy        ◄─ synchronizeResource, after the GPU wrote ─   copy
 *                          ▲                                                           ▲
 *                     host views                                         fills and copies of ours
 *
 * Owns:    storage_sharing of the record: which GPU writes the CPU's copy has, how many host
 *          views are out, whether the handle was given away.
 * Calls:   tracking.h for work in flight, metal_bridge.h.  Never Python.  host_access.h waits
 *          and fetches.
 * Threads: any, without the GIL; never waiting.
 * Rule:    calls of ours write managed memory on the GPU, as they do private memory; on the CPU's
 *          copy only behind tracking_lock, where the GPU has no work on it.  Both ways between
 *          the copies carry the whole buffer, so a write to the CPU's could be lost to another
 *          thread's synchronisation, whatever bytes that was about.
 */
#ifndef MD_STORAGE_SHARING_H
#define MD_STORAGE_SHARING_H

#include "metal/storage_record.h"
#include "metal/tracking.h"

/* Was the handle given away, so that others may read and write the bytes on the GPU? */
bool storage_is_exported(metal_storage *storage);
/* Before a framework gets the handle: its GPU work will see what the CPU wrote. */
void storage_publish(metal_storage *storage);
/* A host view comes back. */
void storage_close_host_view(metal_storage *storage, bool is_readonly);

/* ---- managed storage, for host_access.c and work.c; `_locked`: behind tracking_lock ---- */

static inline bool
storage_is_managed(const metal_storage *storage)
{
    return storage->mode == BRIDGE_MANAGED && storage->handle != NULL;
}

/* How many GPU writes of ours there are; each has a number, from 1 on. */
uint64_t storage_count_gpu_writes(metal_storage *storage);
/* Our GPU work writes.  Returns the number of the write; 0: one memory. */
uint64_t storage_note_gpu_write_locked(metal_storage *storage);
/* The CPU's copy has the GPU write of this number, and all before it. */
void storage_note_fetched(metal_storage *storage, uint64_t number);
bool storage_has_fetched(metal_storage *storage, uint64_t number);

/* Is a writable host view out? */
bool storage_has_host_writers(metal_storage *storage);
/* ... or any, or one on its way, so that what our GPU work writes must be brought to the CPU's
 * copy by the same work? */
bool storage_has_host_views_locked(metal_storage *storage);
/* So many more, or less: work that is submitted comes before a view, or knows of it.  One on its
 * way counts as a reader. */
void storage_count_views_locked(metal_storage *storage, int readers, int writers);
/* Before our own GPU work: make it see what the CPU wrote through host views.  A buffer whose
 * CPU copy is stale is left alone: it comes up to date with the work in flight. */
void storage_flush_host_views_locked(metal_storage *storage);

#endif /* MD_STORAGE_SHARING_H */
