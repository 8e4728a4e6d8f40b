/* array_absent.c: the operators and attributes that other arrays have, and Array answers with the
 * way out; likewise attributes of Device, Stream and Library.
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

#include "python/call_python.h"

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
 * are getters, which cost nothing until one is read.  metal_dlpack/absent_names.py has the texts. */

static PyObject *
absent_get(PyObject *op, void *name)
{
    PyObject *asked = Py_BuildValue("(ss)", name_of(op), (const char *)name);
    PyObject *text = asked == NULL ? NULL
                                   : call_python(CALL_ABSENT_TEXT, PyTuple_GET_ITEM(asked, 0),
                                                 PyTuple_GET_ITEM(asked, 1));
    if (text != NULL) {
        PyErr_SetObject(PyExc_AttributeError, text);
    }
    else if (PyErr_ExceptionMatches(PyExc_ImportError)) {
        /* Python ends, and imports nothing more */
        PyErr_Format(PyExc_AttributeError, "%s has no attribute '%s'.", name_of(op),
                     (const char *)name);
    }
    Py_XDECREF(text);
    Py_XDECREF(asked);
    return NULL;
}

/* `a.data = x`: the type of these names, which nobody knows, is not spoken of. */
static int
absent_set(PyObject *op, PyObject *Py_UNUSED(value), void *name)
{
    (void)absent_get(op, name);
    return -1;
}

/* clang-format off */
#define NAMES_OF_ARRAY(X) \
    X(abs) X(add) X(add_) X(all) X(allclose) X(any) X(argmax) X(argmin) X(argpartition) \
    X(argsort) X(backward) X(base) X(bfloat16) X(bmm) X(bool) X(byte) X(byteswap) X(ceil) \
    X(choose) X(chunk) X(clamp) X(clamp_) X(clip) X(clone) X(compress) X(conj) X(conjugate) \
    X(contiguous) X(copy_) X(cos) X(cpu) X(cross) X(cuda) X(cumprod) X(cumsum) X(data_ptr) \
    X(detach) X(diag) X(diagonal) X(dim) X(div) X(div_) X(divide) X(dot) X(double) X(dump) \
    X(dumps) X(element_size) X(eq) X(equal) X(exp) X(expand) X(expand_as) X(fill_) X(flat) \
    X(flip) X(float) X(floor) X(gather) X(ge) X(get) X(getfield) X(grad) X(greater) X(gt) \
    X(half) X(imag) X(index_select) X(int) X(is_complex) X(is_contiguous) X(is_cuda) \
    X(is_floating_point) X(is_mps) X(le) X(less) X(log) X(long) X(lt) X(masked_fill) \
    X(masked_fill_) X(masked_select) X(matmul) X(max) X(mean) X(min) X(mm) X(movedim) X(mps) \
    X(mul) X(mul_) X(multiply) X(narrow) X(ndimension) X(ne) X(neg) X(nelement) X(new_empty) \
    X(new_full) X(new_ones) X(new_zeros) X(nonzero) X(norm) X(normal_) X(numel) X(numpy) \
    X(outer) X(partition) X(pow) X(prod) X(ptr) X(put) X(random_) X(real) X(relu) X(repeat) \
    X(requires_grad) X(requires_grad_) X(reshape_as) X(resize) X(resize_) X(roll) X(round) \
    X(scatter_) X(searchsorted) X(select) X(setfield) X(setflags) X(sigmoid) X(sign) X(sin) \
    X(softmax) X(sort) X(split) X(sqrt) X(square) X(squeeze_) X(std) X(storage_offset) \
    X(stride) X(sub) X(sub_) X(subtract) X(sum) X(swapdims) X(t) X(t_) X(take) X(tanh) \
    X(tofile) X(topk) X(torch) X(trace) X(transpose_) X(tril) X(triu) X(type) X(type_as) \
    X(unbind) X(uniform_) X(unique) X(unsqueeze) X(unsqueeze_) X(untyped_storage) X(var) \
    X(view_as) X(where) X(zero_)
#define NAMES_OF_STREAM(X) \
    X(cuda_stream) X(done) X(record_event) X(use) X(wait_event) X(wait_stream)
/* clang-format on */
#define AS_GETTER(name) {#name, absent_get, absent_set, NULL, (void *)#name},

static PyGetSetDef array_names[] = {NAMES_OF_ARRAY(AS_GETTER) MD_LAST_FACT};
static PyGetSetDef device_names[] = {AS_GETTER(type) MD_LAST_FACT};
static PyGetSetDef stream_names[] = {NAMES_OF_STREAM(AS_GETTER) MD_LAST_FACT};

/* Library.from_file(path) is asked of the type, where a getter would give itself. */
static PyObject *
library_from_file(PyObject *Py_UNUSED(op), PyObject *Py_UNUSED(args),
                  PyObject *Py_UNUSED(keywords))
{
    return PyErr_Format(PyExc_AttributeError,
                        "Library has no attribute 'from_file'; write "
                        "Library(pathlib.Path(path).read_text(), name=path).");
}

static PyMethodDef library_absent[] = {
    {"from_file", (PyCFunction)(void (*)(void))library_from_file,
     METH_VARARGS | METH_KEYWORDS | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

/* Put the names into the type's MRO only.  Look-ups go through the MRO; dir() goes through
 * __bases__, and would list those of a base. */
static int
add_names(PyObject *module, PyTypeObject *type, int slot, void *names)
{
    PyType_Slot slots[] = {{slot, names}, {0, NULL}};
    PyType_Spec spec = {
        .name = "metal_dlpack._AbsentNames",
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE |
                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    PyObject *base = PyType_FromModuleAndSpec(module, &spec, NULL);
    PyObject *mro =
        base == NULL ? NULL
                     : PyTuple_Pack(3, (PyObject *)type, base, (PyObject *)&PyBaseObject_Type);
    Py_XDECREF(base);
    if (mro == NULL) {
        return -1;
    }
    Py_SETREF(type->tp_mro, mro);
    PyType_Modified(type);
    return 0;
}

int
array_absent_add(PyObject *module, const md_state *state)
{
    return add_names(module, state->array_type, Py_tp_getset, array_names) < 0 ||
                   add_names(module, state->device_type, Py_tp_getset, device_names) < 0 ||
                   add_names(module, state->stream_type, Py_tp_getset, stream_names) < 0 ||
                   add_names(module, state->library_type, Py_tp_methods, library_absent) < 0
               ? -1
               : 0;
}
