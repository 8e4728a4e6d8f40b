/* IOSurface.h: what the bridge uses of IOSurface, declared as Apple has it, to compile it
 * without a Mac. */
#ifndef CONFORMANCE_IOSURFACE_H
#define CONFORMANCE_IOSURFACE_H

#include <CoreFoundation/CoreFoundation.h>

#include <mach/kern_return.h>
#include <stddef.h>
#include <stdint.h>

typedef struct __IOSurface *IOSurfaceRef;
typedef uint32_t IOSurfaceLockOptions;
enum { kIOSurfaceLockReadOnly = 1 };

CFTypeID IOSurfaceGetTypeID(void);
kern_return_t IOSurfaceLock(IOSurfaceRef buffer, IOSurfaceLockOptions options, uint32_t *seed);
kern_return_t IOSurfaceUnlock(IOSurfaceRef buffer, IOSurfaceLockOptions options,
                              uint32_t *seed);
void *IOSurfaceGetBaseAddress(IOSurfaceRef buffer);
size_t IOSurfaceGetAllocSize(IOSurfaceRef buffer);
void IOSurfaceIncrementUseCount(IOSurfaceRef buffer);
void IOSurfaceDecrementUseCount(IOSurfaceRef buffer);

#endif
