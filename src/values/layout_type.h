/* layout_type.h: the Python type `StridedLayout`, and indexing, which arrays share.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_LAYOUT_TYPE_H
#define MD_LAYOUT_TYPE_H

#include "arithmetic/layout.h"
#include "python/state.h"

/* A StridedLayout with a copy of `layout`: owned (+1). */
PyObject *layout_type_new(md_state *state, const strided_layout *layout);

/* Call once, after the type is made: sets what its spec cannot say.  0, or -1. */
int layout_type_prepare(md_state *state);

/* The value of a StridedLayout, which `op` must be. */
void layout_type_get(PyObject *op, strided_layout *out);

/* Basic indexing: an int, a slice, None, `...`, or a tuple of them.  IndexError with the key's
 * type where it is something else. */
int layout_index(md_state *state, const char *function, PyObject *key, const strided_layout *in,
                 strided_layout *out);

/* The same for a StridedLayout, with cuda.core's classes: ValueError for an index out of
 * range, TypeError for something else.  All strides are 0 if a slice takes no items. */
int layout_index_self(const strided_layout *in, PyObject *key, strided_layout *out);

/* `values` as a tuple of Python ints: owned (+1). */
PyObject *layout_tuple(const int64_t *values, int count);

#endif /* MD_LAYOUT_TYPE_H */
