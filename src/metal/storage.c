/* storage.c: see storage.h. */
#include "metal/storage.h"

#include "metal/lookup.h"
#include "metal/mlx_loaded.h"
#include "metal/pool.h"
#include "metal/timeline.h"
#include "metal/tracking.h"
#include "metal/tracking_watch.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t
round_down(size_t value, size_t unit)
{
    return value / unit * unit;
}

static size_t
round_up(size_t value, size_t unit)
{
    return round_down(value + unit - 1, unit);
}

/* ---- making ---- */

static bridge_status
check_mode(const device_record *device, bridge_storage mode)
{
    bool is_one_memory = mode != BRIDGE_MANAGED || device->facts.has_unified_memory;
    return is_one_memory ? BRIDGE_OK : BRIDGE_NOT_UNIFIED;
}

static metal_storage *
make_record(bridge_buffer *handle, const device_record *device, size_t nbytes,
            bridge_storage mode, char *address, const storage_owner *owner)
{
    /* glibc's calloc is slower by half an import */
    metal_storage *storage = malloc(sizeof *storage);
    if (storage == NULL) {
        return NULL;
    }
    /* Part by part: gcc clears more than 64 bytes by `rep stos`, a twentieth of an import. */
    memset(storage, 0, offsetof(metal_storage, owner));
    storage->owner = owner == NULL ? (storage_owner){0} : *owner;
    storage->cached = (pool_place){0};
    storage->pages = (pages_place){0};
    storage->is_listed = false;
    storage->refs = 1;
    storage->mode = mode;
    storage->handle = handle;
    storage->device = device;
    storage->nbytes = nbytes;
    storage->address = address;
    return storage;
}

/* A storage over a new MTLBuffer of exactly `capacity` bytes. */
static bridge_status
make_new(const device_record *device, size_t nbytes, size_t capacity, bridge_storage mode,
         metal_storage **out)
{
    *out = make_record(NULL, device, nbytes, mode, NULL, NULL);
    if (*out == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    bridge_status status = BRIDGE_OVER_LIMIT;
    if (pool_admit(device, capacity, mode)) {
        status = bridge_buffer_new(device->handle, capacity, mode, &(*out)->handle);
        pool_settle(device, capacity, mode, status == BRIDGE_OK);
    }
    if (status != BRIDGE_OK) {
        free(*out);
        *out = NULL;
        return status;
    }
    (*out)->address = mode == BRIDGE_PRIVATE ? NULL : bridge_buffer_contents((*out)->handle);
    (*out)->capacity = capacity;
    (*out)->is_ours = true;
    lookup_add(*out);
    timeline_born((*out)->handle);
    return BRIDGE_OK;
}

static bridge_status
make_new_or_empty_the_cache(const device_record *device, size_t nbytes, bridge_storage mode,
                            metal_storage **out)
{
    bridge_status status = make_new(device, nbytes, pool_round(nbytes), mode, out);
    if (status != BRIDGE_NO_MEMORY && status != BRIDGE_TOO_LARGE &&
        status != BRIDGE_OVER_LIMIT) {
        return status;
    }
    if (status == BRIDGE_NO_MEMORY) {
        (void)pool_empty(NULL);
    }
    size_t capacity = round_up(nbytes, STORAGE_UNIT); /* nothing more than is asked */
    return make_new(device, nbytes, capacity, mode, out);
}

bridge_status
storage_new(const device_record *device, size_t nbytes, bridge_storage mode,
            metal_storage **out)
{
    bridge_status status = check_mode(device, mode);
    *out = NULL;
    if (status != BRIDGE_OK) {
        return status;
    }
    if (nbytes > SIZE_MAX - STORAGE_UNIT) {
        return BRIDGE_TOO_LARGE;
    }
    if (nbytes == 0) { /* Metal has no empty buffers */
        *out = make_record(NULL, device, 0, mode, NULL, NULL);
        return *out == NULL ? BRIDGE_NO_MEMORY : BRIDGE_OK;
    }
    *out = pool_take(device, nbytes, mode);
    return *out != NULL ? BRIDGE_OK : make_new_or_empty_the_cache(device, nbytes, mode, out);
}

bridge_status
storage_new_texture(const device_record *device, const bridge_texture_facts *facts,
                    size_t nbytes, metal_storage **out)
{
    *out = make_record(NULL, device, nbytes, BRIDGE_PRIVATE, NULL, NULL);
    if (*out == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    bridge_status status = BRIDGE_OVER_LIMIT;
    bridge_texture *texture = NULL;
    if (pool_admit(device, nbytes, BRIDGE_PRIVATE)) {
        status = bridge_texture_new(device->handle, facts, &texture);
        pool_settle(device, nbytes, BRIDGE_PRIVATE, status == BRIDGE_OK);
    }
    if (status != BRIDGE_OK) {
        free(*out);
        *out = NULL;
        return status;
    }
    (*out)->handle = (bridge_buffer *)(void *)texture;
    (*out)->capacity = nbytes;
    (*out)->is_ours = true;
    (*out)->is_labelled = true; /* the pool takes it for nothing else */
    lookup_add(*out);
    timeline_born((*out)->handle);
    return BRIDGE_OK;
}

/* Over a buffer that `parent`, our storage, keeps: stolen, whatever happens. */
static bridge_status
wrap_parent(metal_storage *parent, size_t nbytes, const storage_owner *owner,
            metal_storage **out)
{
    *out = make_record(parent->handle, parent->device, nbytes, parent->mode, parent->address,
                       owner);
    if (*out == NULL) {
        storage_release(parent);
        return BRIDGE_NO_MEMORY;
    }
    (*out)->parent = parent;
    (*out)->is_readonly = parent->is_readonly;
    (*out)->is_exported = true;
    return BRIDGE_OK;
}

bridge_status
storage_wrap_buffer(bridge_buffer *buffer, metal_storage *parent, const device_record *device,
                    size_t nbytes, const storage_owner *owner, metal_storage **out)
{
    if (parent != NULL) {
        return wrap_parent(parent, nbytes, owner, out);
    }
    bridge_storage mode = bridge_buffer_storage(buffer);
    bridge_status status = check_mode(device, mode);
    *out = NULL;
    if (status != BRIDGE_OK) {
        return status;
    }
    *out = make_record(buffer, device, nbytes, mode, bridge_buffer_contents(buffer), owner);
    if (*out == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    bridge_buffer_retain(buffer);
    (*out)->is_exported = true; /* its giver can write to it as well */
    return BRIDGE_OK;
}

/* The end of a storage that is not ours: its owner goes, and the record with it. */
static void
retire(metal_storage *storage, const void *here)
{
    lookup_forget_readonly(storage);
    if (storage->owner.retire != NULL) {
        storage->owner.retire(storage, here);
    }
    else {
        storage_free(storage);
    }
}

/* Metal has let go of the pages. */
static void
end_pages(void *context)
{
    retire(context, NULL);
}

size_t
storage_pages_nbytes(const void *address, size_t nbytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return round_up((uintptr_t)address + nbytes, page) - round_down((uintptr_t)address, page);
}

bridge_status
storage_wrap_host(const device_record *device, void *address, size_t nbytes,
                  const storage_owner *owner, metal_storage **out, size_t *offset_bytes)
{
    /* mutant survives (dropped assignment): callers look at it after a success */
    *out = NULL;
    uintptr_t first = round_down((uintptr_t)address, (size_t)sysconf(_SC_PAGESIZE));
    size_t length = storage_pages_nbytes(address, nbytes);
    *offset_bytes = (uintptr_t)address - first;
    if (device->facts.reads_stale_files && bridge_map_at(address) != BRIDGE_NO_FILE) {
        return BRIDGE_STALE_FILE;
    }
    /* The rest of the last page is not ours to use. */
    metal_storage *storage =
        make_record(NULL, device, *offset_bytes + nbytes, BRIDGE_SHARED, (char *)first, NULL);
    if (storage == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    bridge_status status = bridge_buffer_new_over_pages(device->handle, (void *)first, length,
                                                        end_pages, storage, &storage->handle);
    if (status != BRIDGE_OK) {
        free(storage);
        return status;
    }
    storage->is_over_pages = true;
    if (owner != NULL) {
        storage->owner = *owner;
    }
    storage->first_byte = *offset_bytes; /* nor is that of the first */
    storage->is_host_memory = true;
    *out = storage;
    return BRIDGE_OK;
}

/* unreached: only on a Mac */
static void
retire_surface(metal_storage *storage, const void *here)
{
    (void)here; /* any thread may */
    /* mutant survives (dropped count): only on a Mac */
    bridge_surface_release(storage->owner.object);
    storage_free(storage);
}

bridge_status
storage_wrap_surface(const device_record *device, const void *handle, metal_storage **out,
                     size_t *nbytes)
{
    bridge_surface *surface;
    void *pages;
    size_t offset = 0;
    *out = NULL;
    bridge_status status = bridge_surface_copy(handle, &surface, &pages, nbytes);
    if (status != BRIDGE_OK) {
        return status;
    }
    /* unreached: only on a Mac */
    storage_owner owner = {.object = surface, .retire = retire_surface};
    status = storage_wrap_host(device, pages, *nbytes, &owner, out, &offset);
    if (status != BRIDGE_OK) {
        bridge_surface_release(surface);
        return status;
    }
    /* byte 0 of the Buffer would not be the surface's; the owner goes with the storage */
    /* mutant survives (condition never): only on a Mac */
    if (offset != 0) {
        storage_release(*out);
        *out = NULL;
        return BRIDGE_NOT_PAGES;
    }
    (*out)->is_exported = true; /* its giver can write to it as well */
    return BRIDGE_OK;
}

void
storage_publish(metal_storage *storage)
{
    lookup_publish_readonly(storage);
    /* the storage that owns the MTLBuffer must not go back to the pool while it is in use */
    for (; storage != NULL; storage = storage->parent) {
        if (!__atomic_load_n(&storage->is_exported, __ATOMIC_RELAXED)) {
            __atomic_store_n(&storage->is_exported, true, __ATOMIC_RELEASE);
            WATCH_GIVE(storage->handle);
        }
    }
}

/* ---- counting ---- */

/* Does no work of others use a buffer that was given away?  Where MLX may have had it, nobody
 * knows. */
static bool
is_let_go(const metal_storage *storage)
{
    return bridge_buffer_is_only_ours(storage->handle) && !mlx_is_loaded();
}

static bool
is_reusable(const metal_storage *storage)
{
    if (storage->is_labelled || !storage_is_exported(storage)) {
        return !storage->is_labelled;
    }
    if (!is_let_go(storage)) {
        return false;
    }
    WATCH_FREE(storage->handle);
    return true;
}

/* Back to the pool, unless a framework may still use the MTLBuffer: then to Metal, so that no other
 * Array gets bytes that the GPU writes. */
static void
release_ours(metal_storage *storage)
{
    bool is_free = is_reusable(storage);
    tracking_forget(storage->handle);
    pool_give(storage, is_free);
}

/* True: it was the last.  Acquire-release: what every other holder did comes before the
 * freeing. */
static bool
drop_reference(metal_storage *storage)
{
    bool can_be_found =
        storage->is_ours && __atomic_load_n(&storage->is_exported, __ATOMIC_RELAXED);
    if (!can_be_found && storage_is_sole(storage)) {
        /* No thread can make a second one meanwhile: lookup.h is asked only for handles that
         * were given away, or for addresses with a reference behind them. */
        __atomic_store_n(&storage->refs, 0, __ATOMIC_RELAXED);
        return true;
    }
    return __atomic_sub_fetch(&storage->refs, 1, __ATOMIC_ACQ_REL) == 0;
}

void
storage_release(metal_storage *storage)
{
    storage_release_at(storage, NULL);
}

void
storage_release_at(metal_storage *storage, const void *home)
{
    if (storage == NULL || !drop_reference(storage)) {
        return;
    }
    if (storage->is_ours) {
        release_ours(storage);
        return;
    }
    if (storage->parent != NULL) {
        storage_release(storage->parent);
        retire(storage, home);
        return;
    }
    bool is_over_pages = storage->is_over_pages;
    tracking_forget(storage->handle);
    if (!is_over_pages) {
        lookup_forget_readonly(storage); /* the handle can be another buffer's from here on */
    }
    /* of pages: ends in end_pages, now or when the GPU is done */
    bridge_buffer_release(storage->handle);
    if (!is_over_pages || bridge_is_forked()) {
        retire(storage, home);
    }
}

void
storage_free(metal_storage *storage)
{
    free(storage);
}

bool
storage_is_sole(const metal_storage *storage)
{
    return __atomic_load_n(&storage->refs, __ATOMIC_ACQUIRE) == 1;
}

/* ---- memory by its address alone ---- */

metal_storage *
storage_find_memory(const void *address, size_t nbytes)
{
    size_t offset = 0;
    metal_storage *found = lookup_memory(address, nbytes, &offset);
    if (found != NULL && !lookup_fits(found->nbytes, offset, nbytes)) {
        storage_release(found);
        return NULL;
    }
    return found;
}

void *
storage_new_memory(size_t nbytes)
{
    metal_storage *storage;
    if (bridge_is_forked() || devices_count() == 0 ||
        storage_new(devices_get(0), nbytes, BRIDGE_SHARED, &storage) != BRIDGE_OK) {
        return NULL;
    }
    if (storage->address == NULL) {
        storage_release(storage);
        return NULL;
    }
    __atomic_store_n(&storage->pages.is_plain, true, __ATOMIC_RELAXED);
    return storage->address;
}

bool
storage_free_memory(void *address)
{
    metal_storage *found = lookup_take_plain(address);
    storage_release(found);
    return found != NULL;
}
