/* layout_type_views.c: the methods of a StridedLayout that show the same items; see
 * layout_type_object.h. */
#include "values/layout_type_object.h"

/* ---- arguments ---- */

/* The argument of a method that takes one.  Given by position, it needs no parsing. */
static PyObject *
read_one(const args_spec *spec, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *values[ARGS_MAX];
    if (nargs == 1 && kwnames == NULL) {
        return args[0];
    }
    return args_parse(spec, args, nargs, kwnames, values) < 0 ? NULL : values[0];
}

/* A method whose one argument is a shape or axes. */
static PyObject *
view_by(layout_view *make, PyObject *op, const args_spec *spec, PyObject *const *args,
        Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *value = read_one(spec, args, nargs, kwnames);
    strided_layout layout;
    layout_fault fault;
    int64_t values[LAYOUT_MAX_NDIM];
    int count;
    if (value == NULL || args_int64s(spec->function, spec->names[0], value, values,
                                     LAYOUT_MAX_NDIM, &count) < 0) {
        return NULL;
    }
    if (make == layout_unsqueezed && count == 0) {
        return Py_NewRef(op);
    }
    layout_read(op, &layout);
    bool is_made = make(&layout, count, values, &layout, &fault);
    return layout_finish(op, spec->function, is_made, &layout, &fault);
}

#define VIEW_METHOD(name, make, argument) \
    PyObject *layout_method_##name(PyObject *op, PyObject *const *args, Py_ssize_t nargs, \
                                   PyObject *kwnames) \
    { \
        static const args_spec spec = ARGS_SPEC("StridedLayout." #name, 0, 1, 1, argument); \
        return view_by(make, op, &spec, args, nargs, kwnames); \
    }

/* ---- other shapes ---- */

static bool
reshape(const strided_layout *in, int ndim, const int64_t *shape, strided_layout *out,
        layout_fault *fault)
{
    bool is_empty = layout_is_empty(in);
    bool is_made = layout_reshaped(in, ndim, shape, out, fault);
    if (is_made && is_empty) {
        layout_clear_strides(out);
    }
    return is_made;
}

LAYOUT_DOC(
    reshaped,
    "reshaped($self, /, shape)\n--\n\n"
    "The same items in C order under another shape.\n\n"
    "Parameters\n----------\n"
    "shape : int or sequence of int\n"
    "    As many items; one extent may be -1: it is computed from the others.\n\n"
    "Returns\n-------\n"
    "StridedLayout\n    An axis of extent 1 gets the stride that continues the next axis.\n\n"
    "Raises\n------\n"
    "ValueError\n"
    "    The number of items differs, or the strides do not allow the shape without a copy.\n"
    "OverflowError\n    The stride of an axis of extent 1 does not fit in 64 bits.\n\n");

VIEW_METHOD(reshaped, reshape, "shape")

LAYOUT_DOC(permuted, "permuted($self, /, axis_order)\n--\n\n"
                     "The axes in another order.\n\n"
                     "Parameters\n----------\n"
                     "axis_order : sequence of int\n"
                     "    A permutation of the axes; negative ones count from the end.\n\n"
                     "Returns\n-------\n"
                     "StridedLayout\n\n"
                     "Raises\n------\n"
                     "ValueError\n    It is not a permutation of the axes.\n\n");

VIEW_METHOD(permuted, layout_permuted, "axis_order")

LAYOUT_DOC(squeezed,
           "squeezed($self, /)\n--\n\n"
           "Without the axes of extent 1.\n\n"
           "Returns\n-------\n"
           "StridedLayout\n    Of shape (0,) and strides (0,) if there are no items.\n\n");

PyObject *
layout_method_squeezed(PyObject *op, PyObject *Py_UNUSED(unused))
{
    strided_layout layout;
    layout_read(op, &layout);
    if (layout_is_empty(&layout)) {
        layout.ndim = 1;
        layout.shape[0] = layout.strides[0] = 0;
    }
    else {
        layout_squeezed(&layout, &layout);
    }
    return layout_object_new(Py_TYPE(op), &layout);
}

LAYOUT_DOC(unsqueezed,
           "unsqueezed($self, /, axis)\n--\n\n"
           "With more axes, of extent 1.\n\n"
           "Parameters\n----------\n"
           "axis : int or sequence of int\n"
           "    Where they are in the result; negative ones count from its end.\n\n"
           "Returns\n-------\n"
           "StridedLayout\n    A new axis has the stride that continues the next axis.\n\n"
           "Raises\n------\n"
           "ValueError\n"
           "    An axis is out of range or named twice, or there are more than 64 dimensions.\n"
           "OverflowError\n    A stride does not fit in 64 bits.\n\n");

VIEW_METHOD(unsqueezed, layout_unsqueezed, "axis")

LAYOUT_DOC(broadcast_to,
           "broadcast_to($self, /, shape)\n--\n\n"
           "Stretched to another shape: new and stretched axes have stride 0.\n\n"
           "Parameters\n----------\n"
           "shape : int or sequence of int\n"
           "    At least as many extents; from the right each equal to this one's, unless that "
           "is 1.\n\n"
           "Returns\n-------\n"
           "StridedLayout\n\n"
           "Raises\n------\n"
           "ValueError\n    The shapes do not fit, or more than 64 dimensions.\n"
           "OverflowError\n    The volume, counted in bytes, does not fit in 64 bits.\n\n");

VIEW_METHOD(broadcast_to, layout_broadcast, "shape")

/* ---- merging axes ---- */

LAYOUT_DOC(flattened_axis_mask,
           "flattened_axis_mask($self, /)\n--\n\n"
           "Which axes `flattened` can join to the one before.\n\n"
           "Returns\n-------\n"
           "int\n"
           "    Bit i is set if axis i can join axis i - 1.  The `&` of two layouts' masks\n"
           "    says what can be joined in both.\n\n");

PyObject *
layout_method_flattened_axis_mask(PyObject *op, PyObject *Py_UNUSED(unused))
{
    strided_layout layout;
    layout_read(op, &layout);
    return PyLong_FromUnsignedLongLong(layout_merge_mask(&layout));
}

/* A bit for each axis first + 1 .. last: they may join the axis before. */
static int
read_span(const char *function, PyObject *first_value, PyObject *last_value, int ndim,
          uint64_t *out)
{
    int64_t given_first = 0, given_last = -1;
    int first, last;
    layout_fault fault;
    *out = UINT64_MAX;
    if (first_value == NULL && last_value == NULL) {
        return 0;
    }
    if (layout_read_int(function, "start_axis", first_value, &given_first) < 0 ||
        layout_read_int(function, "end_axis", last_value, &given_last) < 0) {
        return -1;
    }
    if (ndim == 0 && given_first == 0 && given_last == -1) {
        return 0; /* the defaults, spelled out */
    }
    *out = 0;
    if (!layout_axis(given_first, ndim, &first, &fault) ||
        !layout_axis(given_last, ndim, &last, &fault)) {
        (void)errors_from_layout(NULL, function, &fault);
        return -1;
    }
    for (int axis = first + 1; axis <= last; axis++) {
        *out |= UINT64_C(1) << axis;
    }
    return 0;
}

static int
read_mask(const char *function, PyObject *value, uint64_t *out)
{
    PyObject *number = PyNumber_Index(value);
    *out = number == NULL ? 0 : PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    if (*out == UINT64_MAX && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Format(PyExc_OverflowError, "%s: mask (%R) is not an unsigned 64-bit number.",
                         function, value);
        }
        return -1;
    }
    return number == NULL ? -1 : 0;
}

LAYOUT_DOC(flattened,
           "flattened($self, /, start_axis=0, end_axis=-1, mask=None)\n--\n\n"
           "Neighbouring axes joined wherever one stride serves both; the rest stays.\n\n"
           "Parameters\n----------\n"
           "start_axis, end_axis : int, default 0 and -1\n"
           "    Only the axes from one to the other, both included.\n"
           "mask : int or None, default None\n"
           "    Instead of these: axis i may join axis i - 1 if bit i is set.\n\n"
           "Returns\n-------\n"
           "StridedLayout\n    Of shape (1,) if there are no dimensions.\n\n"
           "Raises\n------\n"
           "ValueError\n    An axis is out of range.\n"
           "OverflowError\n    The mask is not an unsigned number of 64 bits.\n\n");

ARGS_METHOD(layout_method_flattened, op, "StridedLayout.flattened", 0, 3, 0, "start_axis",
            "end_axis", "mask")
{
    strided_layout layout;
    uint64_t mask;
    bool has_mask = args_is_given(values[2]);
    if ((has_mask
             ? read_mask(function, values[2], &mask)
             : read_span(function, values[0], values[1], layout_cast(op)->ndim, &mask)) < 0) {
        return NULL;
    }
    layout_read(op, &layout);
    layout_merge_axes(&layout, mask);
    return layout_object_new(Py_TYPE(op), &layout);
}

/* ---- parts ---- */

LAYOUT_DOC(
    sliced,
    "sliced($self, /, slices)\n--\n\n"
    "A part of the layout: the same as `layout[slices]`.\n\n"
    "Parameters\n----------\n"
    "slices : int, slice, None, `...`, or a tuple of them\n"
    "    None adds an axis of extent 1; `...` stands for all remaining axes.\n\n"
    "Returns\n-------\n"
    "StridedLayout\n"
    "    Its slice_offset says where the part begins.  All strides are 0 if a slice takes no\n"
    "    items.\n\n"
    "Raises\n------\n"
    "ValueError\n    An index is out of range, or there are more of them than dimensions.\n"
    "TypeError\n    An index is not an int, slice, None or `...`; a bool is refused too.\n\n");

PyObject *
layout_method_sliced(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"StridedLayout.sliced", 0, 1, 1, {"slices", NULL}};
    PyObject *key = read_one(&spec, args, nargs, kwnames);
    return key == NULL ? NULL : PyObject_GetItem(op, key);
}
