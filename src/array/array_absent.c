/* array_absent.c: attributes that other arrays have and Array has not.
 *
 * Rule:      reading one raises AttributeError with the way out, so hasattr(a, name) is False;
 *            dir(), vars() and help() do not show them.
 * Owns:      nothing: the Array type keeps the type of the names alive.
 * Invariant: Array's tp_getattro is PyObject_GenericGetAttr.  With a __getattr__ the type would
 *            lose the interpreter's fast method calls, a.__dlpack__() among them; so the names
 *            are getters, which cost nothing until one is read.
 */
#include "array/array_methods.h"

/* X(name): what NumPy and torch compute by methods of one name. */
#define ARRAY_MATHS_LIST(X) \
    X("all") \
    X("any") \
    X("argmax") \
    X("argmin") \
    X("argsort") \
    X("clip") \
    X("cumprod") \
    X("cumsum") \
    X("diagonal") \
    X("dot") \
    X("max") \
    X("mean") \
    X("min") \
    X("nonzero") \
    X("prod") \
    X("repeat") \
    X("round") \
    X("sort") \
    X("std") \
    X("sum") \
    X("take") \
    X("trace") \
    X("var")

/* X(name, what to write instead) */
#define ARRAY_ABSENT_LIST(X) \
    X("abs", "abs(np.asarray(a)), or a.to(torch.Tensor).abs()") \
    X("bfloat16", "a.astype('bfloat16')") \
    X("bool", "a.astype('bool')") \
    X("byte", "a.astype('uint8')") \
    X("clone", "a.copy()") \
    X("contiguous", "a.copy(), which is contiguous") \
    X("copy_", "a.copy_from(src), or a[...] = src, which converts") \
    X("cpu", "np.asarray(a) or a.host, the same memory on the CPU") \
    X("cuda", "a.to(torch); an Array lies on Metal") \
    X("data", "memoryview(a), or a.buffer.address") \
    X("data_ptr", \
      "a.buffer.handle for the MTLBuffer and a.byte_offset in it, or a.buffer.address") \
    X("detach", "a itself; an Array has no gradients") \
    X("dim", "a.ndim") \
    X("double", "a.astype('float64')") \
    X("element_size", "a.itemsize") \
    X("expand", "a.broadcast_to(shape)") \
    X("fill_", "a.fill(value)") \
    X("flat", "a.reshape(-1)") \
    X("float", "a.astype('float32')") \
    X("half", "a.astype('float16')") \
    X("int", "a.astype('int32')") \
    X("is_contiguous", "a.layout.is_contiguous_c") \
    X("long", "a.astype('int64')") \
    X("matmul", "np.asarray(a) @ b, or a.to(torch.Tensor) @ b") \
    X("moveaxis", "a.permute(axes)") \
    X("mps", "a.to(torch.Tensor); an Array lies on Metal already") \
    X("numel", "a.size") \
    X("numpy", "np.asarray(a), which shares the memory") \
    X("ravel", "a.reshape(-1)") \
    X("swapaxes", "a.permute(axes), or a.mT for the last two") \
    X("tobytes", "bytes(memoryview(a).cast('B')), or np.asarray(a).tobytes()") \
    X("transpose", "a.permute(axes) or a.T") \
    X("type", "a.astype(dtype), or a.dtype") \
    X("unsqueeze", "a.expand_dims(axis)") \
    X("zero_", "a.fill(0)")

static PyObject *
absent_get(PyObject *Py_UNUSED(op), void *text)
{
    return PyErr_Format(PyExc_AttributeError, "Array has no attribute %s.", (const char *)text);
}

/* `a.data = x`: the type of these names, which nobody knows, is not spoken of. */
static int
absent_set(PyObject *op, PyObject *Py_UNUSED(value), void *text)
{
    (void)absent_get(op, text);
    return -1;
}

#define MATHS_ROW(name) \
    {name, absent_get, absent_set, NULL, \
     (void *)("'" name "': it does no arithmetic; call np.asarray(a)." name \
              "() or a.to(torch.Tensor)." name "(), which share its memory")},
#define ABSENT_ROW(name, instead) \
    {name, absent_get, absent_set, NULL, (void *)("'" name "'; write " instead)},
static PyGetSetDef absent_getset[] = {
    ARRAY_MATHS_LIST(MATHS_ROW) ARRAY_ABSENT_LIST(ABSENT_ROW){NULL, NULL, NULL, NULL, NULL},
};
#undef MATHS_ROW
#undef ABSENT_ROW

static PyType_Slot absent_slots[] = {
    {Py_tp_getset, absent_getset},
    {0, NULL},
};

static PyType_Spec absent_spec = {
    .name = "metal_dlpack._AbsentNames",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = absent_slots,
};

/* Put the names into the type's MRO only.  Look-ups go through the MRO; dir() goes through
 * __bases__, and would list those of a base. */
int
array_absent_add(PyObject *module, PyTypeObject *array_type)
{
    PyObject *names = PyType_FromModuleAndSpec(module, &absent_spec, NULL);
    PyObject *mro = names == NULL ? NULL
                                  : PyTuple_Pack(3, (PyObject *)array_type, names,
                                                 (PyObject *)&PyBaseObject_Type);
    Py_XDECREF(names);
    if (mro == NULL) {
        return -1;
    }
    Py_SETREF(array_type->tp_mro, mro);
    PyType_Modified(array_type);
    return 0;
}
