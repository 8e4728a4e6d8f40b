/* storage_surface.c: see storage_surface.h. */
#include "metal/storage_surface.h"

/* unreached: only on a Mac */
static void
retire_surface(metal_storage *storage, const void *here)
{
    (void)here; /* any thread may */
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
    if (offset != 0) {
        storage_release(*out);
        *out = NULL;
        return BRIDGE_NOT_PAGES;
    }
    (*out)->is_exported = true; /* its giver can write to it as well */
    return BRIDGE_OK;
}
