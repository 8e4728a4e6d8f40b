/* buffer.h: the Python type `Buffer`, as other types see it.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_BUFFER_H
#define MD_BUFFER_H

#include "metal/storage.h"
#include "python/state.h"

typedef struct {
    PyObject_HEAD
    metal_storage *storage; /* owned (+1); NULL once closed */
    Py_ssize_t views;       /* Arrays and memoryviews that need it open; see buffer_hold */
    PyObject *weakrefs;     /* keeps nothing alive; NULL without weak references */
    bool owns_memory;       /* Buffer(size) made it, no Array and nobody else */
} BufferObject;

static inline BufferObject *
buffer_cast(PyObject *op)
{
    return (BufferObject *)op;
}

/* A Buffer that takes over the caller's reference to `storage`: owned (+1).  NULL with an
 * exception; the reference is dropped then too. */
PyObject *buffer_from_storage(md_state *state, metal_storage *storage);

/* New memory, for a Buffer or an Array: owned (+1), or NULL with MemoryError or MetalError. */
metal_storage *buffer_allocate_storage(md_state *state, const char *function,
                                       const device_record *device, size_t nbytes,
                                       bridge_storage mode);

/* With a GIL no two threads count at once, and an atomic addition would be a tenth of an
 * export. */
static inline void
buffer_count_views(BufferObject *self, Py_ssize_t change)
{
#ifdef Py_GIL_DISABLED
    (void)__atomic_fetch_add(&self->views, change, __ATOMIC_ACQ_REL);
#else
    self->views += change;
#endif
}

/* A view or an Array needs the Buffer open from here on / no longer. */
static inline void
buffer_hold(BufferObject *self)
{
    buffer_count_views(self, 1);
}

static inline void
buffer_unhold(BufferObject *self)
{
    buffer_count_views(self, -1);
}

/* The storage of an open Buffer: borrowed until code runs that is not ours, which can close the
 * Buffer: an argument's conversion, the collector, another thread.  So every argument is converted
 * before, and who must let such code run holds the Buffer meanwhile; tests/house/test_holding.py
 * reads the callers.  NULL with ValueError once closed. */
metal_storage *buffer_open_storage(const char *function, BufferObject *self);

PyObject *buffer_fill(PyObject *op, PyObject *value);
PyObject *buffer_copy_from(PyObject *op, PyObject *source);
PyObject *buffer_copy_to(PyObject *op, PyObject *destination);
extern const char buffer_fill_doc[], buffer_copy_from_doc[], buffer_copy_to_doc[];
int buffer_getbuffer(PyObject *op, Py_buffer *view, int flags);
void buffer_releasebuffer(PyObject *op, Py_buffer *view);

PyObject *buffer_from_handle(PyObject *type, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames);
extern const char buffer_from_handle_doc[];

/* A size or length in bytes.  -1 with TypeError, OverflowError or ValueError (negative). */
int buffer_convert_size(const char *function, PyObject *value, int64_t *out);

/* buffer_host.c */
PyObject *buffer_from_host(PyObject *type, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames);
extern const char buffer_from_host_doc[];

PyObject *buffer_from_iosurface(PyObject *type, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames);
extern const char buffer_from_iosurface_doc[];

#endif /* MD_BUFFER_H */
