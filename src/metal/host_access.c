/* host_access.c: see host_access.h. */
#include "metal/host_access.h"

#include <pthread.h>

#include "metal/storage_sharing.h"
#include "metal/tracking.h"
#include "metal/work.h"

static bridge_status
wait_for_work(const metal_storage *storage, bool is_for_writing, bridge_error *error)
{
    return tracking_is_quiet() ? BRIDGE_OK
                               : tracking_wait(storage->handle, is_for_writing, error);
}

/* ---- managed storage ---- */

/* Taken before tracking_lock: one synchronisation at a time, and none under way when a host
 * view goes out. */
static pthread_mutex_t fetching = PTHREAD_MUTEX_INITIALIZER;

/* In a forked child nobody would give it back, and nothing synchronises. */
static void
lock_fetching(void)
{
    if (!bridge_is_forked()) {
        (void)pthread_mutex_lock(&fetching);
    }
}

static void
unlock_fetching(void)
{
    if (!bridge_is_forked()) {
        (void)pthread_mutex_unlock(&fetching);
    }
}

/* `wanted` is how many GPU writes there were when the access began.  While a writable host view
 * is out, the CPU's copy leads: synchronising for GPU work that we do not know of would undo
 * what was written through the view. */
static bool
must_fetch(metal_storage *storage, uint64_t wanted)
{
    return !storage_has_fetched(storage, wanted) ||
           (storage_is_exported(storage) && !storage_has_host_writers(storage));
}

static bridge_status
synchronize(metal_storage *storage, bridge_error *error)
{
    uint64_t number, value;
    metal_stream *stream = stream_default(storage->device);
    if (stream == NULL) { /* unreached: no test makes it fail here */
        return stream_default_status();
    }
    bridge_status status = work_synchronize(stream, storage, &number, &value);
    if (status != BRIDGE_OK) {
        return status;
    }
    (void)stream_wait(stream, value, STREAM_FOREVER);
    status = wait_for_work(storage, false, error); /* takes the failure, if there is one */
    if (status == BRIDGE_OK) {
        storage_note_fetched(storage, number);
    }
    return status;
}

static bridge_status
fetch_locked(metal_storage *storage, uint64_t wanted, bridge_error *error)
{
    return must_fetch(storage, wanted) ? synchronize(storage, error) : BRIDGE_OK;
}

static void
count_views(metal_storage *storage, int readers, int writers)
{
    tracking_lock();
    storage_count_views_locked(storage, readers, writers);
    tracking_unlock();
}

/* ---- every storage mode ---- */

bridge_status
host_access_begin_read(metal_storage *storage, bridge_error *error)
{
    uint64_t wanted = storage_count_gpu_writes(storage);
    bridge_status status = wait_for_work(storage, false, error);
    if (status == BRIDGE_OK && storage_is_managed(storage) && must_fetch(storage, wanted)) {
        lock_fetching();
        status = fetch_locked(storage, wanted, error);
        unlock_fetching();
    }
    return status;
}

bridge_status
host_access_begin_write(metal_storage *storage, bridge_error *error)
{
    return wait_for_work(storage, true, error);
}

bridge_status
host_access_open_readonly_view(metal_storage *storage, bridge_error *error)
{
    if (!storage_is_managed(storage)) { /* one memory: nothing to keep equal */
        return wait_for_work(storage, false, error);
    }
    count_views(storage, 1, 0); /* from here on GPU writes bring the CPU's copy along */
    bridge_status status = host_access_begin_read(storage, error);
    if (status != BRIDGE_OK) {
        count_views(storage, -1, 0);
    }
    return status;
}

bridge_status
host_access_open_view(metal_storage *storage, bridge_error *error)
{
    if (!storage_is_managed(storage)) {
        return wait_for_work(storage, true, error);
    }
    count_views(storage, 1, 0); /* it reads; it writes once no synchronisation is under way */
    uint64_t wanted = storage_count_gpu_writes(storage);
    bridge_status status = wait_for_work(storage, true, error);
    lock_fetching();
    if (status == BRIDGE_OK) {
        status = fetch_locked(storage, wanted, error);
    }
    count_views(storage, -1, status == BRIDGE_OK ? 1 : 0);
    unlock_fetching();
    return status;
}

#define SMALL_WRITE 16384 /* bytes: all submissions wait for it */

bool
host_access_leaves_to_gpu(const metal_storage *storage, size_t nbytes)
{
    return storage->mode == BRIDGE_PRIVATE ||
           (storage->mode == BRIDGE_MANAGED && nbytes > SMALL_WRITE);
}

bool
host_access_write_idle(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                       void (*write)(void *context), void *context)
{
    if (!storage_is_managed(storage) || nbytes > SMALL_WRITE || bridge_is_forked()) {
        return false;
    }
    tracking_lock(); /* no work is submitted, and no synchronisation, until both copies agree */
    bool is_idle = tracking_is_idle_locked(storage->handle) && !storage_is_exported(storage) &&
                   storage_has_fetched(storage, storage_count_gpu_writes(storage));
    if (is_idle) {
        WATCH_HOST_ACCESS(storage->handle, offset_bytes, nbytes, true);
        write(context);
        bridge_buffer_did_modify(storage->handle, offset_bytes, nbytes);
    }
    tracking_unlock();
    return is_idle;
}
