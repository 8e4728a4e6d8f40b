/* kernel_resources.c: resources=: what a kernel reaches by addresses, which are in a structure or a table that it is
 * given.
 *
 * Owns:    `call->lists`, the longer lists of such a call; what it puts among `kept`.
 * Threads: the GIL is held; a tensor's own code can run.
 * Rule:    each counts as an argument that the kernel may write, or where the Array is read-only as one that
 *          it only reads; nothing is known of its type.
 * Source:  MTLComputeCommandEncoder useResource:usage:.
 */
#include "array/buffer.h"
#include "exchange/foreign_types.h"
#include "kernels/kernel_call.h"
#include "python/args.h"
#include "python/errors.h"

static int
read_resources(const kernel_call *call, PyObject **resources)
{
    if (!args_is_given(*resources)) {
        *resources = NULL;
        return 0;
    }
    if (!PyList_Check(*resources) && !PyTuple_Check(*resources)) {
        return errors_raise(
            PyExc_TypeError,
            "%s: resources is a list of what the kernel reaches by addresses, not "
            "an object of type %.100s.",
            call->kernel->function, Py_TYPE(*resources)->tp_name);
    }
    *resources = PySequence_Tuple(*resources); /* a tensor's code may change a list */
    return *resources == NULL ? -1 : 0;
}

int
kernel_call_make_room(kernel_call *call)
{
    PyObject **resources = &call->launch[LAUNCH_resources];
    if (read_resources(call, resources) < 0) {
        return -1;
    }
    size_t count = (size_t)call->kernel->texture_count;
    if (*resources != NULL) {
        call->kept[call->kept_count++] = *resources;
        count += (size_t)PyTuple_GET_SIZE(*resources);
    }
    else if (count == 0) {
        return 0;
    }
    size_t buffers = KERNEL_MOST_BUFFERS + 1 + count,
           arguments = 2 * KERNEL_MOST_BUFFERS + count;
    call->lists = PyMem_Malloc(
        arguments * sizeof *call->arguments +
        buffers * (sizeof *call->operands + sizeof *call->guests + sizeof *call->kept));
    if (call->lists == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    call->arguments = call->lists;
    call->operands = (work_operand *)(void *)(call->arguments + arguments);
    call->guests = (kernel_guest *)(void *)(call->operands + buffers);
    call->kept = (PyObject **)(void *)(call->guests + buffers);
    call->kept[0] = *resources;
    return 0;
}

/* ---- one of them ---- */

static int
refuse(const kernel_call *call, Py_ssize_t place, PyObject *value)
{
    return errors_raise(
        PyExc_TypeError,
        "%s: resources[%zd] is an object of type %.100s, which has no memory on "
        "Metal; give an Array, a tensor on Metal, a Buffer or a Texture.",
        call->kernel->function, place, Py_TYPE(value)->tp_name);
}

/* `*out` is borrowed: the caller's Array, or one over the same bytes. */
static int
find_array(kernel_call *call, Py_ssize_t place, PyObject *value, ArrayObject **out)
{
    md_state *state = call->state;
    bool is_buffer = Py_IS_TYPE(value, state->buffer_type);
    if (Py_IS_TYPE(value, state->array_type)) {
        *out = array_cast(value);
        return 0;
    }
    if (is_buffer && buffer_open_storage(call->kernel->function, buffer_cast(value)) == NULL) {
        return -1;
    }
    int speaks = is_buffer ? 1 : foreign_speaks(state, value);
    if (speaks < 0 || (speaks > 0 && kernel_call_import(call, value, out) < 0)) {
        return -1;
    }
    if (speaks == 0 || *out == NULL || array_storage(*out)->is_host_memory) {
        return refuse(call, place, value);
    }
    if (!is_buffer) {
        call->guests[call->guest_count++] = (kernel_guest){value, (PyObject *)*out};
    }
    return 0;
}

static int
bind(kernel_call *call, Py_ssize_t place, PyObject *value)
{
    ArrayObject *array = NULL;
    if (Py_IS_TYPE(value, call->state->texture_type)) {
        return kernel_call_bind_texture_resource(call, place, value);
    }
    if (find_array(call, place, value, &array) < 0) {
        return -1;
    }
    metal_storage *storage = array_storage(array);
    int here = call->kernel->device->index;
    if (storage->device != call->kernel->device) {
        return errors_raise(
            PyExc_ValueError,
            "%s: resources[%zd] is on metal:%d, the kernel on metal:%d; copy it "
            "there with to_device('metal:%d').",
            call->kernel->function, place, storage->device->index, here, here);
    }
    if (array->nitems == 0) {
        return 0; /* there is nothing to be reached */
    }
    bridge_argument *argument = &call->arguments[call->argument_count++];
    *argument = (bridge_argument){.index = (unsigned)place,
                                  .is_resource = true,
                                  .is_read_only = array->is_readonly,
                                  .buffer = storage->handle,
                                  .offset_bytes = (size_t)array->byte_offset};
    kernel_argument_set_reach(array, argument);
    call->operands[call->operand_count++] = (work_operand){storage, !array->is_readonly};
    return 0;
}

int
kernel_call_bind_resources(kernel_call *call)
{
    PyObject *resources = call->launch[LAUNCH_resources];
    for (Py_ssize_t i = 0; resources != NULL && i < PyTuple_GET_SIZE(resources); i++) {
        if (bind(call, i, PyTuple_GET_ITEM(resources, i)) < 0) {
            return -1;
        }
    }
    return 0;
}
