/* texture_type.c: the Texture type.
 *
 * Owns:    one reference to the texture; to the Array that it lies over, or to a storage.
 * Calls:   texture_copy.c to read pixels.
 * Threads: the GIL is held; any number of threads may use one.
 */
#include "kernels/texture_object.h"

#include <structmember.h>

#include "python/errors.h"
#include "streams/device.h"
#include "values/dtype_type.h"
#include "values/layout_type_object.h"

/* ---- attributes ---- */

MD_GETTER(texture_get_format, PyUnicode_FromString(texture_cast(op)->format->name));
MD_GETTER(texture_get_kind, PyUnicode_FromString(texture_cast(op)->kind->name));
MD_GETTER(texture_get_shape, layout_tuple(texture_cast(op)->shape, texture_cast(op)->ndim));
MD_GETTER(texture_get_width, PyLong_FromSize_t(texture_cast(op)->facts.width));
MD_GETTER(texture_get_height, PyLong_FromSize_t(texture_cast(op)->facts.height));
MD_GETTER(texture_get_depth, PyLong_FromSize_t(texture_cast(op)->facts.depth));
MD_GETTER(texture_get_mip_levels, PyLong_FromSize_t(texture_cast(op)->facts.levels));
MD_GETTER(texture_get_dtype, dtype_type_from_dl(state_of(op), texture_cast(op)->dtype));
MD_GETTER(texture_get_nbytes, PyLong_FromSize_t(texture_nbytes(texture_cast(op))));
MD_GETTER(texture_get_device,
          device_of_record(state_of(op), texture_storage(texture_cast(op))->device));
MD_GETTER(texture_get_is_linear, PyBool_FromLong(texture_cast(op)->array != NULL));
MD_GETTER(texture_get_readonly, PyBool_FromLong(!texture_cast(op)->facts.is_written));

/* Who has the handle can write on the GPU. */
static PyObject *
texture_get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    storage_publish(texture_storage(texture_cast(op)));
    return PyLong_FromVoidPtr(texture_cast(op)->texture);
}

static PyObject *
texture_get_gpu_resource_id(PyObject *op, void *Py_UNUSED(closure))
{
    if (errors_check_fork(state_of(op), "Texture.gpu_resource_id") < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(bridge_texture_resource_id(texture_cast(op)->texture));
}

static PyObject *
texture_get_array(PyObject *op, void *Py_UNUSED(closure))
{
    TextureObject *self = texture_cast(op);
    return self->array != NULL ? Py_NewRef(self->array)
                               : texture_read("Texture.array", self, 0);
}

static PyObject *
texture_get_arrays(PyObject *op, void *Py_UNUSED(closure))
{
    TextureObject *self = texture_cast(op);
    PyObject *arrays = PyTuple_New((Py_ssize_t)self->facts.levels);
    for (size_t level = 0; arrays != NULL && level < self->facts.levels; level++) {
        PyObject *array = self->array != NULL ? Py_NewRef(self->array)
                                              : texture_read("Texture.arrays", self, level);
        if (array == NULL) {
            Py_CLEAR(arrays);
        }
        else {
            PyTuple_SET_ITEM(arrays, (Py_ssize_t)level, array);
        }
    }
    return arrays;
}

static PyObject *
texture_get_label(PyObject *op, void *Py_UNUSED(closure))
{
    char label[256];
    bridge_texture_copy_label(texture_cast(op)->texture, label, sizeof label);
    return state_label(label);
}

static PyGetSetDef texture_getset[] = {
    MD_FACT(texture, format, "The pixel format, as Swift spells MTLPixelFormat: 'rgba8Unorm'."),
    MD_FACT(texture, kind,
            "'1d', '1d_array', '2d', '2d_array', '3d', 'cube', 'cube_array' or 'buffer'."),
    MD_FACT(texture, shape, "The shape of the Array that it was made of."),
    MD_FACT(texture, width, "Pixels along x."),
    MD_FACT(texture, height, "Pixels along y; 1 of a line."),
    MD_FACT(texture, depth, "Pixels along z; 1 unless the kind is '3d'."),
    MD_FACT(texture, mip_levels, "How many levels of detail it has: 1 if none was asked for."),
    MD_FACT(texture, dtype, "The element type of the Array that it was made of."),
    MD_FACT(texture, nbytes, "Bytes of all pixels."),
    MD_FACT(texture, device, "The Device it is on."),
    MD_FACT(texture, handle,
            "The id<MTLTexture> as an int: borrowed, valid while the Texture is."),
    MD_FACT(
        texture, gpu_resource_id,
        "What a structure that a kernel is given holds of it, an int of 64 bits.  The kernel\n"
        "may use it in a launch that has the Texture among its arguments or in resources=.\n\n"
        "Source: MTLTexture gpuResourceID."),
    MD_FACT(texture, is_linear, "True if it lies over an Array's own bytes: no copy."),
    MD_FACT(texture, readonly, "True if no kernel can write to it."),
    MD_FACT(
        texture, array,
        "The pixels: of a linear texture the very Array, of any other a new Array with a copy\n"
        "of them, behind the kernels that wrote to it.  With several levels it is the first."),
    MD_FACT(texture, arrays, "The same of each level: a tuple, the largest first."),
    MD_FACT(texture, label, "The name that Metal's tools show, or None."),
    MD_LAST_FACT,
};

static PyMemberDef texture_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TextureObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
texture_repr(PyObject *op)
{
    const TextureObject *self = texture_cast(op);
    PyObject *shape = layout_tuple(self->shape, self->ndim);
    char levels[32] = "";
    if (self->facts.levels > 1) {
        snprintf(levels, sizeof levels, ", %zu levels,", self->facts.levels);
    }
    PyObject *text =
        shape == NULL
            ? NULL
            : PyUnicode_FromFormat("<metal_dlpack.Texture %s %s of shape %R%s%s on metal:%d>",
                                   self->kind->name, self->format->name, shape,
                                   self->array == NULL ? "" : ", linear", levels,
                                   texture_storage(self)->device->index);
    Py_XDECREF(shape);
    return text;
}

/* ---- the object's life ---- */

MD_REFUSE_NEW(texture_refuse_new,
              "Texture() cannot make a texture; call texture(array), with the Array's pixels.");

static int
texture_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(texture_cast(op)->array);
    return 0;
}

static void
texture_dealloc(PyObject *op)
{
    TextureObject *self = texture_cast(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    if (self->storage == NULL) {
        bridge_texture_release(self->texture);
    }
    storage_release(self->storage);
    Py_XDECREF(self->array);
    state_free_object(op);
}

PyDoc_STRVAR(
    texture_doc,
    "An MTLTexture for a kernel's parameter: texture2d<float> and its kin.\n\n"
    "Made by texture(array).  It never changes; its pixels may, where a kernel writes them.\n\n"
    "Memory: a linear texture lies over an Array's own bytes and holds the Array; any other "
    "has\n"
    "bytes of its own, in private storage.\n"
    "Threads: any number may use one.\n\n"
    "Source: MTLTexture; docs/textures.md.");

static PyType_Slot texture_slots[] = {
    {Py_tp_doc, (void *)texture_doc}, {Py_tp_new, texture_refuse_new},
    {Py_tp_dealloc, texture_dealloc}, {Py_tp_traverse, texture_traverse},
    {Py_tp_getset, texture_getset},   {Py_tp_members, texture_members},
    {Py_tp_repr, texture_repr},       {0, NULL},
};

MD_SPEC(texture, "Texture", sizeof(TextureObject), 0, 0);
