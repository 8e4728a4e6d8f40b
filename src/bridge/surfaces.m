/* surfaces.m: the memory of an IOSurface, which video frames lie in; macOS alone has them. */
#import "bridge/parts.h"

#ifdef __APPLE__
#import <CoreVideo/CoreVideo.h>
#import <IOSurface/IOSurface.h>
#endif

#ifdef __APPLE__
/* Borrowed from the handle; NULL: it is no object, or neither of the two. */
static IOSurfaceRef
surface_of(const void *handle)
{
    if (!is_object(handle)) {
        return NULL;
    }
    CFTypeID kind = CFGetTypeID(handle);
    if (kind == IOSurfaceGetTypeID()) {
        return (IOSurfaceRef)(void *)handle;
    }
    return kind == CVPixelBufferGetTypeID()
               ? CVPixelBufferGetIOSurface((CVPixelBufferRef)(void *)handle)
               : NULL;
}

/* A lock bounds the CPU's use of the bytes, it does not make their address: the surface is
 * mapped into the process as long as it is kept.  SPEC IOSurfaceRef.h IOSurfaceLock.  Taken
 * once, so that what a GPU has written before is there, and read-only, so that the surface
 * does not count as changed. */
static void *
surface_address(IOSurfaceRef surface)
{
    if (IOSurfaceLock(surface, kIOSurfaceLockReadOnly, NULL) != KERN_SUCCESS) {
        return NULL;
    }
    void *address = IOSurfaceGetBaseAddress(surface);
    (void)IOSurfaceUnlock(surface, kIOSurfaceLockReadOnly, NULL);
    return address;
}

static bridge_status
copy_surface(const void *handle, bridge_surface **out, void **pages, size_t *nbytes)
{
    IOSurfaceRef surface = surface_of(handle);
    void *address = surface == NULL ? NULL : surface_address(surface);
    if (address == NULL) {
        return surface == NULL ? BRIDGE_NOT_A_SURFACE : BRIDGE_NO_ADDRESS;
    }
    *out = (bridge_surface *)(void *)CFRetain(surface);
    IOSurfaceIncrementUseCount(surface);
    *pages = address;
    *nbytes = IOSurfaceGetAllocSize(surface);
    return BRIDGE_OK;
}

void
bridge_surface_release(bridge_surface *surface)
{
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    IOSurfaceDecrementUseCount((IOSurfaceRef)(void *)surface);
    CFRelease(surface);
}
#else
static bridge_status
copy_surface(const void *handle, bridge_surface **out, void **pages, size_t *nbytes)
{
    (void)handle, (void)out, (void)pages, (void)nbytes;
    return BRIDGE_NO_SURFACES;
}

/* unreached: only on a Mac */
void
bridge_surface_release(bridge_surface *surface)
{
    (void)surface; /* there is none */
}
#endif

bridge_status
bridge_surface_copy(const void *handle, bridge_surface **out, void **pages, size_t *nbytes)
{
    *out = NULL;
    *pages = NULL;
    *nbytes = 0;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    return copy_surface(handle, out, pages, nbytes);
}
