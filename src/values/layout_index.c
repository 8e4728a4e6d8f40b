/* layout_index.c: basic indexing of a layout by a Python key; see layout_type_object.h. */

#include "values/layout_type_object.h"

/* Reading a key from left to right: the source stays as it is, the result grows. */
typedef struct indexing {
    md_state *state;      /* of an Array's indexing; NULL: a StridedLayout's */
    const char *function; /* for messages */
    const strided_layout *in;
    strided_layout *out;
    int from;        /* of `in`: the next axis to be indexed */
    int to;          /* of `out`: the next axis to be written */
    bool is_cleared; /* a slice has taken no items */
} indexing;

static int
refuse(const indexing *at, const layout_fault *fault)
{
    (void)errors_from_layout(at->state, at->function, fault);
    return -1;
}

/* A list, a mask or an array of indices would pick items that no layout describes. */
static bool
picks_items(PyObject *entry)
{
    return PyBool_Check(entry) || PyObject_CheckBuffer(entry) ||
           (PyMapping_Check(entry) && !PyUnicode_Check(entry));
}

static int
refuse_type(const indexing *at, PyObject *entry)
{
    PyObject *error = at->state == NULL ? PyExc_TypeError : PyExc_IndexError;
    if (at->state != NULL && picks_items(entry)) {
        return errors_raise(
            error,
            "%s: an index of type %.100s would copy items, and indexing only makes views; "
            "write np.asarray(a)[index], a.to(torch.Tensor)[index], or ints and slices.",
            at->function, Py_TYPE(entry)->tp_name);
    }
    return errors_raise(
        error,
        "%s: an index is an int, a slice, None or `...`, or a tuple of them, not %.100s.",
        at->function, Py_TYPE(entry)->tp_name);
}

/* Is it one integer?  NumPy's arrays and torch's tensors, and ours, have __index__ whatever
 * they hold, and say by a TypeError that they are none. */
static int
read_index(const indexing *at, PyObject *entry, int64_t *out)
{
    if (args_int64(at->function, "an index", entry, out) == 0) {
        return 0;
    }
    if (PyErr_ExceptionMatches(PyExc_TypeError) && picks_items(entry)) {
        PyErr_Clear();
        (void)refuse_type(at, entry);
    }
    return -1;
}

static int
index_by_int(indexing *at, PyObject *entry)
{
    int64_t index;
    layout_fault fault;
    if (!args_small_int(entry, &index) && read_index(at, entry, &index) < 0) {
        return -1;
    }
    if (!layout_index_axis(at->in, at->from++, index, &at->out->offset, &fault)) {
        return refuse(at, &fault);
    }
    return 0;
}

static inline void
write_axis(indexing *at, int64_t extent, int64_t stride)
{
    at->out->shape[at->to] = extent;
    at->out->strides[at->to++] = stride;
}

/* `:`, and what `...` stands for. */
static inline void
take_axis(indexing *at)
{
    write_axis(at, at->in->shape[at->from], at->in->strides[at->from]);
    at->from++;
}

/* PySlice_Unpack for small ints, without a call.  False: something else. */
static inline bool
read_small_slice(PySliceObject *slice, Py_ssize_t *start, Py_ssize_t *stop, Py_ssize_t *step)
{
    int64_t by = 1, first, end;
    if (slice->step != Py_None && (!args_small_int(slice->step, &by) || by == 0)) {
        return false;
    }
    first = by < 0 ? PY_SSIZE_T_MAX : 0;
    end = by < 0 ? PY_SSIZE_T_MIN : PY_SSIZE_T_MAX;
    if ((slice->start != Py_None && !args_small_int(slice->start, &first)) ||
        (slice->stop != Py_None && !args_small_int(slice->stop, &end))) {
        return false;
    }
    *start = (Py_ssize_t)first;
    *stop = (Py_ssize_t)end;
    *step = (Py_ssize_t)by;
    return true;
}

static int
index_by_slice(indexing *at, PyObject *entry)
{
    Py_ssize_t start, stop, step;
    int64_t stride, extent = at->in->shape[at->from];
    layout_fault fault;
    PySliceObject *slice = (PySliceObject *)entry;
    if (slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None) {
        at->is_cleared |= extent == 0;
        take_axis(at);
        return 0;
    }
    if (!read_small_slice(slice, &start, &stop, &step) &&
        PySlice_Unpack(entry, &start, &stop, &step) < 0) {
        return -1;
    }
    Py_ssize_t length = PySlice_AdjustIndices(extent, &start, &stop, step);
    if (!layout_cut_axis(at->in, at->from, start, length, step, &at->out->offset, &stride,
                         &fault)) {
        return refuse(at, &fault);
    }
    at->is_cleared |= length == 0;
    at->from++;
    write_axis(at, length, stride);
    return 0;
}

static int
index_by_entry(indexing *at, PyObject *entry)
{
    if (PySlice_Check(entry)) {
        return index_by_slice(at, entry);
    }
    if (entry == Py_None) {
        write_axis(at, 1, layout_unit_stride(at->in, at->from));
        return 0;
    }
    return PyIndex_Check(entry) && !PyBool_Check(entry) ? index_by_int(at, entry)
                                                        : refuse_type(at, entry);
}

/* What the entries of a key are. */
typedef struct census {
    int nindexed, nfresh, nellipses; /* ints and slices; None; `...` */
} census;

/* -1 with an exception set for two `...`, or more of anything than there are axes. */
static int
count_entries(const indexing *at, PyObject *const *entries, Py_ssize_t nentries, census *out)
{
    *out = (census){0, 0, 0};
    for (Py_ssize_t i = 0; i < nentries; i++) {
        out->nellipses += entries[i] == Py_Ellipsis;
        out->nfresh += entries[i] == Py_None;
    }
    out->nindexed = (int)nentries - out->nellipses - out->nfresh;
    if (out->nellipses > 1) {
        return errors_raise(at->state == NULL ? PyExc_ValueError : PyExc_IndexError,
                            "%s: `...` occurs %d times in one index; it may occur once.",
                            at->function, out->nellipses);
    }
    if (out->nindexed > at->in->ndim) {
        return errors_raise(at->state == NULL ? PyExc_ValueError : PyExc_IndexError,
                            "%s: %d indices are given for %d dimensions.", at->function,
                            out->nindexed, at->in->ndim);
    }
    return 0;
}

/* Is there room for the result, however many of its axes are ints? */
static int
check_room(const indexing *at, const census *counted)
{
    if (at->in->ndim + counted->nfresh > LAYOUT_MAX_NDIM) {
        layout_fault fault = {LAYOUT_FAULT_NDIM, at->in->ndim + counted->nfresh, 0};
        return refuse(at, &fault);
    }
    return 0;
}

static int
index_by_key(indexing *at, PyObject *key)
{
    PyObject *const *entries = &key;
    Py_ssize_t nentries = 1;
    census counted;
    if (PyTuple_Check(key)) {
        entries = ((PyTupleObject *)key)->ob_item;
        nentries = PyTuple_GET_SIZE(key);
    }
    if (count_entries(at, entries, nentries, &counted) < 0 || check_room(at, &counted) < 0) {
        return -1;
    }
    at->out->itemsize = at->in->itemsize;
    at->out->offset = at->in->offset;
    int nleft = at->in->ndim - counted.nindexed; /* whole axes: for `...`, or at the end */
    for (Py_ssize_t i = 0; i < nentries; i++) {
        if (entries[i] != Py_Ellipsis) {
            if (index_by_entry(at, entries[i]) < 0) {
                return -1;
            }
            continue;
        }
        for (; nleft > 0; nleft--) {
            take_axis(at);
        }
    }
    while (at->from < at->in->ndim) {
        take_axis(at);
    }
    at->out->ndim = at->to;
    return 0;
}

int
layout_index(md_state *state, const char *function, PyObject *key, const strided_layout *in,
             strided_layout *out)
{
    indexing at = {state, function, in, out, 0, 0, false};
    return index_by_key(&at, key);
}

int
layout_index_self(const strided_layout *in, PyObject *key, strided_layout *out)
{
    indexing at = {NULL, "StridedLayout", in, out, 0, 0, false};
    if (index_by_key(&at, key) < 0) {
        return -1;
    }
    if (at.is_cleared) {
        layout_clear_strides(out);
    }
    return 0;
}
