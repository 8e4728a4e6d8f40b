/* layout_index.h: basic indexing by a Python key, of StridedLayouts and Arrays.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_LAYOUT_INDEX_H
#define MD_LAYOUT_INDEX_H

#include "arithmetic/layout.h"
#include "python/state.h"

/* Index by an int, a slice, None, `...`, or a tuple of them.  IndexError with the key's type
 * where it is something else. */
int layout_index(md_state *state, const char *function, PyObject *key, const strided_layout *in,
                 strided_layout *out);

/* The same for a StridedLayout, with cuda.core's classes: ValueError for an index out of
 * range, TypeError for something else.  All strides are 0 if a slice takes no items. */
int layout_index_self(const strided_layout *in, PyObject *key, strided_layout *out);

#endif /* MD_LAYOUT_INDEX_H */
