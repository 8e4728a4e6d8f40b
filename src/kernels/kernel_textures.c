/* kernel_textures.c: binds Textures and Samplers to a kernel's parameters.
 *
 * Owns:    what it puts among `kept`: tuples of Textures.
 * Threads: the GIL is held.
 * Rule:    nothing is bound that the kernel would see wrongly: the type, what a pixel gives, what the kernel may do.
 * Source:  MTLComputeCommandEncoder setTexture:atIndex:, setSamplerState:atIndex:; MTLTextureBinding.
 */
#include "kernels/kernel_call.h"
#include "kernels/texture_object.h"

#include "python/errors.h"

/* ---- does it fit? ---- */

/* "texture2d<float>", "depth2d<float>" */
static PyObject *
declared(const kernel_parameter *parameter)
{
    const texture_kind *kind = texture_kind_of_type(parameter->texture_type);
    const char *name = kind == NULL ? "texture" : kind->metal_name;
    const char *scalar =
        parameter->type.scalar_name == NULL ? "..." : parameter->type.scalar_name;
    return parameter->is_depth
               ? PyUnicode_FromFormat("depth%s<%s>", name + strlen("texture"), scalar)
               : PyUnicode_FromFormat("%s<%s>", name, scalar);
}

static int
refuse_kind(const kernel_parameter *parameter, const TextureObject *texture)
{
    PyObject *wanted = declared(parameter);
    if (wanted != NULL) {
        const texture_kind *kind = texture_kind_of_type(parameter->texture_type);
        PyErr_Format(PyExc_TypeError,
                     "%s is a %U, and the texture is of kind '%s'; make it with kind='%s'.",
                     kernel_subject(parameter), wanted, texture->kind->name,
                     kind == NULL ? "?" : kind->name);
        Py_DECREF(wanted);
    }
    return -1;
}

/* What a kernel sees in a pixel. */
static uint8_t
code_of(const pixel_format *format)
{
    return format->kind == PIXEL_UINT   ? kDLUInt
           : format->kind == PIXEL_SINT ? kDLInt
                                        : kDLFloat;
}

static int
refuse_format(const kernel_parameter *parameter, const TextureObject *texture)
{
    PyObject *wanted = declared(parameter);
    uint8_t code = code_of(texture->format);
    const char *component = code == kDLUInt ? "uint" : code == kDLInt ? "int" : "float";
    if (wanted != NULL) {
        PyErr_Format(
            PyExc_TypeError,
            parameter->is_depth
                ? "%s is a %U, and the texture is of %s, which is no format of depths; "
                  "make it with format='depth32Float' and copy=True.%s"
                : "%s is a %U, and a texture of %s gives %s; choose another format=, or "
                  "let the kernel take that.",
            kernel_subject(parameter), wanted, texture->format->name,
            parameter->is_depth ? "" : component);
        Py_DECREF(wanted);
    }
    return -1;
}

static int
check_access(const kernel_parameter *parameter, const TextureObject *texture)
{
    if (!parameter->is_written) {
        return 0;
    }
    if (!texture->facts.is_written) {
        return errors_raise(
            PyExc_ValueError,
            texture->format->kind == PIXEL_DEPTH
                ? "%s: no kernel writes to a texture of depths; declare it access::read or "
                  "access::sample."
                : "%s: the texture lies over a read-only array, and the kernel may write "
                  "there; "
                  "make it of a copy() of the array, or declare it access::read.",
            kernel_subject(parameter));
    }
    return !parameter->is_read || pixel_format_is_read_write(texture->format) ||
                   (parameter->type.scalar.bits == 64 &&
                    pixel_format_is_of_64_bits(texture->format))
               ? 0
               : errors_raise(
                     PyExc_TypeError,
                     "%s is access::read_write, and Metal reads and writes at once only "
                     "pixels of one or four channels that are Float, Uint, Sint or "
                     "8Unorm; the texture is of %s: choose another format=, or read one "
                     "texture and write another.",
                     kernel_subject(parameter), texture->format->name);
}

static int
check_texture(const kernel_call *call, const kernel_parameter *parameter,
              const TextureObject *texture)
{
    const device_record *device = texture_storage(texture)->device;
    if (device != call->kernel->device) {
        return errors_raise(
            PyExc_ValueError,
            "%s: the texture is on metal:%d, the kernel on metal:%d; make it of "
            "an array that is there: to_device('metal:%d').",
            kernel_subject(parameter), device->index, call->kernel->device->index,
            call->kernel->device->index);
    }
    if (texture->kind->type != parameter->texture_type) {
        return refuse_kind(parameter, texture);
    }
    const metal_type *type = &parameter->type;
    if ((type->lanes != 0 && type->scalar.code != code_of(texture->format)) ||
        (parameter->is_depth && texture->format->kind != PIXEL_DEPTH)) {
        return refuse_format(parameter, texture);
    }
    return check_access(parameter, texture);
}

/* ---- one ---- */

static int
refuse_object(const kernel_call *call, const kernel_parameter *parameter, PyObject *value)
{
    PyObject *wanted = declared(parameter);
    bool is_array = Py_IS_TYPE(value, call->state->array_type);
    if (wanted != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s is a %U, and an object of type %.100s is none; give %s.",
                     kernel_subject(parameter), wanted, Py_TYPE(value)->tp_name,
                     is_array ? "md.texture(array)" : "md.texture(md.asarray(x))");
        Py_DECREF(wanted);
    }
    return -1;
}

static int
bind_one(kernel_call *call, const kernel_parameter *parameter, unsigned at, PyObject *value)
{
    if (!Py_IS_TYPE(value, call->state->texture_type)) {
        return refuse_object(call, parameter, value);
    }
    const TextureObject *texture = texture_cast(value);
    if (check_texture(call, parameter, texture) < 0) {
        return -1;
    }
    call->arguments[call->argument_count++] =
        (bridge_argument){.index = parameter->index + at, .texture = texture->texture};
    call->operands[call->operand_count++] =
        (work_operand){texture_storage(texture), parameter->is_written};
    return 0;
}

/* An array of textures: a tuple or a list of as many.  The tuple is kept: other code may change a list. */
static int
bind_several(kernel_call *call, const kernel_parameter *parameter, PyObject *value)
{
    if (!PyTuple_Check(value) && !PyList_Check(value)) {
        return errors_raise(PyExc_TypeError,
                            "%s is an array of %zu textures; give a tuple of as many, not an "
                            "object of type %.100s.",
                            kernel_subject(parameter), parameter->count,
                            Py_TYPE(value)->tp_name);
    }
    PyObject *textures = PySequence_Tuple(value);
    if (textures == NULL) {
        return -1;
    }
    call->kept[call->kept_count++] = textures;
    size_t count = (size_t)PyTuple_GET_SIZE(textures);
    if (count != parameter->count) {
        return errors_raise(PyExc_ValueError,
                            "%s is an array of %zu textures, and %zu are given; give as many.",
                            kernel_subject(parameter), parameter->count, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (bind_one(call, parameter, (unsigned)i, PyTuple_GET_ITEM(textures, (Py_ssize_t)i)) <
            0) {
            return -1;
        }
    }
    return 0;
}

int
kernel_call_bind_texture(kernel_call *call, const kernel_parameter *parameter, PyObject *value)
{
    return parameter->count == 1 ? bind_one(call, parameter, 0, value)
                                 : bind_several(call, parameter, value);
}

/* ---- samplers ---- */

static int
bind_one_sampler(kernel_call *call, const kernel_parameter *parameter, unsigned at,
                 PyObject *value)
{
    if (!Py_IS_TYPE(value, call->state->sampler_type)) {
        return errors_raise(PyExc_TypeError,
                            "%s is a sampler, and an object of type %.100s is none; give "
                            "md.sampler('linear') or the like.",
                            kernel_subject(parameter), Py_TYPE(value)->tp_name);
    }
    const SamplerObject *sampler = sampler_cast(value);
    if (sampler->device != call->kernel->device) {
        return errors_raise(PyExc_ValueError,
                            "%s: the sampler is on metal:%d, the kernel on metal:%d; make it "
                            "with device='metal:%d'.",
                            kernel_subject(parameter), sampler->device->index,
                            call->kernel->device->index, call->kernel->device->index);
    }
    call->arguments[call->argument_count++] =
        (bridge_argument){.index = parameter->index + at, .sampler = sampler->sampler};
    return 0;
}

/* A tuple for an array of samplers.  Metal does not tell how many that has, or that it is one. */
int
kernel_call_bind_sampler(kernel_call *call, const kernel_parameter *parameter, PyObject *value)
{
    if (!PyTuple_Check(value)) {
        return bind_one_sampler(call, parameter, 0, value);
    }
    size_t count = (size_t)PyTuple_GET_SIZE(value);
    if (count < 1 || count > parameter->count) {
        return errors_raise(PyExc_ValueError,
                            "%s: %zu samplers are given, and there is room for %zu; give as "
                            "many as the array has.",
                            kernel_subject(parameter), count, parameter->count);
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *one = PyTuple_GET_ITEM(value, (Py_ssize_t)i);
        if (bind_one_sampler(call, parameter, (unsigned)i, one) < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- by an identifier ---- */

int
kernel_call_bind_texture_resource(kernel_call *call, Py_ssize_t place, PyObject *value)
{
    const TextureObject *texture = texture_cast(value);
    metal_storage *storage = texture_storage(texture);
    int here = call->kernel->device->index;
    if (storage->device != call->kernel->device) {
        return errors_raise(
            PyExc_ValueError,
            "%s: resources[%zd] is on metal:%d, the kernel on metal:%d; make the "
            "texture of an array that is there: to_device('metal:%d').",
            call->kernel->function, place, storage->device->index, here, here);
    }
    bool is_read_only = !texture->facts.is_written;
    call->arguments[call->argument_count++] = (bridge_argument){.index = (unsigned)place,
                                                                .is_resource = true,
                                                                .is_read_only = is_read_only,
                                                                .texture = texture->texture};
    call->operands[call->operand_count++] = (work_operand){storage, !is_read_only};
    return 0;
}
