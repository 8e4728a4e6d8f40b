/* foreign_types.c: see foreign_types.h. */
#include "exchange/foreign_types.h"

#include "exchange/capsule_names.h"
#include "exchange/dlpack_import.h"
#include "exchange/torch_export.h"
#include "exchange/torch_tensor.h"
#include "python/attribute.h"
#include "python/call_python.h"
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

/* metal_dlpack.sync.hook_for(type): owned (+1), NULL for None.  -1 with an exception. */
static int
find_sync(PyTypeObject *type, PyObject **out)
{
    *out = NULL;
    PyObject *hook = call_python("metal_dlpack.sync", "hook_for", (PyObject *)type, NULL);
    if (hook == Py_None) {
        Py_CLEAR(hook);
        return 0;
    }
    *out = hook;
    return hook == NULL ? -1 : 0;
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
        out->gradient = torch_getter(type, out->requires_grad);
    }
    if (find_sync(type, &out->sync) < 0) {
        Py_CLEAR(out->requires_grad);
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

/* What is known of the type: borrowed until the next call; NULL with an exception. */
static const foreign_type *
slot_of(md_state *state, PyTypeObject *type)
{
    const foreign_type *last = &state->foreign_types[state->foreign_last];
    if (last->type == type) {
        return last;
    }
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

/* ---- asking ---- */

int
foreign_table_of(md_state *state, PyTypeObject *type, const DLPackExchangeAPI **out)
{
    const foreign_type *slot = slot_of(state, type);
    *out = slot == NULL ? NULL : slot->table;
    return slot == NULL ? -1 : 0;
}

int
foreign_check_taker(md_state *state, PyTypeObject *type)
{
    const foreign_type *slot = slot_of(state, type);
    if (slot == NULL) {
        return -1;
    }
    return slot->requires_grad == NULL ? 0 : torch_check_type(state, type);
}

/* SPEC import-sync */
int
foreign_synchronize(md_state *state, PyObject *op, PyObject **moment)
{
    const foreign_type *slot = slot_of(state, Py_TYPE(op));
    *moment = NULL;
    if (slot == NULL) {
        return -1;
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

/* Clear the table's exception if __dlpack__ can be called instead: that explains a refusal
 * in the framework's own words, where the table gives a C++ traceback and another class than
 * BufferError.  False: an exception is set. */
/* SPEC exchange-as-method */
static bool
leave_to_method(md_state *state, PyObject *op)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return false;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int is_there = attribute_exists((PyObject *)Py_TYPE(op), state->str___dlpack__);
    if (is_there == 0) {
        PyErr_Restore(type, value, traceback);
        return false;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return is_there == 1;
}

/* Call the table's owning function.  0, or -1 with an exception. */
static int
make_tensor(const foreign_type *slot, PyObject *op, DLManagedTensorVersioned **out)
{
    if (slot->table->managed_tensor_from_py_object_no_sync(op, out) == 0 && *out != NULL) {
        return 0;
    }
    *out = NULL;
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_BufferError, "from_dlpack: %.100s returned no tensor and no error.",
                     Py_TYPE(op)->tp_name);
    }
    return -1;
}

/* SPEC exchange-foreign */
int
foreign_tensor_of(md_state *state, PyObject *op, DLManagedTensorVersioned **out)
{
    *out = NULL;
    const foreign_type *found = slot_of(state, Py_TYPE(op));
    if (found == NULL) {
        return -1;
    }
    /* a copy: the calls below can replace the slot; the type keeps what it refers to */
    foreign_type slot = *found;
    if (slot.table == NULL) {
        return 0;
    }
    if (slot.requires_grad != NULL) {
        int must_ask = torch_must_ask(&slot, op);
        if (must_ask != 0) {
            return must_ask < 0 ? -1 : 0;
        }
    }
    if (make_tensor(&slot, op, out) < 0) {
        return leave_to_method(state, op) ? 0 : -1;
    }
    bool is_torchs =
        slot.requires_grad != NULL && (*out)->version.major == DLPACK_MAJOR_VERSION;
    int is_good = is_torchs ? torch_check_tensor(state, op, &(*out)->dl_tensor) : 1;
    if (is_good != 1) {
        dlpack_delete_foreign(*out, true);
        *out = NULL;
    }
    return is_good;
}
