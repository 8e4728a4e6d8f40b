/* dlpack_exchange.c: see dlpack_exchange.h. */
#include "exchange/dlpack_exchange.h"

#include "exchange/dlpack_export.h"
#include "exchange/dlpack_import.h"
#include "exchange/dlpack_torch.h"
#include "metal/managed_tensor.h"
#include "python/errors.h"
#include "python/explain_refusal.h"
#include "streams/stream_protocol.h"

#define EXCHANGE_CAPSULE "dlpack_exchange_api"
#define MOST_VERSIONS 16 /* of tables behind one another: a longer chain runs in a circle */

/* ---- our table ---- */

md_state *
exchange_current_state(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *module = PyDict_GetItemString(modules, "metal_dlpack._core");
    if (module == NULL) {
        PyErr_SetString(PyExc_ImportError,
                        "metal_dlpack is not imported in this interpreter; import it first.");
        return NULL;
    }
    return state_of_module(module);
}

static DLManagedTensorVersioned *
export_or_note(void *op, const export_request *request)
{
    DLManagedTensorVersioned *tensor = dlpack_export(array_cast(op), request);
    if (tensor == NULL) {
        refusal_note();
    }
    return tensor;
}

/* SPEC exchange-owned */
static int
tensor_from_array(void *op, DLManagedTensorVersioned **out)
{
    /* SPEC dlpack.h: no stream is named and there is none on Metal: waits as
     * stream=None does. */
    export_request request = {.is_versioned = true, .device = kDLMetal, .copy = -1};
    *out = export_or_note(op, &request);
    return *out == NULL ? -1 : 0;
}

/* Borrowed: valid until control returns to the caller of the caller.  Allocates nothing. */
static int
borrowed_from_array(void *op, DLTensor *out)
{
    if (dlpack_export_borrowed(array_cast(op), out) < 0) {
        refusal_note();
        return -1;
    }
    return 0;
}

/* SPEC exchange-steals */
static int
tensor_to_array(DLManagedTensorVersioned *tensor, void **out)
{
    import_request request = {.copy = -1};
    md_state *state = exchange_current_state();
    *out = NULL;
    if (state == NULL) {
        dlpack_delete_foreign(tensor, true);
        return -1;
    }
    *out = dlpack_import_managed(state, tensor, "a caller of the exchange API", &request);
    return *out == NULL ? -1 : 0;
}

/* Errors go to the caller's function: it may know nothing of Python. */
/* SPEC exchange-allocator */
static int
report_error(void *context, void (*set_error)(void *, const char *, const char *))
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *text = value == NULL ? NULL : PyObject_Str(value);
    const char *message = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    const char *kind = type == NULL ? "RuntimeError" : ((PyTypeObject *)type)->tp_name;
    PyErr_Clear(); /* what went wrong here; the caller's function may raise, and that stays */
    set_error(context, kind, message == NULL ? "The tensor could not be allocated." : message);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return -1;
}

/* A new array of the prototype's shape and element type, as a tensor. */
/* SPEC exchange-allocator */
static PyObject *
allocate_like(const DLTensor *prototype)
{
    md_state *state = exchange_current_state();
    if (state == NULL) {
        return NULL;
    }
    const device_record *device = host_memory_device(state, "Array", &(import_request){0});
    if (device == NULL) {
        return NULL;
    }
    if (prototype->device.device_type != kDLMetal || prototype->device.device_id != 0) {
        return PyErr_Format(
            PyExc_BufferError,
            "Array: the allocator makes tensors on Metal (8, 0), not on (%d, %d).",
            (int)prototype->device.device_type, (int)prototype->device.device_id);
    }
    if (!dtype_is_known(prototype->dtype)) {
        return PyErr_Format(
            PyExc_BufferError,
            "Array: the prototype's element type (code %d, bits %d, lanes %d) is not "
            "one of DLPack 1.3.",
            (int)prototype->dtype.code, (int)prototype->dtype.bits,
            (int)prototype->dtype.lanes);
    }
    return array_allocate(state, "Array", device, BRIDGE_SHARED, prototype->ndim,
                          prototype->shape, prototype->dtype, 'C');
}

static int
allocate_tensor(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_context,
                void (*set_error)(void *context, const char *kind, const char *message))
{
    *out = NULL;
    PyGILState_STATE gil = PyGILState_Ensure(); /* the contract does not promise it */
    PyObject *array = allocate_like(prototype);
    int result = array == NULL ? -1 : tensor_from_array(array, out);
    Py_XDECREF(array);
    if (result < 0) {
        result = report_error(error_context, set_error);
    }
    PyGILState_Release(gil);
    return result;
}

/* Metal has no convention for it: torch and tvm-ffi answer NULL as well. */
/* SPEC exchange-stream */
static int
current_stream(DLDeviceType Py_UNUSED(type), int32_t Py_UNUSED(id), void **out)
{
    *out = NULL;
    return 0;
}

static const DLPackExchangeAPI exchange_table = {
    .header = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, .prev_api = NULL},
    .managed_tensor_allocator = allocate_tensor,
    .managed_tensor_from_py_object_no_sync = tensor_from_array,
    .managed_tensor_to_py_object_no_sync = tensor_to_array,
    .dltensor_from_py_object_no_sync = borrowed_from_array,
    .current_work_stream = current_stream,
};

/* SPEC exchange-table */
int
exchange_add_table(md_state *state)
{
    PyObject *capsule = PyCapsule_New((void *)&exchange_table, EXCHANGE_CAPSULE, NULL);
    if (capsule == NULL) {
        return -1;
    }
    /* The type is immutable to Python; nobody has seen it yet. */
    int result = PyDict_SetItem(state->array_type->tp_dict,
                                state->str___dlpack_c_exchange_api__, capsule);
    Py_DECREF(capsule);
    PyType_Modified(state->array_type);
    return result;
}

/* ---- the tables of others ---- */

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

/* Are the functions there that we call?  None of them may be missing, says dlpack.h. */
static bool
is_whole(const DLPackExchangeAPI *table)
{
    return table != NULL && table->managed_tensor_from_py_object_no_sync != NULL &&
           table->managed_tensor_to_py_object_no_sync != NULL;
}

static const DLPackExchangeAPI *
look_up_table(md_state *state, PyTypeObject *type)
{
    PyObject *capsule =
        PyObject_GetAttr((PyObject *)type, state->str___dlpack_c_exchange_api__);
    const DLPackExchangeAPI *table = NULL;
    if (capsule != NULL && PyCapsule_IsValid(capsule, EXCHANGE_CAPSULE)) {
        table = choose_version(PyCapsule_GetPointer(capsule, EXCHANGE_CAPSULE));
    }
    Py_XDECREF(capsule);
    PyErr_Clear();
    return is_whole(table) ? table : NULL;
}

static void
clear_slot(exchange_slot *slot)
{
    exchange_slot old = *slot; /* emptied first: the last reference can run code */
    *slot = (exchange_slot){0};
    Py_XDECREF((PyObject *)old.type);
    Py_XDECREF(old.requires_grad);
    Py_XDECREF(old.sync);
}

void
exchange_forget(md_state *state)
{
    for (int i = 0; i < MD_EXCHANGE_SLOTS; i++) {
        clear_slot(&state->exchange_slots[i]);
    }
}

/* metal_dlpack.sync.hook_for(type): owned (+1), NULL for None.  -1 with an exception. */
static int
find_sync(PyTypeObject *type, PyObject **out)
{
    *out = NULL;
    PyObject *module = PyImport_ImportModule("metal_dlpack.sync");
    if (module == NULL) {
        return -1;
    }
    PyObject *hook = PyObject_CallMethod(module, "hook_for", "(O)", (PyObject *)type);
    Py_DECREF(module);
    if (hook == Py_None) {
        Py_CLEAR(hook);
        return 0;
    }
    *out = hook;
    return hook == NULL ? -1 : 0;
}

/* Borrowed until the next call; NULL with an exception. */
static const exchange_slot *
slot_of(md_state *state, PyTypeObject *type)
{
    const exchange_slot *last = &state->exchange_slots[state->exchange_last];
    if (last->type == type) {
        return last;
    }
    for (int i = 0; i < MD_EXCHANGE_SLOTS; i++) {
        if (state->exchange_slots[i].type == type) {
            state->exchange_last = i;
            return &state->exchange_slots[i];
        }
    }
    exchange_slot found = {.type = type, .table = look_up_table(state, type)};
    if (find_sync(type, &found.sync) < 0) {
        return NULL;
    }
    found.speaks_metal_stream = PyObject_HasAttr((PyObject *)type, state->str___metal_stream__);
    if (found.table != NULL) {
        found.requires_grad = PyObject_GetAttr((PyObject *)type, state->str_requires_grad);
        PyErr_Clear();
        found.gradient = torch_getter(type, found.requires_grad);
    }
    exchange_slot *slot = &state->exchange_slots[state->exchange_next];
    state->exchange_next = (state->exchange_next + 1) % MD_EXCHANGE_SLOTS;
    clear_slot(slot);
    Py_INCREF((PyObject *)type);
    *slot = found;
    return slot;
}

int
exchange_table_of(md_state *state, PyTypeObject *type, const DLPackExchangeAPI **out)
{
    const exchange_slot *slot = slot_of(state, type);
    *out = slot == NULL ? NULL : slot->table;
    return slot == NULL ? -1 : 0;
}

/* SPEC import-sync */
int
exchange_synchronize(md_state *state, PyObject *op, PyObject **moment)
{
    const exchange_slot *slot = slot_of(state, Py_TYPE(op));
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
    if (answer != Py_None && stream_protocol_speaks(state, answer)) {
        *moment = answer;
        return 0;
    }
    Py_DECREF(answer);
    return 0;
}

/* May the object be asked again, by __dlpack__?  It says in its framework's words what the
 * table says with a trace of C++ calls, and in another class than BufferError.  True: nothing
 * is raised any more. */
/* SPEC exchange-as-method */
static bool
leave_to_method(md_state *state, PyObject *op)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return false;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (!PyObject_HasAttr((PyObject *)Py_TYPE(op), state->str___dlpack__)) {
        PyErr_Restore(type, value, traceback);
        return false;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return true;
}

/* The table's owning call: 0, or -1 with an exception. */
static int
make_tensor(const exchange_slot *slot, PyObject *op, DLManagedTensorVersioned **out)
{
    if (slot->table->managed_tensor_from_py_object_no_sync(op, out) == 0 && *out != NULL) {
        return 0;
    }
    *out = NULL;
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_BufferError, "from_dlpack: %.100s gave no tensor and no reason.",
                     Py_TYPE(op)->tp_name);
    }
    return -1;
}

/* SPEC exchange-foreign */
int
exchange_tensor_of(md_state *state, PyObject *op, DLManagedTensorVersioned **out)
{
    *out = NULL;
    const exchange_slot *found = slot_of(state, Py_TYPE(op));
    if (found == NULL) {
        return -1;
    }
    /* a copy: the calls below can replace it; the type keeps its parts */
    exchange_slot slot = *found;
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
