/* texture_kind.c: see texture_object.h. */
#include "kernels/texture_object.h"

#include <string.h>

#include "python/args.h"
#include "python/errors.h"

const texture_kind texture_kinds[] = {
    {"1d", "texture1d", TEXTURE_1D, 1, true, false, false, false},
    {"1d_array", "texture1d_array", TEXTURE_1D_ARRAY, 2, true, false, false, false},
    {"2d", "texture2d", TEXTURE_2D, 2, false, false, false, true},
    {"2d_array", "texture2d_array", TEXTURE_2D_ARRAY, 3, false, false, false, false},
    {"cube", "texturecube", TEXTURE_CUBE, 3, false, false, true, false},
    {"cube_array", "texturecube_array", TEXTURE_CUBE_ARRAY, 4, false, false, true, false},
    {"3d", "texture3d", TEXTURE_3D, 3, false, true, false, false},
    {"buffer", "texture_buffer", TEXTURE_BUFFER, 1, true, false, false, true},
};
const size_t texture_kind_count = sizeof texture_kinds / sizeof texture_kinds[0];

const texture_kind *
texture_kind_of_type(unsigned type)
{
    for (size_t i = 0; i < texture_kind_count; i++) {
        if (texture_kinds[i].type == type) {
            return &texture_kinds[i];
        }
    }
    return NULL;
}

int
texture_kind_convert(const char *function, PyObject *value, const texture_kind **out)
{
    const char *name;
    *out = texture_kind_of_type(TEXTURE_2D);
    if (args_text_or_none(function, "kind", value, &name) < 0) {
        return -1;
    }
    for (size_t i = 0; name != NULL && i < texture_kind_count; i++) {
        if (strcmp(texture_kinds[i].name, name) == 0) {
            *out = &texture_kinds[i];
            return 0;
        }
    }
    return name == NULL
               ? 0
               : errors_raise(PyExc_ValueError,
                              "%s: there is no kind %R of texture; the kinds are 1d, 1d_array, "
                              "2d, 2d_array, 3d, cube, cube_array and buffer.",
                              function, value);
}

/* ---- formats ---- */

static uint8_t
code_of(const pixel_format *format)
{
    switch ((pixel_kind)format->kind) {
    case PIXEL_FLOAT: return kDLFloat;
    case PIXEL_DEPTH: return format->bits == 32 ? kDLFloat : kDLUInt;
    case PIXEL_SNORM:
    case PIXEL_SINT: return kDLInt;
    default: return kDLUInt;
    }
}

static bool
fits(const pixel_format *format, DLDataType dtype, int64_t channels)
{
    return dtype.lanes == 1 && dtype.bits == format->bits && dtype.code == code_of(format) &&
           channels == format->channels;
}

/* "r32Float, depth32Float": owned (+1). */
static PyObject *
list_fitting(DLDataType dtype, int64_t channels)
{
    PyObject *text = PyUnicode_FromString("");
    for (size_t i = 0; text != NULL && i < pixel_format_count; i++) {
        if (fits(&pixel_format_table[i], dtype, channels)) {
            bool is_first = PyUnicode_GET_LENGTH(text) == 0;
            Py_SETREF(text, PyUnicode_FromFormat(is_first ? "%U%s" : "%U, %s", text,
                                                 pixel_format_table[i].name));
        }
    }
    return text;
}

static int
refuse_items(const char *function, DLDataType dtype, int64_t channels)
{
    if (channels == 3) {
        return errors_raise(
            PyExc_ValueError,
            "%s: the last axis has 3 channels, and Metal has no such pixels; give each a "
            "fourth: b = md.ones((height, width, 4), '%s'); b[..., :3] = a.",
            function, dtype_name(dtype).text);
    }
    if (channels != 1 && channels != 2 && channels != 4) {
        return errors_raise(PyExc_ValueError,
                            "%s: the last axis has %lld channels, and a pixel has 1, 2 or 4; "
                            "give the images that the array has one by one, or choose a kind.",
                            function, (long long)channels);
    }
    return errors_raise(
        PyExc_TypeError,
        "%s: no pixel format has items of %s, only uint8, int8, uint16, int16, float16, "
        "uint32, int32 and float32; convert the array with astype().",
        function, dtype_name(dtype).text);
}

static int
refuse_format(const char *function, const pixel_format *format, DLDataType dtype,
              int64_t channels, PyObject *fitting)
{
    DLDataType wanted = {code_of(format), format->bits, 1};
    PyErr_Format(PyExc_TypeError,
                 "%s: the format %s has pixels of %d times %s, and the array's have %lld times "
                 "%s; those are pixels of %U.",
                 function, format->name, format->channels, dtype_name(wanted).text,
                 (long long)channels, dtype_name(dtype).text, fitting);
    Py_DECREF(fitting);
    return -1;
}

int
texture_format_convert(const char *function, PyObject *value, DLDataType dtype,
                       int64_t channels, const pixel_format **out)
{
    const char *name;
    const pixel_format *plain = NULL;
    for (size_t i = 0; i < pixel_format_count; i++) {
        const pixel_format *one = &pixel_format_table[i];
        plain = pixel_format_is_plain(one) && fits(one, dtype, channels) ? one : plain;
    }
    if (args_text_or_none(function, "format", value, &name) < 0) {
        return -1;
    }
    if (plain == NULL) {
        return refuse_items(function, dtype, channels);
    }
    *out = name == NULL ? plain : pixel_format_named(name);
    if (*out != NULL && fits(*out, dtype, channels)) {
        return 0;
    }
    PyObject *fitting = list_fitting(dtype, channels);
    if (fitting == NULL || *out != NULL) {
        return fitting == NULL ? -1 : refuse_format(function, *out, dtype, channels, fitting);
    }
    PyErr_Format(PyExc_ValueError,
                 "%s: there is no format %R; of %lld times %s there are %U, as Swift spells "
                 "MTLPixelFormat.",
                 function, value, (long long)channels, dtype_name(dtype).text, fitting);
    Py_DECREF(fitting);
    return -1;
}
