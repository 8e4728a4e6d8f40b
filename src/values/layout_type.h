/* layout_type.h: the Python type `StridedLayout`; layout_type_object.h makes and reads its
 * objects.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_LAYOUT_TYPE_H
#define MD_LAYOUT_TYPE_H

#include "python/state.h"

/* Call once, after the type is made: sets what its spec cannot say.  0, or -1. */
int layout_type_prepare(md_state *state);

#endif /* MD_LAYOUT_TYPE_H */
