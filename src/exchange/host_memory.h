/* host_memory.h: foreign CPU memory as Arrays: its pages are shared, or its items copied.
 *
 * Threads: the GIL is held; released while Metal wraps pages and while copying.
 */
#ifndef MD_HOST_MEMORY_H
#define MD_HOST_MEMORY_H

#include "array/array.h"
#include "array/view_items.h"
#include "exchange/dlpack_check.h"

/* Items in CPU memory. */
typedef struct host_items {
    char *address; /* of element 0 */
    const strided_layout *layout;
    DLDataType dtype;
    bool is_empty; /* there are none: the address is not looked at */
    bool is_readonly;
    bool is_padded; /* sub-byte items have a byte each; false for all others */
    /* `is_readonly` is what the memory's owner says: array_numpy_is_honest; else read-only memory
     * that was given away is recognised */
    bool is_honest;
} host_items;

/* Is there a COPY_... for which these items, of which there are some, cannot be shared?  Asks Metal
 * nothing. */
bool host_memory_reason(const host_items *items, const device_record *device,
                        dlpack_fault *reason);

/* Share the items where Metal can, else copy them if `copy`, of an import_request, allows: an Array,
 * owned (+1).  `owner->object` is NULL once it is taken, also with an exception; else it stays the
 * caller's. */
PyObject *host_memory_import(md_state *state, const char *function, const host_items *items,
                             storage_owner *owner, const device_record *device, int copy);

/* The same of items in a view that `owner` keeps: address, layout and dtype are given, the rest is
 * read from the view.  CopyRequiredError says which rule forbids to share them. */
PyObject *host_memory_import_view(md_state *state, const char *function, const Py_buffer *view,
                                  PyObject *owner, host_items *items,
                                  const device_record *device, int copy);

/* ---- what keeps memory in place ---- */

/* Is it a multiprocessing.shared_memory.SharedMemory?  1 or 0, or -1 with an exception.
 * Imports nothing. */
int shared_memory_check(md_state *state, PyObject *x);

/* What keeps the bytes of an exporter of the buffer protocol, or of a SharedMemory, in place: owned
 * (+1).  `*view`, of all bytes, is borrowed from it.  NULL with an exception; ValueError: a
 * SharedMemory that is closed. */
PyObject *host_memory_keep(const char *function, PyObject *x, const Py_buffer **view);

#endif /* MD_HOST_MEMORY_H */
