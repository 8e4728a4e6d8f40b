/* autorelease.h: the calling thread's stack of autoreleased objects.
 *
 * Owns:    one stack per thread, emptied when the thread ends.
 * Threads: each function works on the calling thread alone.
 */
#ifndef SOFT_AUTORELEASE_H
#define SOFT_AUTORELEASE_H

#include <stddef.h>

#include <objc/objc.h>

void soft_autorelease_add(id object); /* takes over one reference; leaks it with no pool */
size_t soft_autorelease_push(void);   /* opens a pool; what soft_autorelease_pop wants */
void soft_autorelease_pop(size_t pool);

#endif /* SOFT_AUTORELEASE_H */
