/* array_request.c: an Array answers requests of the buffer protocol.
 *
 * Owns:    which requests are met, as NumPy's arrays meet them; an exception that NumPy
 *          discards, until it is raised again.
 * Calls:   wait_rule.h to wait.
 * Threads: the GIL is held; released while waiting.
 */
#include "array/array.h"
#include "array/array_map.h"
#include "array/array_methods.h"
#include "metal/lookup.h"
#include "python/errors.h"
#include "streams/wait_rule.h"

#define EVERY_ORDER (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS)

/* Are all these bits set? */
static bool
asks_for(int flags, int wanted)
{
    return (flags & wanted) == wanted;
}

/* Without strides the caller counts in C order. */
static bool
has_order(const ArrayObject *self, int flags)
{
    if ((flags & EVERY_ORDER) == PyBUF_STRIDES) { /* any: what most callers want */
        return true;
    }
    strided_layout layout;
    array_get_layout(self, &layout);
    bool is_c = layout_is_contiguous_c(&layout), is_f = layout_is_contiguous_f(&layout);
    bool must_be_c = asks_for(flags, PyBUF_C_CONTIGUOUS) || !asks_for(flags, PyBUF_STRIDES);
    return (is_c || !must_be_c) && (is_f || !asks_for(flags, PyBUF_F_CONTIGUOUS)) &&
           (is_c || is_f || !asks_for(flags, PyBUF_ANY_CONTIGUOUS));
}

/* Why this view cannot be given, as an exception; 0 if it can. */
static int
check_request(ArrayObject *self, const char *format, int flags)
{
    if (array_storage(self)->mode == BRIDGE_PRIVATE) {
        return errors_raise(state_of((PyObject *)self)->copy_required_error,
                            "memoryview(Array): private storage has no CPU address; use "
                            "copy(storage='shared').");
    }
    if (format == NULL) {
        return errors_raise(PyExc_BufferError,
                            "memoryview(Array): the buffer protocol has no letter for %s; use "
                            "np.asarray(a), or view the items as integers.",
                            dtype_name(self->dtype).text);
    }
    if ((flags & PyBUF_WRITABLE) && self->is_readonly) {
        return errors_raise(PyExc_BufferError, "memoryview(Array): the array is read-only.");
    }
    if (!has_order(self, flags)) {
        return errors_raise(PyExc_BufferError,
                            "memoryview(Array): the caller requests contiguous items, and this "
                            "array is strided; use copy().");
    }
    return 0;
}

/* Strides in bytes.  With contiguous items they follow from the order, whatever the axes of
 * extent 1 say: consumers compare them.  Source: NumPy's _buffer_info_new. */
static void
write_byte_strides(const ArrayObject *self, bool prefers_f, int64_t *out)
{
    strided_layout layout;
    array_get_layout(self, &layout);
    bool is_c = layout_is_contiguous_c(&layout), is_f = layout_is_contiguous_f(&layout);
    if (!is_c && !is_f) {
        for (int axis = 0; axis < self->ndim; axis++) {
            out[axis] = layout_stride_nbytes(&layout, axis);
        }
        return;
    }
    bool from_first = is_f && (prefers_f || !is_c);
    /* wraps in an empty array, whose strides lead nowhere */
    uint64_t step = (uint64_t)layout.itemsize;
    for (int place = 0; place < self->ndim; place++) {
        int axis = from_first ? place : self->ndim - 1 - place;
        out[axis] = (int64_t)step;
        step *= (uint64_t)layout.shape[axis];
    }
}

/* The strides for a request.  They are the Array's own, which live as long as the view does; one
 * that asks for Fortran's order gets strides of its own, as they can differ along axes of
 * extent 1: in `view->internal`, for PyMem_Free.  NULL with MemoryError. */
static int64_t *
strides_for(ArrayObject *self, int flags, Py_buffer *view)
{
    if (asks_for(flags, PyBUF_F_CONTIGUOUS)) {
        int64_t *strides = PyMem_New(int64_t, self->ndim);
        if (strides == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        write_byte_strides(self, true, strides);
        view->internal = strides;
        return strides;
    }
    if (!self->has_byte_strides) {
        write_byte_strides(self, false, array_byte_strides(self));
        self->has_byte_strides = true;
    }
    return array_byte_strides(self);
}

/* What the request asks for, and NULL for the rest, as NumPy answers: without PyBUF_ND there
 * are bytes and no axes.  -1 with MemoryError.  SPEC PEP 3118; CPython's
 * PyBuffer_IsContiguous reads the shape of every view that has axes. */
static int
describe_view(ArrayObject *self, const char *format, int flags, Py_buffer *view)
{
    static char empty[16];                           /* an address for no items */
    const char *base = array_storage(self)->address; /* NULL without items */
    bool has_shape = asks_for(flags, PyBUF_ND) && self->ndim > 0;
    bool has_strides = asks_for(flags, PyBUF_STRIDES) && self->ndim > 0;
    view->internal = NULL; /* else freed in array_releasebuffer */
    int64_t *strides = has_strides ? strides_for(self, flags, view) : NULL;
    if (has_strides && strides == NULL) {
        return -1;
    }
    view->buf = base == NULL ? empty : (char *)base + self->byte_offset;
    view->len = (Py_ssize_t)array_nbytes(self);
    view->itemsize = (Py_ssize_t)dtype_itemsize(self->dtype);
    view->readonly = self->is_readonly;
    view->ndim = has_shape ? self->ndim : 0;
    view->format = flags & PyBUF_FORMAT ? (char *)format : NULL;
    view->shape = has_shape ? (Py_ssize_t *)array_shape(self) : NULL;
    view->strides = (Py_ssize_t *)strides;
    view->suboffsets = NULL;
    return 0;
}

/* Keep the exception for __array__, which raises it again: NumPy asks for the buffer first,
 * discards what that raises (failed GPU work, Ctrl-C), and then calls __array__, within one
 * instruction of Python.  A later instruction comes after somebody has heard it. */
static void
note_unheard(ArrayObject *self)
{
    md_state *state = state_of((PyObject *)self);
    PyFrameObject *frame = PyEval_GetFrame();
    PyObject *exception = errors_take(), *copy = errors_copy(exception);
    Py_XSETREF(state->unheard, copy != NULL ? copy : Py_NewRef(exception));
    state->unheard_of = self;
    state->unheard_frame = frame;
    state->unheard_instruction = frame == NULL ? -1 : PyFrame_GetLasti(frame);
    self->has_raised_unheard = true;
    errors_restore(exception);
}

int
array_raise_unheard(ArrayObject *self)
{
    md_state *state = state_of((PyObject *)self);
    if (state->unheard == NULL || state->unheard_of != self) {
        return 0;
    }
    PyFrameObject *frame = PyEval_GetFrame();
    PyObject *value = state->unheard;
    state->unheard = NULL;
    if (frame == state->unheard_frame && /* within the same call */
        (frame == NULL || PyFrame_GetLasti(frame) == state->unheard_instruction)) {
        PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    }
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

void
array_forget_unheard(ArrayObject *self)
{
    md_state *state = state_if_alive((PyObject *)self); /* a dealloc calls too */
    self->has_raised_unheard = false;
    if (state != NULL && state->unheard_of == self) {
        Py_CLEAR(state->unheard);
    }
}

int
array_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    ArrayObject *self = array_cast(op);
    const char *format = dtype_buffer_format(self->dtype);
    view->obj = NULL;
    if (check_request(self, format, flags) < 0) {
        return -1;
    }
    if (describe_view(self, format, flags, view) < 0) {
        return -1;
    }
    touched_bytes bytes = array_watched_bytes(self);
    if (wait_rule_for_cpu(op, "memoryview(Array)", &bytes, !self->is_readonly) < 0) {
        PyMem_Free(view->internal);
        note_unheard(self);
        return -1;
    }
    lookup_publish_readonly(array_storage(self));
    if (self->has_raised_unheard) {
        array_forget_unheard(self);
    }
    view->obj = Py_NewRef(op);
    return 0;
}

void
array_releasebuffer(PyObject *Py_UNUSED(op), Py_buffer *view)
{
    PyMem_Free(view->internal);
}
