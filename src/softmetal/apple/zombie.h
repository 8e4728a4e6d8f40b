/* zombie.h: what is left of a freed object while validation is on.
 *
 * Owns:    nothing; object_list.h keeps the dead.
 * Threads: any.
 */
#ifndef SOFT_ZOMBIE_H
#define SOFT_ZOMBIE_H

#include <objc/objc.h>

/* Turn an object without owners into one that reports every message.  Takes over its memory. */
void soft_zombie_make(id object);

#endif /* SOFT_ZOMBIE_H */
