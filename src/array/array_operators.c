/* array_operators.c: the operators that Array answers with the way out.
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
    PyObject *array_##name(PyObject *left, PyObject *right) \
    { \
        return refuse_inplace(left, sign, right); \
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
                 "%.100s in %.100s: an Array compares no items; write `x in a.tolist()` or "
                 "`x in np.asarray(a)`.",
                 name_of(value), name_of(op));
    return -1;
}

Py_hash_t
array_hash(PyObject *op)
{
    return PyBaseObject_Type.tp_hash(op);
}
