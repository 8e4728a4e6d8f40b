/* CoreFoundation.h: what the bridge uses of CoreFoundation, declared as Apple has it, to
 * compile it without a Mac. */
#ifndef CONFORMANCE_COREFOUNDATION_H
#define CONFORMANCE_COREFOUNDATION_H

typedef unsigned long CFTypeID;
typedef const void *CFTypeRef;

CFTypeID CFGetTypeID(CFTypeRef cf);
CFTypeRef CFRetain(CFTypeRef cf);
void CFRelease(CFTypeRef cf);

#endif
