/* layout_type_object.h: makes and reads StridedLayouts; below, their inside, for values/ alone.
 *
 * Owns:    the tuples in `known`, each made when it is first asked for and then kept.
 * Threads: the value is immutable.  Two threads may work out the same answer at once: both
 *          write the same numbers, and of two tuples the first stays.  There is no lock.
 * Why:     cuda.core keeps its answers too.  Without these, asking again takes 1.2 to 1.5
 *          times as long as there.
 */
#ifndef MD_LAYOUT_TYPE_OBJECT_H
#define MD_LAYOUT_TYPE_OBJECT_H

#include "arithmetic/layout.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/state.h"

/* A StridedLayout with a copy of `layout`: owned (+1).  `type`: of the module's state. */
PyObject *layout_object_new(PyTypeObject *type, const strided_layout *layout);

/* `values` as a tuple of Python ints: owned (+1). */
PyObject *layout_tuple(const int64_t *values, int count);

/* ---- the inside ---- */

/* Tuples that are kept once they have been asked for. */
enum { KNOWN_SHAPE, KNOWN_STRIDES, KNOWN_STRIDES_IN_BYTES, KNOWN_STRIDE_ORDER, KNOWN_COUNT };

/* Bits of `answers`: set once the fact is known.  For a yes-or-no fact the bit 16 places up is
 * the answer. */
enum {
    ANSWER_CONTIGUOUS_C = 1 << 0,
    ANSWER_CONTIGUOUS_F = 1 << 1,
    ANSWER_CONTIGUOUS_ANY = 1 << 2,
    ANSWER_UNIQUE = 1 << 3,
    ANSWER_BOUNDS = 1 << 4,
};

/* One block of memory, here of three dimensions:
 *
 *                                 dims              dims + capacity
 *   ┌────────────────┬──────────┬─────────────────┬──────────────────┐
 *   │ itemsize … max │ known[4] │ 2 3 4 . . . . . │ 12 4 1 . . . . . │
 *   └────────────────┴────┬─────┴─────────────────┴──────────────────┘
 *                         └─► tuples that were asked for
 *
 * The first part and `dims` never change; `answers`, min, max and `known` are filled in. */
typedef struct {
    PyObject_VAR_HEAD /* ob_size = 2 * capacity */
    int64_t itemsize;
    int64_t offset; /* items */
    int32_t ndim;
    int32_t capacity; /* LAYOUT_FEW, or ndim if that is more */
    uint32_t answers; /* bits, see above */
    int64_t min, max; /* if ANSWER_BOUNDS is set; an empty layout has the bounds 0, -1 */
    bool is_implicit; /* made with strides None: C order, and `strides` is None */
    PyObject *known[KNOWN_COUNT]; /* owned (+1), or NULL */
    int64_t dims[];               /* from 0: extents; from capacity: strides in items */
} LayoutObject;

static inline LayoutObject *
layout_cast(PyObject *op)
{
    return (LayoutObject *)op;
}

static inline const int64_t *
layout_shape(const LayoutObject *self)
{
    return self->dims;
}

static inline const int64_t *
layout_strides(const LayoutObject *self)
{
    return self->dims + self->capacity;
}

/* The value of a StridedLayout, which `op` must be. */
static inline void
layout_read(PyObject *op, strided_layout *out)
{
    LayoutObject *self = layout_cast(op);
    const int64_t *strides = layout_strides(self);
    out->ndim = self->ndim;
    out->itemsize = self->itemsize;
    out->offset = self->offset;
    if (self->capacity == LAYOUT_FEW) {
        memcpy(out->shape, self->dims, LAYOUT_FEW * sizeof(int64_t));
        memcpy(out->strides, strides, LAYOUT_FEW * sizeof(int64_t));
    }
    else {
        memcpy(out->shape, self->dims, (size_t)self->ndim * sizeof(int64_t));
        memcpy(out->strides, strides, (size_t)self->ndim * sizeof(int64_t));
    }
}

/* All but extents and strides: owned (+1). */
static inline LayoutObject *
layout_object_alloc(PyTypeObject *type, int ndim, int64_t itemsize, int64_t offset)
{
    int capacity = ndim <= LAYOUT_FEW ? LAYOUT_FEW : ndim;
    LayoutObject *self = PyObject_NewVar(LayoutObject, type, 2 * (Py_ssize_t)capacity);
    if (self == NULL) {
        return NULL;
    }
    self->itemsize = itemsize;
    self->offset = offset;
    self->ndim = ndim;
    self->capacity = capacity;
    self->answers = 0;
    self->is_implicit = false;
    memset(self->known, 0, sizeof self->known);
    return self;
}

/* StridedLayout(shape, strides, itemsize, divide_strides) from values borrowed from the
 * caller, the last of which may be NULL, at an offset in items: owned (+1).  `is_restored`: of a
 * layout that was there, whose strides that take no step need not fit in bytes. */
PyObject *layout_object_from_values(PyTypeObject *type, PyObject *const *values, int64_t offset,
                                    bool is_restored);

/* args_int64; a `value` of NULL leaves `*out`. */
static inline int
layout_read_int(const char *function, const char *what, PyObject *value, int64_t *out)
{
    return value == NULL ? 0 : args_int64(function, what, value, out);
}

/* Set the strides to 0, as those of an empty layout are that was made dense, reshaped or cut. */
static inline void
layout_clear_strides(strided_layout *layout)
{
    memset(layout->strides, 0, (size_t)layout->ndim * sizeof *layout->strides);
}

/* What a method returns: a new object, owned (+1), or the fault of a layout that was not made. */
static inline PyObject *
layout_finish(PyObject *op, const char *function, bool is_made, const strided_layout *layout,
              const layout_fault *fault)
{
    return is_made ? layout_object_new(Py_TYPE(op), layout)
                   : errors_from_layout(NULL, function, fault);
}

/* ---- the methods: `name` is layout_method_NAME with the text layout_doc_NAME ---- */

/* X(C name, Python name, flags): positional and keyword arguments. */
#define LAYOUT_CALL_LIST(X) \
    X(dense, "dense", METH_CLASS) /* layout_type_dense.c */ \
    X(dense_like, "dense_like", METH_CLASS) \
    X(to_dense, "to_dense", 0) \
    X(repacked, "repacked", 0) \
    X(max_compatible_itemsize, "max_compatible_itemsize", 0) \
    X(restore, "_restore", METH_CLASS) /* layout_type_object.c */ \
    X(reshaped, "reshaped", 0)         /* layout_type_views.c */ \
    X(permuted, "permuted", 0) \
    X(unsqueezed, "unsqueezed", 0) \
    X(broadcast_to, "broadcast_to", 0) \
    X(flattened, "flattened", 0) \
    X(sliced, "sliced", 0)

/* X(C name, Python name): no arguments, or the memo of __deepcopy__. */
#define LAYOUT_PLAIN_LIST(X) \
    X(required_size_in_bytes, "required_size_in_bytes", METH_NOARGS) /* layout_type.c */ \
    X(reduce, "__reduce__", METH_NOARGS) /* layout_type_object.c */ \
    X(copy, "__copy__", METH_NOARGS) \
    X(deepcopy, "__deepcopy__", METH_O) \
    X(squeezed, "squeezed", METH_NOARGS) /* layout_type_views.c */ \
    X(flattened_axis_mask, "flattened_axis_mask", METH_NOARGS)

/* The text of a method, with the end that all have. */
#define LAYOUT_DOC(name, text) \
    const char layout_doc_##name[] = \
        text "Touches no data; any thread may call it.\n\n" \
             "Source: cuda.core._layout._StridedLayout." #name "."

#define DECLARE_CALL(name, text, flags) \
    PyObject *layout_method_##name(PyObject *op, PyObject *const *args, Py_ssize_t nargs, \
                                   PyObject *kwnames); \
    extern const char layout_doc_##name[];
#define DECLARE_PLAIN(name, text, flags) \
    PyObject *layout_method_##name(PyObject *op, PyObject *argument); \
    extern const char layout_doc_##name[];
LAYOUT_CALL_LIST(DECLARE_CALL)
LAYOUT_PLAIN_LIST(DECLARE_PLAIN)
#undef DECLARE_CALL
#undef DECLARE_PLAIN

/* A yes-or-no fact, kept: one of the first four bits above. */
bool layout_answer(PyObject *op, uint32_t bit);

/* Call once, after the type is made: sets what its spec cannot say.  0, or -1. */
int layout_type_prepare(md_state *state);

/* ---- layout_index.c: basic indexing by a Python key, of StridedLayouts and Arrays ---- */

/* Index by an int, a slice, None, `...`, or a tuple of them.  IndexError with the key's type
 * where it is something else. */
int layout_index(md_state *state, const char *function, PyObject *key, const strided_layout *in,
                 strided_layout *out);

/* The same for a StridedLayout, with cuda.core's classes: ValueError for an index out of
 * range, TypeError for something else.  All strides are 0 if a slice takes no items. */
int layout_index_self(const strided_layout *in, PyObject *key, strided_layout *out);

#endif /* MD_LAYOUT_TYPE_OBJECT_H */
