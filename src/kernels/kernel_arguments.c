/* kernel_arguments.c: binds the objects of a call to a kernel's parameters.
 *
 * Owns:    what it puts among `kept`: Arrays over other frameworks' tensors, copies of bytes; and
 *          among `rooms`: buffers that stand for Arrays without items.
 * Calls:   asarray.h for tensors of others, metal_type.c for numbers.
 * Threads: the GIL is held; a tensor's own code can run.
 * Rule:    nothing is copied but numbers and structs, and nothing that a kernel could read
 *          wrongly is let through where Metal tells what the parameter points at.
 * Source:  MTLComputeCommandEncoder setBuffer:offset:atIndex:, setBytes:length:atIndex:.
 */
#include "array/array.h"
#include "array/array_numpy.h"
#include "array/buffer.h"
#include "exchange/asarray.h"
#include "exchange/dlpack_import.h"
#include "exchange/foreign_types.h"
#include "kernels/kernel_call.h"
#include "python/args.h"
#include "python/attribute.h"
#include "python/errors.h"

#define MOST_BYTES 4096 /* SPEC setBytes:length:atIndex: */

/* A parameter and the place of what is bound to it. */
typedef struct binding {
    kernel_call *call;
    const kernel_parameter *parameter;
    Py_ssize_t place;
} binding;

/* ---- Arrays ---- */

static int
refuse_device(const binding *to, const metal_storage *storage)
{
    int here = to->call->kernel->device->index;
    return errors_raise(
        PyExc_ValueError,
        "%s: the array is on metal:%d, the kernel on metal:%d; copy it there with "
        "to_device('metal:%d').",
        kernel_subject(to->parameter), storage->device->index, here, here);
}

static int
refuse_type(const binding *to, DLDataType dtype)
{
    const char *subject = kernel_subject(to->parameter);
    const metal_type *type = &to->parameter->type;
    const char *metal_name = metal_type_name_for(dtype);
    char wanted[METAL_TYPE_NAME_MAX];
    metal_type_write_name(type, wanted);
    if (metal_name == NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s points at %s, and Metal has no %s; convert the array with "
                     "astype('%s'), or let the kernel take uchar.",
                     subject, wanted, dtype_name(dtype).text, dtype_name(type->scalar).text);
    }
    else {
        PyErr_Format(PyExc_TypeError,
                     "%s points at %s, and the array's items are %s; convert it with "
                     "astype('%s'), or let the kernel take %s.",
                     subject, wanted, dtype_name(dtype).text, dtype_name(type->scalar).text,
                     metal_name);
    }
    return -1;
}

/* Do the items make whole vectors, matrices or structs? */
static int
check_multiple(const binding *to, const ArrayObject *array, int64_t nbytes)
{
    const kernel_parameter *parameter = to->parameter;
    char wanted[METAL_TYPE_NAME_MAX];
    metal_type_write_name(&parameter->type, wanted);
    bool is_row_of_three = parameter->type.lanes == 3 && parameter->nbytes > 0 &&
                           parameter->nbytes > 3u * parameter->type.scalar.bits / 8 &&
                           array->ndim > 1 && array_shape(array)[array->ndim - 1] == 3;
    if (is_row_of_three) {
        return errors_raise(
            PyExc_ValueError,
            "%s points at %s, which has room for 4 numbers, and the array has rows of 3; "
            "let the kernel take packed_%s.",
            kernel_subject(parameter), wanted, wanted);
    }
    if (parameter->nbytes > 0 && nbytes % (int64_t)parameter->nbytes != 0) {
        return errors_raise(
            PyExc_ValueError,
            "%s points at %s of %zu bytes, and the array has %lld bytes, which is "
            "not a multiple of that; slice or pad it.",
            kernel_subject(parameter), wanted, parameter->nbytes, (long long)nbytes);
    }
    return 0;
}

static int
check_type(const binding *to, const ArrayObject *array)
{
    const metal_type *type = &to->parameter->type;
    if (!metal_type_takes(type, array->dtype)) {
        return refuse_type(to, array->dtype);
    }
    bool is_single = type->lanes == 1 || (type->lanes == 0 && !type->is_struct);
    return is_single ? 0 : check_multiple(to, array, array_nbytes(array));
}

static int
check_layout(const binding *to, const ArrayObject *array)
{
    strided_layout layout;
    if (args_is_given(to->call->launch[LAUNCH_strides])) {
        return 0; /* it can only say "ignore" */
    }
    array_get_layout(array, &layout);
    if (layout_is_contiguous_c(&layout)) {
        return 0;
    }
    return errors_raise(
        PyExc_ValueError,
        "%s: the array is not contiguous, and a kernel gets no strides; give a copy() of "
        "it, or strides=\"ignore\" if the kernel knows them.",
        kernel_subject(to->parameter));
}

static int
check_array(const binding *to, const ArrayObject *array)
{
    const metal_storage *storage = array_storage(array);
    const kernel_parameter *parameter = to->parameter;
    if (storage->device != to->call->kernel->device) {
        return refuse_device(to, storage);
    }
    if (parameter->is_written && array->is_readonly) {
        return errors_raise(
            PyExc_ValueError,
            "%s: the array is read-only, and the kernel may write there; give a copy() "
            "of it, or declare the parameter const.",
            kernel_subject(parameter));
    }
    if (check_layout(to, array) < 0) {
        return -1;
    }
    if (array->nitems > 0 && (size_t)array->byte_offset % parameter->alignment != 0) {
        return errors_raise(
            PyExc_ValueError,
            "%s: the array begins at byte %lld of its buffer, and the parameter's type "
            "needs a multiple of %zu; give a copy() of it.",
            kernel_subject(parameter), (long long)array->byte_offset, parameter->alignment);
    }
    return 0;
}

static void
add_operand(kernel_call *call, metal_storage *storage, bool is_written)
{
    call->operands[call->operand_count++] = (work_operand){storage, is_written};
}

void
kernel_argument_set_reach(const ArrayObject *array, bridge_argument *argument)
{
    int64_t low, high;
    strided_layout layout;
    array_get_layout(array, &layout);
    if (bits_byte_span(&layout, array_item_bits(array), array->first_bit, &low, &high)) {
        argument->nbytes = (size_t)(high - low);
        argument->nbytes_before = (size_t)-low;
    }
}

/* A buffer where nobody looks: Metal's validation refuses bytes where the kernel may write.
 * -1 with MemoryError or MetalError. */
static int
bind_room(const binding *to, size_t nbytes, bridge_argument *argument)
{
    kernel_call *call = to->call;
    const device_record *device = call->kernel->device;
    metal_storage *room;
    bridge_status status = storage_new(device, nbytes, BRIDGE_SHARED, &room);
    if (status != BRIDGE_OK) {
        (void)errors_no_buffer(call->state, call->kernel->function, status, device, nbytes);
        return -1;
    }
    call->rooms[call->room_count++] = room;
    argument->buffer = room->handle;
    add_operand(call, room, true);
    return 0;
}

/* For an Array without items, which may have no buffer.  Metal wants something bound, of the size
 * of what the parameter points at. */
static int
bind_nothing(const binding *to, bridge_argument *argument)
{
    static const char nothing[MOST_BYTES];
    size_t nbytes = to->parameter->nbytes == 0 ? 1 : to->parameter->nbytes;
    argument->is_empty = true;
    if (to->parameter->is_written) {
        return bind_room(to, nbytes, argument);
    }
    argument->bytes = nothing;
    argument->nbytes = nbytes < MOST_BYTES ? nbytes : MOST_BYTES;
    return 0;
}

static int
bind_items(const binding *to, const ArrayObject *array)
{
    kernel_call *call = to->call;
    metal_storage *storage = array_storage(array);
    bridge_argument *argument = &call->arguments[call->argument_count++];
    *argument = (bridge_argument){.index = to->parameter->index};
    if (array->nitems == 0) {
        return bind_nothing(to, argument);
    }
    argument->buffer = storage->handle;
    argument->offset_bytes = (size_t)array->byte_offset;
    if (args_is_given(call->launch[LAUNCH_strides])) {
        kernel_argument_set_reach(array, argument);
    }
    else {
        argument->nbytes = (size_t)array_nbytes(array);
    }
    add_operand(call, storage, to->parameter->is_written);
    return 0;
}

static int
bind_array(const binding *to, const ArrayObject *array)
{
    if (check_array(to, array) < 0 || check_type(to, array) < 0) {
        return -1;
    }
    return bind_items(to, array);
}

/* ---- values ---- */

static int
bind_value(const binding *to, const void *bytes, size_t nbytes)
{
    kernel_call *call = to->call;
    if (to->parameter->is_written) {
        return errors_raise(
            PyExc_TypeError,
            "%s: the kernel may write there, and the result would be lost in a value; give "
            "an Array, or declare the parameter const or constant.",
            kernel_subject(to->parameter));
    }
    call->arguments[call->argument_count++] =
        (bridge_argument){.index = to->parameter->index, .bytes = bytes, .nbytes = nbytes};
    return 0;
}

static int
bind_numbers(const binding *to, PyObject *value)
{
    const kernel_parameter *parameter = to->parameter;
    char *bytes = to->call->numbers[to->place];
    if (kernel_numbers_pack(kernel_subject(parameter), &parameter->type, value, bytes) < 0) {
        return -1;
    }
    size_t nbytes = (size_t)parameter->type.lanes * parameter->type.scalar.bits / 8;
    bool is_padded = parameter->nbytes > nbytes && parameter->nbytes <= KERNEL_NUMBER_MAX;
    return bind_value(to, bytes, is_padded ? parameter->nbytes : nbytes);
}

static int
bind_bytes(const binding *to, PyObject *value)
{
    kernel_call *call = to->call;
    PyObject *bytes = PyBytes_FromObject(value);
    if (bytes == NULL) {
        return -1;
    }
    call->kept[call->kept_count++] = bytes;
    size_t nbytes = (size_t)PyBytes_GET_SIZE(bytes), wanted = to->parameter->nbytes;
    if ((wanted > 0 && nbytes != wanted) || nbytes == 0 || nbytes > MOST_BYTES) {
        return errors_raise(
            PyExc_ValueError,
            wanted > 0 && nbytes <= MOST_BYTES
                ? "%s: %zu bytes are given, and the parameter's type has %zu."
                : "%s: %zu bytes cannot be given by value, only 1 to 4096; give "
                  "md.asarray(x).",
            kernel_subject(to->parameter), nbytes, wanted);
    }
    return bind_value(to, PyBytes_AS_STRING(bytes), nbytes);
}

/* ---- memory of others ---- */

static int
refuse_cpu(const binding *to, PyObject *value)
{
    return errors_raise(
        PyExc_TypeError,
        "%s: an object of type %.100s in the CPU's memory cannot be an argument of a "
        "kernel; give md.asarray(x), which shares the memory where it can.",
        kernel_subject(to->parameter), Py_TYPE(value)->tp_name);
}

/* An array or a tensor on the CPU: what has no axes is the number in it. */
static int
bind_cpu(const binding *to, PyObject *value)
{
    PyObject *shape = NULL;
    if (attribute_find(value, to->call->state->str_shape, &shape) < 0) {
        return -1;
    }
    bool is_number = shape != NULL && PyTuple_Check(shape) && PyTuple_GET_SIZE(shape) == 0 &&
                     to->parameter->type.lanes == 1 && !to->parameter->is_written;
    Py_XDECREF(shape);
    if (!is_number) {
        return refuse_cpu(to, value);
    }
    PyObject *number = PyObject_CallMethod(value, "item", NULL);
    int result = number == NULL ? -1 : bind_numbers(to, number);
    Py_XDECREF(number);
    return result;
}

/* The stream waits for the work of the framework, or the CPU does: as from_dlpack with stream=. */
int
kernel_call_import(kernel_call *call, PyObject *value, ArrayObject **out)
{
    import_request request = {.copy = 0, .order = {.stream = call->stream}};
    PyObject *array = asarray_import(call->state, value, &request);
    *out = NULL;
    if (array == NULL) {
        if (!PyErr_ExceptionMatches(call->state->copy_required_error)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    call->kept[call->kept_count++] = array;
    *out = array_cast(array);
    return 0;
}

static int
bind_tensor(const binding *to, PyObject *value)
{
    kernel_call *call = to->call;
    ArrayObject *array;
    if (kernel_call_import(call, value, &array) < 0) {
        return -1;
    }
    if (array == NULL || array_storage(array)->is_host_memory) {
        return bind_cpu(to, value);
    }
    call->guests[call->guest_count++] = (kernel_guest){value, (PyObject *)array};
    return bind_array(to, array);
}

/* All bytes of a Buffer, of whatever type.  The Array keeps it open. */
static int
bind_buffer(const binding *to, PyObject *value)
{
    ArrayObject *array;
    if (buffer_open_storage(kernel_subject(to->parameter), buffer_cast(value)) == NULL) {
        return -1;
    }
    if (kernel_call_import(to->call, value, &array) < 0) {
        return -1;
    }
    if (array == NULL) {
        return refuse_cpu(to, value);
    }
    return check_array(to, array) < 0 ? -1 : bind_items(to, array);
}

/* ---- anything ---- */

/* Bytes, and NumPy's scalars of structured types. */
static bool
is_bytes(PyObject *value)
{
    return PyBytes_Check(value) || PyByteArray_Check(value) || PyMemoryView_Check(value) ||
           strcmp(Py_TYPE(value)->tp_name, "numpy.void") == 0;
}

static int
refuse_object(const binding *to, PyObject *value)
{
    const md_state *state = to->call->state;
    bool is_texture =
        Py_IS_TYPE(value, state->texture_type) || Py_IS_TYPE(value, state->sampler_type);
    return errors_raise(
        PyExc_TypeError,
        is_texture
            ? "%s: an object of type %.100s is for a parameter that is a texture or a sampler, "
              "and this one is a buffer; give an Array."
            : "%s: an object of type %.100s cannot be an argument of a kernel; give an "
              "Array, a tensor on Metal, a Buffer, a number, a tuple of numbers, or the "
              "bytes of a struct.",
        kernel_subject(to->parameter), Py_TYPE(value)->tp_name);
}

static int
bind_other(const binding *to, PyObject *value)
{
    md_state *state = to->call->state;
    if (Py_IS_TYPE(value, state->buffer_type)) {
        return bind_buffer(to, value);
    }
    if (is_bytes(value)) {
        return bind_bytes(to, value);
    }
    if (array_numpy_is_array(value)) {
        return bind_cpu(to, value);
    }
    int speaks = foreign_speaks(state, value);
    if (speaks != 0) {
        return speaks < 0 ? -1 : bind_tensor(to, value);
    }
    if (PyNumber_Check(value) || PyTuple_Check(value) || PyList_Check(value)) {
        return bind_numbers(to, value);
    }
    return PyObject_CheckBuffer(value) ? refuse_cpu(to, value) : refuse_object(to, value);
}

/* ---- all of them ---- */

/* strides=: "ignore", or None. */
static int
check_strides(const kernel_call *call)
{
    PyObject *strides = call->launch[LAUNCH_strides];
    if (!args_is_given(strides) || (PyUnicode_Check(strides) &&
                                    PyUnicode_CompareWithASCIIString(strides, "ignore") == 0)) {
        return 0;
    }
    return errors_raise(PyExc_ValueError, "%s: strides is \"ignore\" or None, not %R.",
                        call->kernel->function, strides);
}

int
kernel_call_bind(kernel_call *call)
{
    const KernelObject *self = call->kernel;
    if (check_strides(call) < 0) {
        return -1;
    }
    int bound = 0;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const kernel_parameter *parameter = &self->parameters[i];
        if (!kernel_parameter_is_given(parameter) || parameter->is_unlisted) {
            continue;
        }
        PyObject *value = call->values[i];
        if (parameter->kind != BRIDGE_PARAMETER_BUFFER) {
            int result = parameter->kind == BRIDGE_PARAMETER_TEXTURE
                             ? kernel_call_bind_texture(call, parameter, value)
                             : kernel_call_bind_sampler(call, parameter, value);
            if (result < 0) {
                return -1;
            }
            continue;
        }
        binding to = {call, parameter, bound++};
        int result =
            Py_IS_TYPE(value, call->state->array_type) ? bind_array(&to, array_cast(value))
            : PyFloat_CheckExact(value) || PyLong_CheckExact(value) ? bind_numbers(&to, value)
                                                                    : bind_other(&to, value);
        if (result < 0) {
            return -1;
        }
    }
    return kernel_call_bind_threadgroup(call);
}
