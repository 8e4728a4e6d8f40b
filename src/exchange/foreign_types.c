/* foreign_types.c: see foreign_types.h. */
#include "exchange/foreign_types.h"

#include "exchange/torch.h"
#include "python/attribute.h"
#include "python/call_python.h"

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

const foreign_type *
foreign_find_type(md_state *state, PyTypeObject *type)
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

int
foreign_speaks(md_state *state, PyObject *op)
{
    return attribute_exists((PyObject *)Py_TYPE(op), state->str___dlpack__);
}
