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
absent_get(PyObject *op, void *text)
{
    return PyErr_Format(PyExc_AttributeError, "%s has no attribute %s.", name_of(op),
                        (const char *)text);
}

/* `a.data = x`: the type of these names, which nobody knows, is not spoken of. */
static int
absent_set(PyObject *op, PyObject *Py_UNUSED(value), void *text)
{
    (void)absent_get(op, text);
    return -1;
}

#define ROW(name, text) {#name, absent_get, absent_set, NULL, (void *)("'" #name "'" text)}
#define ABSENT(name, instead) ROW(name, "; write " instead)

/* clang-format off */
/* What NumPy and torch compute by methods of one name; by a function, and by a method. */
#define MATHS(X) \
    X(all) X(any) X(argmax) X(argmin) X(argsort) X(clip) X(cumprod) X(cumsum) X(diagonal) \
    X(dot) X(max) X(mean) X(min) X(nonzero) X(prod) X(repeat) X(round) X(sort) X(std) X(sum) \
    X(take) X(trace) X(var)
#define FUNCTIONS(X) \
    X(add) X(allclose) X(ceil) X(cos) X(diag) X(divide) X(equal) X(exp) X(flip) X(floor) \
    X(greater) X(less) X(log) X(multiply) X(outer) X(roll) X(sign) X(sin) X(sqrt) X(square) \
    X(subtract) X(tanh) X(tril) X(triu) X(unique) X(where)
/* What one of them has. */
#define OF_NUMPY(X) \
    X(argpartition) X(byteswap) X(choose) X(compress) X(conj) X(conjugate) X(dump) X(dumps) \
    X(getfield) X(imag) X(partition) X(put) X(real) X(searchsorted) X(setfield) X(tofile)
#define OF_TORCH(X) \
    X(add_) X(bmm) X(chunk) X(clamp) X(clamp_) X(cross) X(div) X(div_) X(eq) X(gather) X(ge) \
    X(gt) X(index_select) X(is_complex) X(is_floating_point) X(le) X(lt) X(masked_fill) \
    X(masked_fill_) X(masked_select) X(mm) X(mul) X(mul_) X(ne) X(neg) X(norm) X(normal_) \
    X(pow) X(random_) X(relu) X(scatter_) X(sigmoid) X(softmax) X(split) X(sub) X(sub_) \
    X(topk) X(uniform_)
/* clang-format on */

#define MATH(name) \
    ROW(name, ": it does no arithmetic; call np.asarray(a)." #name \
              "() or a.to(torch.Tensor)." #name "(), which share its memory"),
#define FUNCTION(name) \
    ROW(name, ": it does no arithmetic; call np." #name "(a) or a.to(torch.Tensor)." #name "(" \
              ")"),
#define NUMPYS(name) ROW(name, "; write np.asarray(a)." #name ", which shares its memory"),
#define TORCHS(name) \
    ROW(name, "; call a.to(torch.Tensor)." #name "(), which shares its memory"),

static PyGetSetDef absent_getset[] = {
    ABSENT(get, "np.asarray(a), which shares the memory"),
    ABSENT(ptr, "a.buffer.address + a.byte_offset"),
    ABSENT(torch, "a.to(torch)"),
    ABSENT(abs, "abs(np.asarray(a)), or a.to(torch.Tensor).abs()"),
    ABSENT(backward, "a.to(torch.Tensor); an Array has no gradients"),
    ABSENT(base, "a.buffer, which every view of it has"),
    ABSENT(bfloat16, "a.astype('bfloat16')"),
    ABSENT(bool, "a.astype('bool')"),
    ABSENT(byte, "a.astype('uint8')"),
    ABSENT(clone, "a.copy()"),
    ABSENT(contiguous, "a.copy(), which is contiguous"),
    ABSENT(copy_, "a.copy_from(src), or a[...] = src, which converts"),
    ABSENT(cpu, "np.asarray(a) or a.host, the same memory on the CPU"),
    ABSENT(cuda, "a.to(torch); an Array lies on Metal"),
    ABSENT(data_ptr,
           "a.buffer.handle for the MTLBuffer and a.byte_offset in it, or a.buffer.address"),
    ABSENT(detach, "a itself; an Array has no gradients"),
    ABSENT(dim, "a.ndim"),
    ABSENT(double, "a.astype('float64')"),
    ABSENT(element_size, "a.itemsize"),
    ABSENT(expand, "a.broadcast_to(shape)"),
    ABSENT(expand_as, "a.broadcast_to(b.shape)"),
    ABSENT(fill_, "a.fill(value)"),
    ABSENT(flat, "a.reshape(-1)"),
    ABSENT(float, "a.astype('float32')"),
    ABSENT(grad, "a.to(torch.Tensor); an Array has no gradients"),
    ABSENT(half, "a.astype('float16')"),
    ABSENT(int, "a.astype('int32')"),
    ABSENT(is_contiguous, "a.layout.is_contiguous_c"),
    ABSENT(is_cuda, "a.device; an Array lies on Metal"),
    ABSENT(is_mps, "a.device; an Array lies on Metal"),
    ABSENT(long, "a.astype('int64')"),
    ABSENT(matmul, "np.asarray(a) @ b, or a.to(torch.Tensor) @ b"),
    ABSENT(movedim, "a.moveaxis(source, destination)"),
    ABSENT(mps, "a.to(torch.Tensor); an Array lies on Metal already"),
    ABSENT(narrow, "a[start:start + length], or such a slice of another axis"),
    ABSENT(ndimension, "a.ndim"),
    ABSENT(nelement, "a.size"),
    ABSENT(new_empty, "metal_dlpack.empty(shape, a.dtype)"),
    ABSENT(new_full, "metal_dlpack.full(shape, value, a.dtype)"),
    ABSENT(new_ones, "metal_dlpack.ones(shape, a.dtype)"),
    ABSENT(new_zeros, "metal_dlpack.zeros(shape, a.dtype)"),
    ABSENT(numel, "a.size"),
    ABSENT(numpy, "np.asarray(a), which shares the memory"),
    ABSENT(requires_grad, "a.to(torch.Tensor); an Array has no gradients"),
    ABSENT(requires_grad_, "a.to(torch.Tensor); an Array has no gradients"),
    ABSENT(reshape_as, "a.reshape(b.shape)"),
    ABSENT(resize, "a.reshape(shape), a view of as many items, or metal_dlpack.zeros(shape)"),
    ABSENT(resize_, "a.reshape(shape), a view of as many items, or metal_dlpack.zeros(shape)"),
    ABSENT(select, "a[index], or such an index of another axis"),
    ABSENT(setflags, "a.as_readonly(), or a.copy() to write"),
    ABSENT(squeeze_, "a.squeeze(axis), which is a view"),
    ABSENT(storage_offset, "a.byte_offset, in bytes of a.buffer"),
    ABSENT(stride, "a.strides"),
    ABSENT(swapdims, "a.swapaxes(axis1, axis2)"),
    ABSENT(t, "a.T"),
    ABSENT(t_, "a.T, which is a view"),
    ABSENT(transpose_, "a.swapaxes(axis1, axis2), which is a view"),
    ABSENT(type, "a.astype(dtype), or a.dtype"),
    ABSENT(type_as, "a.astype(b.dtype)"),
    ABSENT(unbind, "list(a), views along the first axis"),
    ABSENT(unsqueeze, "a.expand_dims(axis)"),
    ABSENT(unsqueeze_, "a.expand_dims(axis), which is a view"),
    ABSENT(untyped_storage, "a.buffer"),
    ABSENT(view_as, "a.reshape(b.shape)"),
    ABSENT(zero_, "a.fill(0)"),
    MATHS(MATH) FUNCTIONS(FUNCTION) OF_NUMPY(NUMPYS) OF_TORCH(TORCHS) MD_LAST_FACT,
};

static PyGetSetDef device_absent[] = {
    ABSENT(type, "str(device), 'metal:0', and device.index"),
    MD_LAST_FACT,
};

static PyGetSetDef stream_absent[] = {
    ABSENT(cuda_stream, "stream.handle"),
    ABSENT(done, "stream.query()"),
    ABSENT(record_event, "stream.record()"),
    ABSENT(use, "`with stream:`"),
    ABSENT(wait_event, "stream.wait(event)"),
    ABSENT(wait_stream, "stream.wait(other)"),
    MD_LAST_FACT,
};

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
    return add_names(module, state->array_type, Py_tp_getset, absent_getset) < 0 ||
                   add_names(module, state->device_type, Py_tp_getset, device_absent) < 0 ||
                   add_names(module, state->stream_type, Py_tp_getset, stream_absent) < 0 ||
                   add_names(module, state->library_type, Py_tp_methods, library_absent) < 0
               ? -1
               : 0;
}
