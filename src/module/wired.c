/* wired.c: buffers that stay wired for the GPU, for metal_dlpack/residency.py.
 *
 * Owns:    a Metal set and its buffers' storages, in a capsule; whichever comes first of _residency_end and
 *          the capsule's end lets go of both.
 * Calls:   metal_bridge.h.
 * Threads: the GIL is held; released while Metal wires, which takes seconds for a large model.  Two calls with one
 *          capsule at a time are the caller's to prevent.
 */
#include "module/module.h"

#include <stdlib.h>

#include "array/buffer.h"
#include "python/errors.h"
#include "streams/device.h"

#define CAPSULE_RESIDENCY "metal_dlpack.residency"

typedef struct residency {
    bridge_residency *set;
    size_t count;
    metal_storage *storages[]; /* owned (+1): nothing says that the set keeps its buffers */
} residency;

/* Nothing is left to do for a second one. */
static void
end_set(residency *self)
{
    bridge_residency *set = self->set;
    size_t count = self->count;
    self->set = NULL;
    self->count = 0;
    if (set != NULL) {
        (void)WITHOUT_GIL((bridge_residency_end(set), 0));
    }
    for (size_t i = 0; i < count; i++) {
        storage_release(self->storages[i]);
    }
}

static void
let_go(residency *self)
{
    end_set(self);
    free(self);
}

static void
end_capsule(PyObject *capsule)
{
    let_go(PyCapsule_GetPointer(capsule, CAPSULE_RESIDENCY));
}

/* Takes a reference to the storage of each Buffer that has memory.  -1 with an exception. */
static int
take_storages(md_state *state, residency *self, bridge_buffer **handles, PyObject *buffers)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(buffers); i++) {
        PyObject *buffer = PyTuple_GET_ITEM(buffers, i);
        if (!Py_IS_TYPE(buffer, state->buffer_type)) {
            PyErr_Format(PyExc_TypeError, "_residency_begin: a Buffer, not %.100s.",
                         Py_TYPE(buffer)->tp_name);
            return -1;
        }
        metal_storage *storage = buffer_open_storage("keep_resident", buffer_cast(buffer));
        if (storage == NULL) {
            return -1;
        }
        if (storage->handle != NULL) {
            storage_retain(storage);
            handles[self->count] = storage->handle;
            self->storages[self->count++] = storage;
        }
    }
    return 0;
}

/* None where Metal has no residency sets. */
static PyObject *
residency_begin(PyObject *module, PyObject *args)
{
    md_state *state = state_of_module(module);
    PyObject *target, *buffers, *capsule = NULL;
    if (!PyArg_ParseTuple(args, "OO!", &target, &PyTuple_Type, &buffers)) {
        return NULL;
    }
    const device_record *device = device_convert(state, "keep_resident", target);
    size_t most = (size_t)PyTuple_GET_SIZE(buffers);
    bridge_buffer **handles = calloc(most + 1, sizeof *handles);
    residency *self = calloc(1, sizeof *self + most * sizeof(metal_storage *));
    if (device == NULL) {
        goto done;
    }
    if (handles == NULL || self == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (take_storages(state, self, handles, buffers) < 0) {
        goto done;
    }
    bridge_status status =
        WITHOUT_GIL(bridge_residency_new(device->handle, handles, self->count, &self->set));
    if (status == BRIDGE_NO_RESIDENCY) {
        capsule = Py_NewRef(Py_None);
    }
    else if (errors_check_status(state, "keep_resident", status, NULL, 0) == 0) {
        capsule = PyCapsule_New(self, CAPSULE_RESIDENCY, end_capsule);
    }
done:
    free(handles);
    if (self != NULL && (capsule == NULL || capsule == Py_None)) {
        let_go(self);
    }
    return capsule;
}

static PyObject *
residency_request(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    residency *self = PyCapsule_GetPointer(capsule, CAPSULE_RESIDENCY);
    if (self == NULL) {
        return NULL;
    }
    if (self->set != NULL) {
        (void)WITHOUT_GIL((bridge_residency_request(self->set), 0));
    }
    Py_RETURN_NONE;
}

static PyObject *
residency_end(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    residency *self = PyCapsule_GetPointer(capsule, CAPSULE_RESIDENCY);
    if (self == NULL) {
        return NULL;
    }
    end_set(self);
    Py_RETURN_NONE;
}

PyMethodDef residency_functions[] = {
    {"_residency_begin", residency_begin, METH_VARARGS,
     PyDoc_STR("_residency_begin($module, device, buffers, /)\n--\n\n"
               "Wire a tuple of Buffers; a capsule that keeps them, or None before macOS 15.")},
    {"_residency_request", residency_request, METH_O,
     PyDoc_STR("_residency_request($module, capsule, /)\n--\n\nWire them again.")},
    {"_residency_end", residency_end, METH_O,
     PyDoc_STR("_residency_end($module, capsule, /)\n--\n\nLet go of the Buffers; once.")},
    {NULL, NULL, 0, NULL},
};
