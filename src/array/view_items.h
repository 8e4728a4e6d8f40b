/* view_items.h: foreign memory behind the buffer protocol: opened, and its items as an element type and a layout.
 *
 * Rule:    the one place that opens a foreign view.  What it opened has at most LAYOUT_MAX_NDIM axes and, where
 *          strides were asked for, has them.  The protocol counts strides in bytes and a layout in items: here the
 *          first become the second.
 * Threads: the GIL is held.
 */
#ifndef MD_VIEW_ITEMS_H
#define MD_VIEW_ITEMS_H

#include "arithmetic/dtype.h"
#include "arithmetic/layout.h"
#include "python/state.h"

/* A view for as long as a call takes; not to be moved while it is open. */
typedef struct foreign_view {
    Py_buffer memory; /* obj NULL: closed */
    Py_ssize_t
        strides[LAYOUT_MAX_NDIM]; /* for an exporter that leaves them out, as ctypes does */
} foreign_view;

/* Format, shape and strides of any memory.  -1 with what the exporter raises, or ValueError:
 * more axes than a layout has. */
int view_open(const char *function, PyObject *op, foreign_view *out);

/* The bytes of contiguous memory, in memory.buf and memory.len.  -1 with BufferError, or
 * TypeError: not bytes-like. */
int view_open_bytes(PyObject *op, bool is_writable, foreign_view *out);

/* Nothing where the view is closed. */
void view_close(foreign_view *view);

/* A view for as long as a memoryview lives: owned (+1); `*out` is borrowed from it. */
PyObject *view_keep(PyObject *op, const Py_buffer **out);

/* Takes a view with a format.  -1 with ValueError: one that no element type has. */
int view_items_dtype(const char *function, const Py_buffer *view, DLDataType *out);

/* Takes an open view without suboffsets.  -1 with ValueError: the above, a stride that is no whole
 * number of items, or a layout that 64 bits cannot count. */
int view_items_read(md_state *state, const char *function, const Py_buffer *view,
                    DLDataType *dtype, strided_layout *layout);

#endif /* MD_VIEW_ITEMS_H */
