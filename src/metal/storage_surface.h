/* storage_surface.h: the memory of an IOSurface as a storage.
 *
 * Threads: any, with or without the GIL; may wait for the GPU's writes to the surface.
 */
#ifndef MD_STORAGE_SURFACE_H
#define MD_STORAGE_SURFACE_H

#include "metal/storage.h"

/* Over the whole memory of the surface behind `handle` (an IOSurfaceRef or CVPixelBufferRef),
 * which is kept and counts as in use until the storage is gone.  `*out` is +1 on BRIDGE_OK,
 * else NULL; `*nbytes` is the surface's length where it is known. */
bridge_status storage_wrap_surface(const device_record *device, const void *handle,
                                   metal_storage **out, size_t *nbytes);

#endif /* MD_STORAGE_SURFACE_H */
