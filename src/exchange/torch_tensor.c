/* torch_tensor.c: see torch_tensor.h. */
#include "exchange/torch_tensor.h"

#include "arithmetic/layout.h"

const struct PyGetSetDef *
torch_getter(PyTypeObject *type, PyObject *attribute)
{
    if (attribute == NULL || !Py_IS_TYPE(attribute, &PyGetSetDescr_Type) ||
        !PyType_IsSubtype(type, PyDescr_TYPE(attribute))) {
        return NULL;
    }
    const struct PyGetSetDef *getter = ((PyGetSetDescrObject *)attribute)->d_getset;
    return getter->get == NULL ? NULL : getter;
}

/* torch's table exports what torch's __dlpack__ refuses: a tensor that requires grad
 * (autograd would miss writes to it) and a conjugated one (its memory is not its value).  1:
 * let __dlpack__ refuse. */
/* SPEC exchange-as-method */
int
torch_must_ask(const foreign_type *slot, PyObject *op)
{
    if (slot->gradient == NULL) { /* unreached: no test makes it fail here */
        return 1;                 /* a subclass that defines its own requires_grad */
    }
    /* Found once: looking the name up costs as much as the tensor. */
    PyObject *answer = slot->gradient->get(op, slot->gradient->closure);
    if (answer == NULL) {
        return -1;
    }
    bool must_ask = answer != Py_False;
    Py_DECREF(answer);
    return must_ask;
}

/* Only imaginary parts are negated, and these lie two numbers apart: an axis of stride 1
 * rules them out without a call. */
static bool
may_be_negated(const DLTensor *tensor)
{
    if (tensor->ndim > 0 &&
        (tensor->ndim > LAYOUT_MAX_NDIM || tensor->shape == NULL || tensor->strides == NULL)) {
        /* not made by torch; dlpack_check.h judges it as any other */
        return false;
    }
    /* mutant survives (bound): one element more is read: asan sees it */
    for (int axis = 0; axis < tensor->ndim; axis++) {
        if (tensor->strides[axis] == 1 && tensor->shape[axis] > 1) {
            return false;
        }
    }
    return tensor->dtype.code == kDLFloat;
}

/* torch hands out the memory of z.conj().imag, which is minus its value; nothing in the tensor
 * says so.  -1 with BufferError, or what torch raised. */
/* SPEC import-negated */
static int
refuse_negated(md_state *state, PyObject *op)
{
    PyObject *answer = PyObject_CallMethodNoArgs(op, state->str_is_neg);
    int is_negated = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (is_negated < 0 && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        /* unreached: no test makes it fail here */
        PyErr_Clear(); /* not torch's */
        return 0;
    }
    if (is_negated > 0) {
        PyErr_SetString(PyExc_BufferError,
                        "from_dlpack: the torch tensor's negative bit is set: its memory "
                        "holds minus its values; pass x.resolve_neg().");
    }
    return is_negated == 0 ? 0 : -1;
}

int
torch_check_tensor(md_state *state, PyObject *op, const DLTensor *tensor)
{
    if (tensor->dtype.code == kDLComplex) { /* it may be conjugated */
        return 0;
    }
    return may_be_negated(tensor) && refuse_negated(state, op) < 0 ? -1 : 1;
}
