/* CoreVideo.h: what the bridge uses of CoreVideo, declared as Apple has it, to compile it
 * without a Mac. */
#ifndef CONFORMANCE_COREVIDEO_H
#define CONFORMANCE_COREVIDEO_H

#include <IOSurface/IOSurface.h>

typedef struct __CVBuffer *CVPixelBufferRef;

CFTypeID CVPixelBufferGetTypeID(void);
IOSurfaceRef CVPixelBufferGetIOSurface(CVPixelBufferRef pixelBuffer);

#endif
