/* array_methods.h: the methods and slots of Array, each in the file that its comment names.
 *
 * Rule: a method `name` is array_method_NAME with the text array_doc_NAME; module/array_type.c
 *       makes the type's table of this list, with `_repr_html_`, which other types have too.
 */
#ifndef MD_ARRAY_METHODS_H
#define MD_ARRAY_METHODS_H

#include "array/array.h"
#include "python/state.h"

/* X(C name, Python name): positional and keyword arguments. */
#define ARRAY_CALL_LIST(X) \
    X(reshape, "reshape") /* array_views.c */ \
    X(squeeze, "squeeze") \
    X(expand_dims, "expand_dims") \
    X(broadcast_to, "broadcast_to") \
    X(view, "view") \
    X(permute, "permute") /* array_order.c */ \
    X(transpose, "transpose") \
    X(swapaxes, "swapaxes") \
    X(moveaxis, "moveaxis") \
    X(ravel, "ravel") \
    X(flatten, "flatten") \
    X(tobytes, "tobytes") \
    X(copy_from, "copy_from") /* array_copy_from.c */ \
    X(copy_to, "copy_to") \
    X(fill, "fill")           /* array_assign.c */ \
    X(copy, "copy")           /* array_copy.c */ \
    X(item, "item")           /* array_items.c */ \
    X(array, "__array__")     /* array_host.c */ \
    X(astype, "astype")       /* array_numpy.c */ \
    X(to_device, "to_device") /* array_to.c */ \
    X(dlpack, "__dlpack__")   /* dlpack_export.c */

/* X(C name, Python name): no arguments. */
#define ARRAY_PLAIN_LIST(X) \
    X(as_readonly, "as_readonly") /* array_views.c */ \
    X(copy_copy, "__copy__")      /* array_copy.c */ \
    X(tolist, "tolist")           /* array_items.c */ \
    X(complex, "__complex__") \
    X(to_numpy, "to_numpy")               /* array_host.c */ \
    X(dlpack_device, "__dlpack_device__") /* dlpack_export.c */ \
    X(metal_stream, "__metal_stream__")   /* array_queue.c */ \
    X(sizeof, "__sizeof__")               /* array_type.c */

/* X(C name, Python name): one positional argument. */
#define ARRAY_ONE_LIST(X) \
    X(deepcopy, "__deepcopy__")   /* array_copy.c */ \
    X(format, "__format__")       /* array_items.c */ \
    X(to, "to")                   /* array_to.c */ \
    X(reduce_ex, "__reduce_ex__") /* array_type.c */

#define DECLARE_CALL(name, text) \
    PyObject *array_method_##name(PyObject *op, PyObject *const *args, Py_ssize_t nargs, \
                                  PyObject *kwnames); \
    extern const char array_doc_##name[];
#define DECLARE_PLAIN(name, text) \
    PyObject *array_method_##name(PyObject *op, PyObject *argument); \
    extern const char array_doc_##name[];
ARRAY_CALL_LIST(DECLARE_CALL)
ARRAY_PLAIN_LIST(DECLARE_PLAIN)
ARRAY_ONE_LIST(DECLARE_PLAIN)
#undef DECLARE_CALL
#undef DECLARE_PLAIN

/* array_views.c */
PyObject *array_subscript(PyObject *op, PyObject *key);
PyObject *array_sequence_item(PyObject *op, Py_ssize_t index);
/* The view that a function of layout.h makes of these numbers. */
PyObject *array_view_by(layout_view *make, PyObject *op, const char *function, int count,
                        const int64_t *values);
/* The items, in C order, in another shape; one extent may be -1. */
PyObject *array_view_as(PyObject *op, const char *function, const int64_t *shape, int ndim);
/* A shape or axes, given as f(2, 3), f((2, 3)) or f(name=(2, 3)). */
int array_read_ints(const char *function, const char *name, PyObject *const *args,
                    Py_ssize_t nargs, PyObject *kwnames, int64_t *out, int *count);

/* array_order.c */
PyObject *array_get_T(PyObject *op, void *closure);
PyObject *array_get_mT(PyObject *op, void *closure);

/* array_assign.c */
int array_assign_subscript(PyObject *op, PyObject *key, PyObject *value);

/* array_items.c */
int array_bool(PyObject *op);
PyObject *array_int(PyObject *op);
PyObject *array_float(PyObject *op);
PyObject *array_index(PyObject *op);

/* ---- array_absent.c: what Array answers with the way out ---- */

/* X(slot, sign): two operands; each has a slot inplace_SLOT too, whose left operand is an Array
 * that would be changed. */
#define ARRAY_INPLACE_SLOTS(X) \
    X(add, "+") \
    X(subtract, "-") \
    X(multiply, "*") \
    X(matrix_multiply, "@") \
    X(true_divide, "/") \
    X(floor_divide, "//") \
    X(remainder, "%") \
    X(lshift, "<<") \
    X(rshift, ">>") \
    X(and, "&") \
    X(or, "|") \
    X(xor, "^")
#define ARRAY_BINARY_SLOTS(X) ARRAY_INPLACE_SLOTS(X) X(divmod, "divmod")

/* X(slot, sign): one operand. */
#define ARRAY_UNARY_SLOTS(X) \
    X(negative, "-") \
    X(positive, "+") \
    X(absolute, "abs ") \
    X(invert, "~")

#define DECLARE_BINARY(name, sign) PyObject *array_##name(PyObject *left, PyObject *right);
#define DECLARE_INPLACE(name, sign) DECLARE_BINARY(inplace_##name, sign)
#define DECLARE_UNARY(name, sign) PyObject *array_##name(PyObject *op);
ARRAY_BINARY_SLOTS(DECLARE_BINARY)
ARRAY_INPLACE_SLOTS(DECLARE_INPLACE)
ARRAY_UNARY_SLOTS(DECLARE_UNARY)
#undef DECLARE_BINARY
#undef DECLARE_INPLACE
#undef DECLARE_UNARY

PyObject *array_power(PyObject *left, PyObject *right, PyObject *modulus);
PyObject *array_inplace_power(PyObject *left, PyObject *right, PyObject *modulus);
PyObject *array_richcompare(PyObject *op, PyObject *other, int comparison);
int array_contains(PyObject *op, PyObject *value);
/* By identity. */
Py_hash_t array_hash(PyObject *op);
/* Give Array, Device, Stream and Library the names that others have and they have not.  0, or -1
 * with an exception. */
int array_absent_add(PyObject *module, const md_state *state);

/* array_request.c */
int array_getbuffer(PyObject *op, Py_buffer *view, int flags);
void array_releasebuffer(PyObject *op, Py_buffer *view);
/* -1 with the exception of array_getbuffer that NumPy discarded before it asked here. */
int array_raise_unheard(ArrayObject *self);
/* It was heard. */
void array_forget_unheard(ArrayObject *self);

/* array_host.c */
PyObject *array_get_ctypes(PyObject *op, void *closure);
PyObject *array_get_host(PyObject *op, void *closure);
/* The Array that `op` is, or is the host view of: borrowed.  NULL: neither. */
PyObject *array_behind(md_state *state, PyObject *op);
PyObject *array_get_interface(PyObject *op, void *closure);

/* array_make.c: empty, zeros, ones and full, and the same like another array */
extern PyMethodDef array_make_functions[];

#endif /* MD_ARRAY_METHODS_H */
