/* view_items.h: the items that a view of the buffer protocol shows, as an element type and a
 * layout.
 *
 * Rule:    the protocol counts strides in bytes and a layout in items: this is the one place
 *          where the first become the second.
 * Threads: the GIL is held.
 */
#ifndef MD_VIEW_ITEMS_H
#define MD_VIEW_ITEMS_H

#include "arithmetic/dtype.h"
#include "arithmetic/layout.h"
#include "python/state.h"

/* Of a view with a format.  -1 with ValueError: one that no element type has. */
int view_items_dtype(const char *function, const Py_buffer *view, DLDataType *out);

/* Of a view with format, shape and strides, and no suboffsets.  -1 with ValueError: the above,
 * a stride that is no whole number of items, or a layout that 64 bits cannot count. */
int view_items_read(md_state *state, const char *function, const Py_buffer *view,
                    DLDataType *dtype, strided_layout *layout);

#endif /* MD_VIEW_ITEMS_H */
