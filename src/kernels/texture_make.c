/* texture_make.c: texture(): over an Array's own bytes where Metal allows that, else with a copy.
 *
 * Owns:    nothing beyond a call.
 * Calls:   texture_kind.c for kinds and formats, texture_copy.c to fill.
 * Threads: the GIL is held; released while Metal makes the texture.
 * Source:  MTLBuffer newTextureWithDescriptor:offset:bytesPerRow:; MTLDevice newTextureWithDescriptor:.
 */
#include "kernels/texture_object.h"

#include "python/args.h"
#include "python/errors.h"
#include "streams/stream_object.h"
#include "values/layout_type_object.h"

/* What a call asks for. */
typedef struct texture_request {
    const char *function;
    md_state *state;
    PyObject *levels;   /* owned: a tuple of Arrays, the largest first; ... */
    ArrayObject *array; /* ... which is this one: borrowed */
    const texture_kind *kind;
    const pixel_format *format;
    bridge_texture_facts facts;
    size_t row_nbytes; /* of a linear one */
    bool is_generated; /* levels that no Array is given for */
} texture_request;

/* ---- the Array's axes ---- */

static int
refuse_axes(const texture_request *to)
{
    static const char *const axes[][3] = {
        {"(width)", "(slices, width)", ""},
        {"", "(height, width)", "(slices, height, width)"},
    };
    const texture_kind *kind = to->kind;
    const char *wanted =
        kind->is_cube   ? kind->axes == 3 ? "(6, height, width)" : "(cubes, 6, height, width)"
        : kind->is_deep ? "(depth, height, width)"
                        : axes[!kind->is_line][kind->axes - 1];
    return errors_raise(
        PyExc_ValueError,
        "%s: the array has %d axes, and a texture of kind '%s' has %s, with or without a last "
        "one of 1, 2 or 4 channels; choose another kind=, or reshape it.",
        to->function, (int)to->array->ndim, kind->name, wanted);
}

static int
check_extent(const texture_request *to, const char *what, int64_t extent, int64_t most)
{
    return extent >= 1 && extent <= most
               ? 0
               : errors_raise(PyExc_ValueError,
                              "%s: the %s is %lld, and of a texture of kind '%s' it is 1 to "
                              "%lld; %s.",
                              to->function, what, (long long)extent, to->kind->name,
                              (long long)most,
                              extent == 0 ? "give an array that has pixels"
                                          : "cut the array into parts");
}

static int
read_extents(texture_request *to, const int64_t *shape)
{
    const texture_kind *kind = to->kind;
    int before = kind->axes - (kind->is_line ? 1 : 2);
    int64_t most = kind->type == TEXTURE_BUFFER ? TEXTURE_MOST_IN_LINE
                   : kind->is_deep              ? TEXTURE_MOST_DEEP
                                                : TEXTURE_MOST_PIXELS;
    int64_t width = shape[kind->axes - 1], height = kind->is_line ? 1 : shape[before];
    int64_t images = before == 0 || (kind->is_cube && before == 1) ? 1 : shape[0];
    if (check_extent(to, "width", width, most) < 0 ||
        check_extent(to, "height", height, most) < 0 ||
        check_extent(to, kind->is_deep ? "depth" : "number of slices", images,
                     TEXTURE_MOST_DEEP) < 0) {
        return -1;
    }
    if (kind->is_cube && (shape[before - 1] != 6 || width != height)) {
        return errors_raise(PyExc_ValueError,
                            "%s: a cube has 6 faces as high as wide, and the array has %lld of "
                            "%lld by %lld; reshape or slice it.",
                            to->function, (long long)shape[before - 1], (long long)height,
                            (long long)width);
    }
    to->facts = (bridge_texture_facts){.type = kind->type,
                                       .format = to->format->number,
                                       .width = (size_t)width,
                                       .height = (size_t)height,
                                       .depth = kind->is_deep ? (size_t)images : 1,
                                       .slices = kind->is_deep ? 1 : (size_t)images};
    return 0;
}

static int
read_array(texture_request *to, PyObject *format)
{
    const ArrayObject *array = to->array;
    const int64_t *shape = array_shape(array);
    int axes = to->kind->axes;
    if (array->ndim != axes && array->ndim != axes + 1) {
        return refuse_axes(to);
    }
    int64_t channels = array->ndim == axes ? 1 : shape[axes];
    if (texture_format_convert(to->function, format, array->dtype, channels, &to->format) < 0) {
        return -1;
    }
    return read_extents(to, shape);
}

/* ---- levels ---- */

/* An Array, or a list or tuple of one for each level, the largest first. */
static int
read_arrays(texture_request *to, PyObject *value)
{
    bool are_several = PyTuple_Check(value) || PyList_Check(value);
    to->levels = are_several ? PySequence_Tuple(value) : PyTuple_Pack(1, value);
    Py_ssize_t count = to->levels == NULL ? -1 : PyTuple_GET_SIZE(to->levels);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PyTuple_GET_ITEM(to->levels, i);
        if (!Py_IS_TYPE(one, to->state->array_type)) {
            return errors_raise(PyExc_TypeError,
                                "%s: array must be an Array, or a list of one for each level, "
                                "not %.100s; give md.asarray(x).",
                                to->function, Py_TYPE(one)->tp_name);
        }
    }
    if (count == 0) {
        return errors_raise(PyExc_ValueError,
                            "%s: the list has no Array; give one for each level, the largest "
                            "first.",
                            to->function);
    }
    to->array = count < 0 ? NULL : array_cast(PyTuple_GET_ITEM(to->levels, 0));
    return count < 0 ? -1 : 0;
}

/* None, 'all' or a number. */
static int
read_count(texture_request *to, PyObject *value)
{
    const bridge_texture_facts *facts = &to->facts;
    int64_t given = PyTuple_GET_SIZE(to->levels), count = given;
    int64_t most = to->kind->is_line
                       ? 1
                       : texture_most_levels((uint32_t)facts->width, (uint32_t)facts->height,
                                             (uint32_t)facts->depth);
    if (args_is_given(value) && PyUnicode_Check(value)) {
        count = most;
        if (PyUnicode_CompareWithASCIIString(value, "all") != 0) {
            return args_refuse_type(to->function, "mip_levels", "an int or 'all'", value);
        }
    }
    else if (args_is_given(value) &&
             args_int64(to->function, "mip_levels", value, &count) < 0) {
        return -1;
    }
    if (count < 1 || count > most || (given > 1 && count != given)) {
        return errors_raise(PyExc_ValueError,
                            "%s: %lld levels are asked for, %lld Arrays are given, and this "
                            "texture of kind '%s' has at most %lld levels; give an Array for "
                            "each, or the largest alone.",
                            to->function, (long long)count, (long long)given, to->kind->name,
                            (long long)most);
    }
    to->is_generated = count > given;
    to->facts.levels = (size_t)count;
    return !to->is_generated || pixel_format_is_generated(to->format)
               ? 0
               : errors_raise(PyExc_ValueError,
                              "%s: Metal makes smaller levels of colours that it filters, and "
                              "not of %s; give a list of Arrays, one for each level.",
                              to->function, to->format->name);
}

static int
check_level(const texture_request *to, const TextureObject *self, size_t level)
{
    const ArrayObject *array = array_cast(PyTuple_GET_ITEM(to->levels, (Py_ssize_t)level));
    int here = array_storage(array)->device->index;
    int first = array_storage(to->array)->device->index;
    int64_t shape[5];
    texture_level_shape(self, level, shape);
    if (memcmp(&array->dtype, &self->dtype, sizeof self->dtype) != 0 || here != first) {
        return errors_raise(here == first ? PyExc_TypeError : PyExc_ValueError,
                            "%s: level %zu has items of %s on metal:%d, and level 0 of %s on "
                            "metal:%d; convert it with astype() and to_device().",
                            to->function, level, dtype_name(array->dtype).text, here,
                            dtype_name(self->dtype).text, first);
    }
    if (array->ndim == self->ndim &&
        memcmp(array_shape(array), shape, (size_t)self->ndim * sizeof *shape) == 0) {
        return 0;
    }
    PyObject *is = layout_tuple(array_shape(array), array->ndim);
    PyObject *wanted = is == NULL ? NULL : layout_tuple(shape, self->ndim);
    if (wanted != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "%s: level %zu has the shape %R, and behind level 0 it is %R: sides are "
                     "halved, rounded down.",
                     to->function, level, is, wanted);
    }
    Py_XDECREF(is);
    Py_XDECREF(wanted);
    return -1;
}

/* ---- over the Array's own bytes ---- */

static int
refuse_linear(const texture_request *to, const char *why)
{
    (void)errors_copy_required(to->state,
                               "%s: %s; give copy=True for a texture with bytes of its own.",
                               to->function, why);
    return -1;
}

static int
refuse_begin(const texture_request *to, size_t nbytes, size_t unit)
{
    size_t pixel = pixel_format_nbytes(to->format);
    (void)errors_copy_required(to->state,
                               "%s: the array begins at byte %zu, and for %s the device wants "
                               "a multiple of %zu; begin "
                               "its slice at a multiple of %zu pixels, or give copy=True for a "
                               "texture with bytes of its "
                               "own.",
                               to->function, nbytes, to->format->name, unit,
                               unit > pixel ? unit / pixel : 1);
    return -1;
}

static int
refuse_rows(const texture_request *to, size_t nbytes, size_t unit)
{
    size_t pixel = pixel_format_nbytes(to->format);
    size_t wide = (nbytes + unit - 1) / unit * unit / pixel;
    (void)errors_copy_required(to->state,
                               "%s: from row to row are %zu bytes, and for %s the device wants "
                               "a multiple of %zu; take "
                               "the part [:, :%zu] of an array whose rows are %zu pixels wide, "
                               "or give copy=True for a "
                               "texture with bytes of its own.",
                               to->function, nbytes, to->format->name, unit, to->facts.width,
                               wide);
    return -1;
}

/* Do pixels lie one behind the other in a row? */
static bool
are_rows_whole(const texture_request *to)
{
    const ArrayObject *array = to->array;
    const int64_t *strides = array_strides(array);
    int axes = to->kind->axes, channels = to->format->channels;
    bool is_pixel_whole = array->ndim == axes || channels == 1 || strides[axes] == 1;
    return is_pixel_whole && (to->facts.width == 1 || strides[axes - 1] == channels);
}

static int
check_place(texture_request *to, size_t unit)
{
    const ArrayObject *array = to->array;
    size_t row = to->facts.width * pixel_format_nbytes(to->format);
    int64_t stride = (int64_t)((row + unit - 1) / unit * unit);
    if (to->facts.height > 1) {
        stride = array_strides(array)[0] * (array_item_bits(array) / 8);
    }
    if (stride < (int64_t)row) {
        return refuse_linear(to, "the array's rows overlap, or go backwards");
    }
    if ((size_t)array->byte_offset % unit != 0) {
        return refuse_begin(to, (size_t)array->byte_offset, unit);
    }
    if ((size_t)stride % unit != 0) {
        return refuse_rows(to, (size_t)stride, unit);
    }
    to->row_nbytes = (size_t)stride;
    return 0;
}

static int
check_linear(texture_request *to)
{
    if (!to->kind->is_linear) {
        return refuse_linear(to, "only textures of kind '2d' and 'buffer' lie over an array's "
                                 "own bytes");
    }
    if (to->facts.levels > 1) {
        return refuse_linear(to, "a texture over an array's own bytes has one level");
    }
    if (to->format->kind == PIXEL_DEPTH) {
        return refuse_linear(to, "no texture of depths lies over an array's own bytes");
    }
    if (!are_rows_whole(to)) {
        return refuse_linear(to, "the pixels of a row do not lie one behind the other");
    }
    size_t unit = bridge_texture_alignment(array_storage(to->array)->device->handle,
                                           to->facts.format, to->kind->is_line);
    return check_place(to, unit == 0 ? 1 : unit);
}

/* ---- making ---- */

/* NULL with MemoryError; what Metal makes is still to be set. */
static TextureObject *
make_object(const texture_request *to)
{
    PyTypeObject *type = to->state->texture_type;
    TextureObject *self = texture_cast(type->tp_alloc(type, 0));
    if (self != NULL) {
        self->format = to->format;
        self->kind = to->kind;
        self->facts = to->facts;
        self->dtype = to->array->dtype;
        self->mode = array_storage(to->array)->mode;
        self->ndim = to->array->ndim;
        memcpy(self->shape, array_shape(to->array), (size_t)self->ndim * sizeof(int64_t));
    }
    return self;
}

static bridge_status
make_linear(const texture_request *to, TextureObject *self)
{
    metal_storage *storage = array_storage(to->array);
    self->array = Py_NewRef((PyObject *)to->array);
    return WITHOUT_GIL(bridge_texture_new_linear(storage->handle, &to->facts,
                                                 (size_t)to->array->byte_offset, to->row_nbytes,
                                                 &self->texture));
}

static bridge_status
make_own(const texture_request *to, TextureObject *self)
{
    const device_record *device = array_storage(to->array)->device;
    bridge_status status = WITHOUT_GIL(
        storage_new_texture(device, &to->facts, texture_nbytes(self), &self->storage));
    self->texture = status == BRIDGE_OK ? storage_texture(self->storage) : NULL;
    return status;
}

static int
fill(const texture_request *to, TextureObject *self, metal_stream *stream)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(to->levels); i++) {
        ArrayObject *array = array_cast(PyTuple_GET_ITEM(to->levels, i));
        if (check_level(to, self, (size_t)i) < 0 ||
            texture_fill(to->function, self, (size_t)i, array, to->is_generated, stream) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
make(const texture_request *to, bool is_copy, metal_stream *stream)
{
    TextureObject *self = make_object(to);
    if (self == NULL) {
        return NULL;
    }
    bridge_status status = is_copy ? make_own(to, self) : make_linear(to, self);
    if (status != BRIDGE_OK) {
        (void)errors_no_buffer(to->state, to->function, status,
                               array_storage(to->array)->device, texture_nbytes(self));
    }
    if (status != BRIDGE_OK || (is_copy && fill(to, self, stream) < 0)) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* A stream has no part in a texture over the bytes themselves. */
static PyObject *
make_on_stream(const texture_request *to, bool is_copy, PyObject *given)
{
    metal_stream *stream = NULL;
    if (args_is_given(given) &&
        stream_convert_target(to->state, to->function, given, &stream) < 0) {
        return NULL;
    }
    int here = array_storage(to->array)->device->index;
    PyObject *texture =
        stream == NULL || stream->device->index == here
            ? make(to, is_copy, stream)
            : PyErr_Format(
                  PyExc_ValueError,
                  "%s: the stream is on metal:%d, the array on metal:%d; give a stream "
                  "of its device.",
                  to->function, stream->device->index, here);
    stream_release(stream);
    return texture;
}

PyDoc_STRVAR(
    texture_function_doc,
    "texture($module, array, format=None, *, kind='2d', copy=False, mip_levels=None, "
    "stream=None,\n"
    "        label=None)\n"
    "--\n\n"
    "An Array's pixels as a texture, which a kernel samples, reads and writes.\n\n"
    "Parameters\n----------\n"
    "array : Array, or list of Array\n"
    "    Of shape (height, width), or by the kind; and one axis more where a pixel has 1, 2 or "
    "4\n"
    "    channels.  A list has one for each level of detail: the largest, then each half as "
    "wide\n"
    "    and high, rounded down.\n"
    "format : str, optional\n"
    "    A pixel format as Swift spells it, 'rgba8Unorm'.  Default: that whose numbers are "
    "the\n"
    "    items themselves, 'r32Float' for float32.\n"
    "kind : str, optional\n"
    "    '1d' (width), '1d_array' (slices, width), '2d' (height, width), '2d_array' (slices,\n"
    "    height, width), '3d' (depth, height, width), 'cube' (6, height, width), 'cube_array'\n"
    "    (cubes, 6, height, width), 'buffer' (width).\n"
    "copy : bool, optional\n"
    "    False: the texture lies over the Array's own bytes.  True: it has bytes of its own.\n"
    "mip_levels : int or 'all', optional\n"
    "    How many levels of detail, of which Metal makes the smaller ones.  Default: one for "
    "each\n"
    "    Array.\n"
    "stream : Stream or int, optional\n"
    "    Where the copy is made.  Default: the innermost `with stream:`, else the device's "
    "default\n"
    "    stream.\n"
    "label : str, optional\n"
    "    A name for Metal's tools.\n\n"
    "Returns\n-------\nTexture\n\n"
    "Raises\n------\n"
    "CopyRequiredError\n"
    "    The Array's bytes lie as no texture can: only kinds '2d' and 'buffer', rows and the "
    "first\n"
    "    byte at multiples of what the device wants (16 bytes as a rule), one level, no "
    "formats "
    "of\n"
    "    depths.\n"
    "TypeError, ValueError\n    The format does not fit the items; the message names those "
    "that do.\n    The Arrays of a list are no levels of one texture, or Metal makes none of "
    "the "
    "format.\n"
    "MemoryError, MetalError\n    Metal gave no texture.\n\n"
    "Memory: no copy by default; the Texture holds the Array.\n\n"
    "Source: MTLBuffer newTextureWithDescriptor:offset:bytesPerRow:; docs/textures.md.");

/* In the order of the arguments' names. */
static PyObject *
make_of_values(texture_request *to, PyObject *const *values)
{
    int is_copy = 0;
    const char *label;
    if (read_arrays(to, values[0]) < 0 ||
        texture_kind_convert(to->function, values[2], &to->kind) < 0 ||
        (args_is_given(values[3]) &&
         args_bool(to->function, "copy", values[3], &is_copy) < 0) ||
        args_text_or_none(to->function, "label", values[6], &label) < 0 ||
        read_array(to, values[1]) < 0 || read_count(to, values[4]) < 0 ||
        (is_copy == 0 && check_linear(to) < 0)) {
        return NULL;
    }
    to->facts.is_written =
        to->format->kind != PIXEL_DEPTH && (is_copy != 0 || !to->array->is_readonly);
    PyObject *texture = make_on_stream(to, is_copy != 0, values[5]);
    if (texture != NULL && label != NULL) {
        bridge_texture_set_label(texture_cast(texture)->texture, label);
    }
    return texture;
}

ARGS_FUNCTION(core_texture, module, "texture", 0, 2, 1, "array", "format", "kind", "copy",
              "mip_levels", "stream", "label")
{
    texture_request to = {.function = function, .state = state_of_module(module)};
    PyObject *texture =
        errors_check_fork(to.state, function) < 0 ? NULL : make_of_values(&to, values);
    Py_XDECREF(to.levels);
    return texture;
}

PyMethodDef texture_functions[] = {
    {"texture", MD_FASTCALL(core_texture), texture_function_doc},
    {NULL, NULL, 0, NULL},
};
