/* layout_index.c: basic indexing of a layout by a Python key; see layout_type.h. */
#include "errors.h"
#include "layout_type_object.h"

/* Reading a key from left to right, on a layout that shrinks and grows on the way. */
typedef struct indexing {
    md_state *state;      /* of an Array's indexing; NULL: a StridedLayout's */
    const char *function; /* for messages */
    strided_layout *out;
    int axis;        /* of `out`: the next one to be indexed */
    bool is_cleared; /* a slice has taken no items */
} indexing;

static int
refuse(const indexing *at, const layout_fault *fault)
{
    (void)(at->state == NULL ? layout_object_refuse(at->function, fault)
                             : errors_from_layout(at->state, at->function, fault));
    return -1;
}

static int
refuse_count(const indexing *at, int count, int ndim)
{
    PyErr_Format(at->state == NULL ? PyExc_ValueError : PyExc_IndexError,
                 "%s: %d indices are given for %d dimensions.", at->function, count, ndim);
    return -1;
}

static int
refuse_type(const indexing *at, PyObject *entry)
{
    PyErr_Format(at->state == NULL ? PyExc_TypeError : PyExc_IndexError,
                 "%s: an index is an int, a slice, None or `...`, or a tuple of them, not %.100s.",
                 at->function, Py_TYPE(entry)->tp_name);
    return -1;
}

static int
index_by_int(indexing *at, PyObject *entry)
{
    int64_t index;
    layout_fault fault;
    if (layout_read_int(at->function, "an index", entry, &index) < 0) {
        return -1;
    }
    if (!layout_take_index(at->out, at->axis, index, at->out, &fault)) {
        return refuse(at, &fault);
    }
    return 0;
}

/* PySlice_Unpack for a step of 1 and small ints, without a call; false: something else. */
static inline bool
read_small_bounds(PySliceObject *slice, Py_ssize_t *start, Py_ssize_t *stop, Py_ssize_t *step)
{
    int64_t first = 0, end = PY_SSIZE_T_MAX;
    if (slice->step != Py_None ||
        (slice->start != Py_None && !layout_read_small_int(slice->start, &first)) ||
        (slice->stop != Py_None && !layout_read_small_int(slice->stop, &end))) {
        return false;
    }
    *start = (Py_ssize_t)first;
    *stop = (Py_ssize_t)end;
    *step = 1;
    return true;
}

static int
index_by_slice(indexing *at, PyObject *entry)
{
    Py_ssize_t start, stop, step;
    layout_fault fault;
    PySliceObject *slice = (PySliceObject *)entry;
    if (slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None) {
        at->is_cleared |= at->out->shape[at->axis++] == 0; /* `:` */
        return 0;
    }
    if (!read_small_bounds(slice, &start, &stop, &step) &&
        PySlice_Unpack(entry, &start, &stop, &step) < 0) {
        return -1;
    }
    int64_t extent = at->out->shape[at->axis];
    Py_ssize_t length = PySlice_AdjustIndices(extent, &start, &stop, step);
    if (!layout_take_range(at->out, at->axis, start, length, step, at->out, &fault)) {
        return refuse(at, &fault);
    }
    at->is_cleared |= length == 0;
    at->axis++;
    return 0;
}

static int
index_by_none(indexing *at)
{
    layout_fault fault;
    if (!layout_expanded(at->out, at->axis, at->out, &fault)) {
        return refuse(at, &fault);
    }
    at->axis++;
    return 0;
}

static int
index_by_entry(indexing *at, PyObject *entry)
{
    if (PySlice_Check(entry)) {
        return index_by_slice(at, entry);
    }
    if (entry == Py_None) {
        return index_by_none(at);
    }
    return PyIndex_Check(entry) && !PyBool_Check(entry) ? index_by_int(at, entry)
                                                        : refuse_type(at, entry);
}

/* How many axes the entries of a tuple index; -1 with an exception set for two `...`. */
static int
count_entries(const indexing *at, PyObject *const *entries, Py_ssize_t nentries, int ndim)
{
    int nindexed = 0, nellipses = 0;
    for (Py_ssize_t i = 0; i < nentries; i++) {
        nellipses += entries[i] == Py_Ellipsis;
        nindexed += entries[i] != Py_Ellipsis && entries[i] != Py_None;
    }
    if (nellipses > 1) {
        PyErr_Format(at->state == NULL ? PyExc_ValueError : PyExc_IndexError,
                     "%s: `...` stands %d times in one index.", at->function, nellipses);
        return -1;
    }
    return nindexed > ndim ? refuse_count(at, nindexed, ndim) : nindexed;
}

static int
index_by_key(indexing *at, PyObject *key)
{
    PyObject *const *entries = &key;
    Py_ssize_t nentries = 1;
    int ndim = at->out->ndim;
    if (PyTuple_Check(key)) {
        entries = ((PyTupleObject *)key)->ob_item;
        nentries = PyTuple_GET_SIZE(key);
    }
    int nindexed = count_entries(at, entries, nentries, ndim);
    if (nindexed < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < nentries; i++) {
        if (entries[i] == Py_Ellipsis) {
            at->axis += ndim - nindexed; /* as many whole axes as are left over */
        }
        else if (index_by_entry(at, entries[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

int
layout_index(md_state *state, const char *function, PyObject *key, const strided_layout *in,
             strided_layout *out)
{
    indexing at = {state, function, out, 0, false};
    layout_copy(in, out);
    return index_by_key(&at, key);
}

int
layout_index_self(strided_layout *layout, PyObject *key)
{
    indexing at = {NULL, "StridedLayout", layout, 0, false};
    if (index_by_key(&at, key) < 0) {
        return -1;
    }
    if (at.is_cleared) {
        layout_clear_strides(layout);
    }
    return 0;
}
