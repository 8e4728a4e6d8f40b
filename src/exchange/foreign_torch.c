/* foreign_torch.c: is the memory of a torch tensor its value?  See foreign_types.h. */
#include "arithmetic/layout.h"
#include "exchange/foreign_types.h"
#include "python/call_python.h"
#include "python/errors.h"

/* Does the tensor require grad?  Autograd would miss writes to it.  1, also where the tensor does
 * not say; 0, or -1 with an exception. */
static int
requires_grad(const struct PyGetSetDef *gradient, PyObject *op)
{
    if (gradient == NULL) {
        return 1; /* a subclass that defines its own requires_grad */
    }
    /* Found once: looking the name up costs as much as the tensor. */
    PyObject *answer = gradient->get(op, gradient->closure);
    if (answer == NULL) { /* as torch's wrapper that only speaks DLPack */
        return errors_pass_over() < 0 ? -1 : 1;
    }
    bool is_true = answer != Py_False;
    Py_DECREF(answer);
    return is_true;
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

/* Is torch's negative bit set?  Also of a subclass that allows no such question.  1, 0, or -1 with
 * an exception. */
static int
is_negated(md_state *state, PyObject *op)
{
    PyObject *answer = PyObject_CallMethodNoArgs(op, state->str_is_neg);
    if (answer == NULL && errors_pass_over() == 0) {
        answer = call_python(CALL_TORCH_NEGATED, op, NULL);
    }
    int result = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return result;
}

/* torch hands out the memory of z.conj().imag, which is minus its value; nothing in the tensor
 * says so.  -1 with BufferError, or what torch raised. */
/* SPEC import-negated */
static int
refuse_negated(md_state *state, PyObject *op)
{
    int answer = is_negated(state, op);
    if (answer > 0) {
        PyErr_SetString(PyExc_BufferError,
                        "from_dlpack: the torch tensor's negative bit is set: its memory holds "
                        "minus its values; pass x.resolve_neg().");
    }
    return answer == 0 ? 0 : -1;
}

/* Refuse an opened torch tensor whose memory is not its value.  Else find what keeps the
 * memory: untyped_storage(), which is `method`. */
static int
examine_torchs(md_state *state, PyObject *op, const struct PyMethodDef *method,
               const DLTensor *tensor, PyObject **keeper)
{
    if (may_be_negated(tensor) && refuse_negated(state, op) < 0) {
        return -1;
    }
    if (method != NULL) {
        *keeper = method->ml_meth(op, NULL);
        if (*keeper == NULL) { /* a subclass that hides its storage from everybody */
            return errors_pass_over();
        }
    }
    return 0;
}

/* SPEC exchange-as-method */
int
foreign_examine_made(md_state *state, PyObject *op, const DLTensor *tensor, PyObject **keeper)
{
    const foreign_type *known = foreign_type_of(state, Py_TYPE(op));
    if (known == NULL) {
        return -1;
    }
    bool is_torchs = known->is_torchs; /* what is asked below can replace `known` */
    const struct PyMethodDef *untyped_storage = known->untyped_storage;
    if (known->requires_grad != NULL) {
        int must_ask = requires_grad(known->gradient, op);
        if (must_ask != 0) {
            return must_ask < 0 ? -1 : 0;
        }
        if (tensor->dtype.code == kDLComplex) { /* which may be conjugated */
            return 0;
        }
    }
    bool is_refused =
        is_torchs && examine_torchs(state, op, untyped_storage, tensor, keeper) < 0;
    return is_refused ? -1 : 1;
}

/* SPEC import-negated */
int
foreign_examine_memory(md_state *state, PyObject *op, const DLTensor *tensor, PyObject **keeper)
{
    const foreign_type *found = foreign_type_of(state, Py_TYPE(op));
    *keeper = NULL;
    if (found == NULL || !found->is_torchs || tensor == NULL) {
        return found == NULL ? -1 : 0;
    }
    return examine_torchs(state, op, found->untyped_storage, tensor, keeper);
}
