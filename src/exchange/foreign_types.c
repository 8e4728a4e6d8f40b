/* foreign_types.c: see foreign_types.h. */
#include "exchange/foreign_types.h"

#include "arithmetic/layout.h"
#include "exchange/torch.h"
#include "python/attribute.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "python/owners.h"
#include "streams/stream_protocol.h"

/* The most versions of a table behind one another: a longer chain runs in a circle. */
#define MOST_VERSIONS 16

/* ---- examining a type ---- */

/* The newest table of our major version. */
/* SPEC exchange-versions */
static const DLPackExchangeAPI *
choose_version(const DLPackExchangeAPIHeader *header)
{
    for (int versions = 0; header != NULL && versions < MOST_VERSIONS; versions++) {
        if (header->version.major == DLPACK_MAJOR_VERSION) {
            return (const DLPackExchangeAPI *)header;
        }
        header = header->prev_api;
    }
    return NULL;
}

/* Has it the functions that we call?  dlpack.h says that none may be missing. */
static bool
is_whole(const DLPackExchangeAPI *table)
{
    return table != NULL && table->managed_tensor_from_py_object_no_sync != NULL &&
           table->managed_tensor_to_py_object_no_sync != NULL;
}

/* The type's table, or NULL where it has none.  -1 with an exception. */
static int
look_up_table(md_state *state, PyTypeObject *type, const DLPackExchangeAPI **out)
{
    PyObject *capsule;
    *out = NULL;
    int is_there =
        attribute_find((PyObject *)type, state->str___dlpack_c_exchange_api__, &capsule);
    if (is_there <= 0) {
        return is_there;
    }
    const DLPackExchangeAPI *table = NULL;
    if (PyCapsule_IsValid(capsule, CAPSULE_EXCHANGE_API)) {
        table = choose_version(PyCapsule_GetPointer(capsule, CAPSULE_EXCHANGE_API));
    }
    Py_DECREF(capsule);
    *out = is_whole(table) ? table : NULL;
    return 0;
}

/* What metal_dlpack/sync.py says of the type: what to call before its Metal tensor is read, if its
 * framework's own queue cannot say when that may be.  -1 with an exception. */
static int
find_sync(foreign_type *out)
{
    PyObject *registered, *own, *library;
    PyObject *ways = call_python(CALL_SYNC_WAYS, (PyObject *)out->type, NULL);
    if (ways == NULL || !PyArg_ParseTuple(ways, "OOO", &registered, &own, &library)) {
        Py_XDECREF(ways);
        return -1;
    }
    out->is_torchs = library != Py_None;
    PyObject *path = NULL;
    if (out->is_torchs && !PyUnicode_FSConverter(library, &path)) {
        Py_DECREF(ways);
        return -1;
    }
    const char *text = path == NULL ? "" : PyBytes_AS_STRING(path);
    out->has_torch_queue = text[0] != '\0' && torch_open(text);
    Py_XDECREF(path);
    PyObject *call = registered != Py_None || out->has_torch_queue ? registered : own;
    out->sync = call == Py_None ? NULL : Py_NewRef(call);
    Py_DECREF(ways);
    return 0;
}

/* The C function behind an attribute of the type's instances: static.  NULL: there is none. */
static const struct PyGetSetDef *
find_getter(PyTypeObject *type, PyObject *attribute)
{
    if (attribute == NULL || !Py_IS_TYPE(attribute, &PyGetSetDescr_Type) ||
        !PyType_IsSubtype(type, PyDescr_TYPE(attribute))) {
        return NULL;
    }
    const struct PyGetSetDef *getter = ((PyGetSetDescrObject *)attribute)->d_getset;
    return getter->get == NULL ? NULL : getter;
}

/* The C function behind a method of the type's instances that takes no arguments: static.  NULL:
 * there is none. */
static const struct PyMethodDef *
find_method(PyTypeObject *type, PyObject *attribute)
{
    if (attribute == NULL || !Py_IS_TYPE(attribute, &PyMethodDescr_Type) ||
        !PyType_IsSubtype(type, PyDescr_TYPE(attribute))) {
        return NULL;
    }
    const struct PyMethodDef *method = ((PyMethodDescrObject *)attribute)->d_method;
    return method->ml_flags == METH_NOARGS ? method : NULL;
}

/* torch's untyped_storage().  The type keeps the method, and that the function. */
static int
find_untyped_storage(md_state *state, foreign_type *out)
{
    PyObject *attribute;
    if (!out->is_torchs) {
        return 0;
    }
    int is_there =
        attribute_find((PyObject *)out->type, state->str_untyped_storage, &attribute);
    out->untyped_storage = find_method(out->type, attribute);
    Py_XDECREF(attribute);
    return is_there < 0 ? -1 : 0;
}

/* Fill all that is known of a type.  Its references are owned, except `type`.  -1 with an
 * exception. */
static int
examine_type(md_state *state, PyTypeObject *type, foreign_type *out)
{
    PyObject *op = (PyObject *)type;
    *out = (foreign_type){.type = type};
    int speaks = attribute_exists(op, state->str___metal_stream__);
    if (speaks < 0 || look_up_table(state, type, &out->table) < 0) {
        return -1;
    }
    out->speaks_metal_stream = speaks;
    if (out->table != NULL) {
        if (attribute_find(op, state->str_requires_grad, &out->requires_grad) < 0) {
            return -1;
        }
        out->gradient = find_getter(type, out->requires_grad);
    }
    if (find_sync(out) < 0 || find_untyped_storage(state, out) < 0) {
        Py_CLEAR(out->requires_grad);
        Py_CLEAR(out->sync);
        return -1;
    }
    return 0;
}

/* ---- the types seen last ---- */

static void
clear_slot(foreign_type *slot)
{
    foreign_type old = *slot; /* emptied first: the last reference can run code */
    *slot = (foreign_type){0};
    Py_XDECREF((PyObject *)old.type);
    Py_XDECREF(old.requires_grad);
    Py_XDECREF(old.sync);
}

void
foreign_types_forget(md_state *state)
{
    state->torch_is_checked = false;
    for (int i = 0; i < MD_FOREIGN_TYPES; i++) {
        clear_slot(&state->foreign_types[i]);
    }
}

static const foreign_type *
find_type(md_state *state, PyTypeObject *type)
{
    for (int i = 0; i < MD_FOREIGN_TYPES; i++) {
        if (state->foreign_types[i].type == type) {
            state->foreign_last = i;
            return &state->foreign_types[i];
        }
    }
    foreign_type found;
    if (examine_type(state, type, &found) < 0) {
        return NULL;
    }
    foreign_type *slot = &state->foreign_types[state->foreign_next];
    state->foreign_next = (state->foreign_next + 1) % MD_FOREIGN_TYPES;
    clear_slot(slot);
    Py_INCREF((PyObject *)type);
    *slot = found;
    return slot;
}

const foreign_type *
foreign_type_of(md_state *state, PyTypeObject *type)
{
    const foreign_type *last = &state->foreign_types[state->foreign_last];
    return last->type == type ? last : find_type(state, type);
}

/* ---- asking ---- */

int
foreign_order_taker(md_state *state, PyTypeObject *type, ArrayObject *array)
{
    const foreign_type *slot = foreign_type_of(state, type);
    if (slot == NULL || !slot->has_torch_queue) {
        return slot == NULL ? -1 : 0;
    }
    return torch_wait(state, array) < 0 ? -1 : 1;
}

/* Can its Metal memory have GPU work on it that somebody knows of? */
static bool
has_work(const foreign_type *slot)
{
    return slot->sync != NULL || slot->has_torch_queue || slot->speaks_metal_stream;
}

/* SPEC import-sync */
int
foreign_wait(md_state *state, PyObject *op, PyObject **moment)
{
    const foreign_type *slot = foreign_type_of(state, Py_TYPE(op));
    *moment = NULL;
    if (slot == NULL) {
        return -1;
    }
    if (slot->sync == NULL && slot->has_torch_queue) {
        return torch_signal(state, moment);
    }
    if (slot->sync == NULL) {
        *moment = slot->speaks_metal_stream ? Py_NewRef(op) : NULL;
        return 0;
    }
    PyObject *sync = Py_NewRef(slot->sync); /* the call can replace the slot */
    PyObject *answer = PyObject_CallOneArg(sync, op);
    Py_DECREF(sync);
    if (answer == NULL) {
        return -1;
    }
    int speaks = answer == Py_None ? 0 : stream_protocol_speaks(state, answer);
    if (speaks == 1) {
        *moment = answer;
        return 0;
    }
    Py_DECREF(answer);
    return speaks;
}

/* ---- is the memory of a torch tensor its value? ---- */

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

/* May the tensor that torch's table made of `op` be taken?  1: yes.  0: call __dlpack__ instead,
 * which knows what to refuse.  -1: what torch raised. */
/* SPEC exchange-as-method */
static int
may_take(const struct PyGetSetDef *gradient, PyObject *op, const DLTensor *tensor)
{
    int must_ask = requires_grad(gradient, op);
    if (must_ask != 0) {
        return must_ask < 0 ? -1 : 0;
    }
    return tensor->dtype.code != kDLComplex; /* which may be conjugated */
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

/* ---- asking for a tensor ---- */

int
foreign_speaks(md_state *state, PyObject *op)
{
    return attribute_exists((PyObject *)Py_TYPE(op), state->str___dlpack__);
}

/* 0: it has __dlpack__.  -1 with AttributeError. */
/* SPEC import-no-dlpack */
static int
require_method(md_state *state, const char *function, PyObject *op)
{
    int speaks = foreign_speaks(state, op);
    if (speaks == 0) {
        PyErr_Format(PyExc_AttributeError,
                     "%s: %.100s has no __dlpack__ and __dlpack_device__; use asarray() for "
                     "lists, scalars and objects with the buffer protocol.",
                     function, Py_TYPE(op)->tp_name);
    }
    return speaks == 1 ? 0 : -1;
}

/* The table's exception is set.  0: it is cleared, as __dlpack__ can be called, which explains a
 * refusal in the framework's own words, where the table gives a C++ traceback and another class
 * than BufferError.  -1 with an exception. */
/* SPEC exchange-as-method */
static int
leave_to_method(md_state *state, PyObject *op)
{
    if (!errors_is_refusal()) {
        return -1;
    }
    PyObject *refusal = errors_take();
    int speaks = foreign_speaks(state, op);
    if (speaks == 0) {
        errors_restore(refusal);
        return -1;
    }
    Py_DECREF(refusal);
    return speaks == 1 ? 0 : -1;
}

/* Call the table's owning function.  1: `*out` is the caller's.  0: __dlpack__ may say why not.
 * -1 with an exception. */
static int
make_tensor(md_state *state, const char *function, const DLPackExchangeAPI *table, PyObject *op,
            DLManagedTensorVersioned **out)
{
    if (table->managed_tensor_from_py_object_no_sync(op, out) == 0 && *out != NULL) {
        return 1;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_BufferError, "%s: %.100s returned no tensor and no error.", function,
                     Py_TYPE(op)->tp_name);
    }
    return leave_to_method(state, op);
}

/* SPEC exchange-foreign */
int
foreign_ask_table(md_state *state, const char *function, PyObject *op, bool must_wait,
                  DLManagedTensorVersioned **out, PyObject **moment, PyObject **keeper)
{
    *out = NULL;
    *moment = *keeper = NULL;
    const foreign_type *found = foreign_type_of(state, Py_TYPE(op));
    if (found == NULL || found->table == NULL) {
        return found == NULL ? -1 : require_method(state, function, op);
    }
    /* the calls below can replace what was found; the type keeps what it refers to */
    bool has_gradient = found->requires_grad != NULL;
    bool is_torchs = found->is_torchs;
    const struct PyGetSetDef *gradient = found->gradient;
    const struct PyMethodDef *untyped_storage = found->untyped_storage;
    must_wait &= has_work(found);
    int is_made = make_tensor(state, function, found->table, op, out);
    if (is_made != 1 || (*out)->version.major != DLPACK_MAJOR_VERSION) {
        return is_made;
    }
    const DLTensor *tensor = &(*out)->dl_tensor;
    int is_good = has_gradient ? may_take(gradient, op, tensor) : 1;
    if (is_good == 1 && is_torchs &&
        examine_torchs(state, op, untyped_storage, tensor, keeper) < 0) {
        is_good = -1;
    }
    /* a table never synchronises */
    if (is_good == 1 && must_wait && tensor->device.device_type == kDLMetal) {
        is_good = foreign_wait(state, op, moment) < 0 ? -1 : 1;
    }
    if (is_good != 1) {
        owners_delete_tensor(*out, true);
        Py_CLEAR(*keeper);
    }
    return is_good;
}
