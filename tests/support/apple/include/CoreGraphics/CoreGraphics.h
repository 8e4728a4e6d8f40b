/* CoreGraphics.h: what the bridge uses of CoreGraphics, declared as Apple has it, to compile it
 * without a Mac. */
#ifndef CONFORMANCE_COREGRAPHICS_H
#define CONFORMANCE_COREGRAPHICS_H

#include <CoreFoundation/CoreFoundation.h>

CFTypeID CGColorSpaceGetTypeID(void);

#endif
