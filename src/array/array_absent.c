/* array_absent.c: the operators and attributes that other arrays have, and Array answers with the
 * way out.
 *
 * Rule:    an Array does no arithmetic and compares no items.  An operand of another library
 *          is asked first, as NumPy's arrays convert an Array; if it does not know Arrays
 *          either, a TypeError names the way out.  No comparison falls back to identity.
 * Threads: the GIL is held.
 */
#include "array/array_methods.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* ---- refusals ---- */

#define WHERE_TO_COMPUTE \
    "compute with np.asarray(a), a.to(torch.Tensor) or a kernel, which share its memory."

/* A type's name without its module. */
static const char *
name_of(PyObject *op)
{
    const char *name = Py_TYPE(op)->tp_name;
    const char *dot = strrchr(name, '.');
    return dot == NULL ? name : dot + 1;
}

static PyObject *
refuse_arithmetic(PyObject *left, const char *sign, PyObject *right)
{
    return PyErr_Format(PyExc_TypeError,
                        "%.100s %s %.100s: an Array does no arithmetic; " WHERE_TO_COMPUTE,
                        name_of(left), sign, name_of(right));
}

static PyObject *
refuse_inplace(PyObject *left, const char *sign, PyObject *right)
{
    return PyErr_Format(
        PyExc_TypeError,
        "%.100s %s %.100s: an Array does no arithmetic; x = np.asarray(a) shares its memory, "
        "so x %s ... changes it, as a.to(torch.Tensor) and a kernel do.",
        name_of(left), sign, name_of(right), sign);
}

/* ---- arithmetic ---- */

/* NotImplemented where the right operand has no such operator, or where it is an Array, whose
 * operator is the one that asks. */
static PyObject *
ask_right(PyObject *left, PyObject *right, size_t slot, binaryfunc ours)
{
    const PyNumberMethods *numbers = Py_TYPE(right)->tp_as_number;
    binaryfunc theirs =
        numbers == NULL ? NULL : *(const binaryfunc *)((const char *)numbers + slot);
    if (theirs == NULL || theirs == ours) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return theirs(left, right);
}

/* Does `list += a` end here?  The list takes the views along the first axis, a bytearray the
 * bytes. */
static bool
is_extended(PyObject *left, size_t slot)
{
    const PySequenceMethods *sequence = Py_TYPE(left)->tp_as_sequence;
    return slot == offsetof(PyNumberMethods, nb_add) && sequence != NULL &&
           sequence->sq_inplace_concat != NULL;
}

static PyObject *
operate(PyObject *left, const char *sign, PyObject *right, size_t slot, binaryfunc ours)
{
    PyObject *answer = ask_right(left, right, slot, ours);
    if (answer != Py_NotImplemented || is_extended(left, slot)) {
        return answer;
    }
    Py_DECREF(answer);
    return refuse_arithmetic(left, sign, right);
}

#define DEFINE_BINARY(name, sign) \
    PyObject *array_##name(PyObject *left, PyObject *right) \
    { \
        return operate(left, sign, right, offsetof(PyNumberMethods, nb_##name), array_##name); \
    }
ARRAY_BINARY_SLOTS(DEFINE_BINARY)
#undef DEFINE_BINARY

#define DEFINE_INPLACE(name, sign) \
    PyObject *array_inplace_##name(PyObject *left, PyObject *right) \
    { \
        return refuse_inplace(left, sign "=", right); \
    }
ARRAY_INPLACE_SLOTS(DEFINE_INPLACE)
#undef DEFINE_INPLACE

#define DEFINE_UNARY(name, sign) \
    PyObject *array_##name(PyObject *op) \
    { \
        return PyErr_Format(PyExc_TypeError, \
                            sign "%.100s: an Array does no arithmetic; " WHERE_TO_COMPUTE, \
                            name_of(op)); \
    }
ARRAY_UNARY_SLOTS(DEFINE_UNARY)
#undef DEFINE_UNARY

PyObject *
array_power(PyObject *left, PyObject *right, PyObject *modulus)
{
    const PyNumberMethods *numbers = Py_TYPE(right)->tp_as_number;
    ternaryfunc theirs = numbers == NULL ? NULL : numbers->nb_power;
    PyObject *answer = theirs == NULL || theirs == array_power ? Py_NewRef(Py_NotImplemented)
                                                               : theirs(left, right, modulus);
    if (answer != Py_NotImplemented) {
        return answer;
    }
    Py_DECREF(answer);
    return refuse_arithmetic(left, "**", right);
}

PyObject *
array_inplace_power(PyObject *left, PyObject *right, PyObject *Py_UNUSED(modulus))
{
    return refuse_inplace(left, "**=", right);
}

/* ---- comparison ---- */

PyObject *
array_richcompare(PyObject *op, PyObject *other, int comparison)
{
    static const char *const signs[] = {"<", "<=", "==", "!=", ">", ">="};
    static const int mirrored[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
    richcmpfunc theirs = Py_TYPE(other)->tp_richcompare;
    PyObject *answer = theirs == NULL || theirs == array_richcompare
                           ? Py_NewRef(Py_NotImplemented)
                           : theirs(other, op, mirrored[comparison]);
    if (answer != Py_NotImplemented) {
        return answer;
    }
    Py_DECREF(answer);
    return PyErr_Format(
        PyExc_TypeError,
        "%.100s %s %.100s: an Array compares no items; compare np.asarray(a) or "
        "a.to(torch.Tensor), which share its memory, or the objects themselves with `is`.",
        name_of(op), signs[comparison], name_of(other));
}

int
array_contains(PyObject *op, PyObject *value)
{
    PyErr_Format(PyExc_TypeError,
                 "%.100s in %.100s: an Array compares no items; write `x in a.tolist()` or `x "
                 "in np.asarray(a)`.",
                 name_of(value), name_of(op));
    return -1;
}

Py_hash_t
array_hash(PyObject *op)
{
    return PyBaseObject_Type.tp_hash(op);
}

/* ---- attributes ----
 *
 * Reading one raises AttributeError with the way out, so hasattr(a, name) is False; dir(), vars()
 * and help() do not show them.  Array's tp_getattro is PyObject_GenericGetAttr: with a __getattr__
 * the type would lose the interpreter's fast method calls, a.__dlpack__() among them; so the names
 * are getters, which cost nothing until one is read. */

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

/* What NumPy and torch compute by methods of one name. */
#define MATHS(name) \
    {name, absent_get, absent_set, NULL, \
     (void *)("'" name "': it does no arithmetic; call np.asarray(a)." name \
              "() or a.to(torch.Tensor)." name "(), which share its memory")}
#define ABSENT(name, instead) \
    {name, absent_get, absent_set, NULL, (void *)("'" name "'; write " instead)}

static PyGetSetDef absent_getset[] = {
    MATHS("all"),
    MATHS("any"),
    MATHS("argmax"),
    MATHS("argmin"),
    MATHS("argsort"),
    MATHS("clip"),
    MATHS("cumprod"),
    MATHS("cumsum"),
    MATHS("diagonal"),
    MATHS("dot"),
    MATHS("max"),
    MATHS("mean"),
    MATHS("min"),
    MATHS("nonzero"),
    MATHS("prod"),
    MATHS("repeat"),
    MATHS("round"),
    MATHS("sort"),
    MATHS("std"),
    MATHS("sum"),
    MATHS("take"),
    MATHS("trace"),
    MATHS("var"),
    ABSENT("abs", "abs(np.asarray(a)), or a.to(torch.Tensor).abs()"),
    ABSENT("bfloat16", "a.astype('bfloat16')"),
    ABSENT("bool", "a.astype('bool')"),
    ABSENT("byte", "a.astype('uint8')"),
    ABSENT("clone", "a.copy()"),
    ABSENT("contiguous", "a.copy(), which is contiguous"),
    ABSENT("copy_", "a.copy_from(src), or a[...] = src, which converts"),
    ABSENT("cpu", "np.asarray(a) or a.host, the same memory on the CPU"),
    ABSENT("cuda", "a.to(torch); an Array lies on Metal"),
    ABSENT("data", "memoryview(a), or a.buffer.address"),
    ABSENT("data_ptr",
           "a.buffer.handle for the MTLBuffer and a.byte_offset in it, or a.buffer.address"),
    ABSENT("detach", "a itself; an Array has no gradients"),
    ABSENT("dim", "a.ndim"),
    ABSENT("double", "a.astype('float64')"),
    ABSENT("element_size", "a.itemsize"),
    ABSENT("expand", "a.broadcast_to(shape)"),
    ABSENT("fill_", "a.fill(value)"),
    ABSENT("flat", "a.reshape(-1)"),
    ABSENT("float", "a.astype('float32')"),
    ABSENT("half", "a.astype('float16')"),
    ABSENT("int", "a.astype('int32')"),
    ABSENT("is_contiguous", "a.layout.is_contiguous_c"),
    ABSENT("long", "a.astype('int64')"),
    ABSENT("matmul", "np.asarray(a) @ b, or a.to(torch.Tensor) @ b"),
    ABSENT("moveaxis", "a.permute(axes)"),
    ABSENT("mps", "a.to(torch.Tensor); an Array lies on Metal already"),
    ABSENT("numel", "a.size"),
    ABSENT("numpy", "np.asarray(a), which shares the memory"),
    ABSENT("ravel", "a.reshape(-1)"),
    ABSENT("swapaxes", "a.permute(axes), or a.mT for the last two"),
    ABSENT("tobytes", "bytes(memoryview(a).cast('B')), or np.asarray(a).tobytes()"),
    ABSENT("transpose", "a.permute(axes) or a.T"),
    ABSENT("type", "a.astype(dtype), or a.dtype"),
    ABSENT("unsqueeze", "a.expand_dims(axis)"),
    ABSENT("zero_", "a.fill(0)"),
    MD_LAST_FACT,
};
#undef MATHS
#undef ABSENT

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
