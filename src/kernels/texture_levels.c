/* texture_levels.c: how many levels of detail, and of which Arrays; see texture_request.h. */
#include "kernels/texture_request.h"

#include "python/args.h"
#include "python/errors.h"
#include "values/layout_type_object.h"

int
texture_request_arrays(texture_request *to, PyObject *value)
{
    bool are_several = PyTuple_Check(value) || PyList_Check(value);
    to->levels = are_several ? PySequence_Tuple(value) : PyTuple_Pack(1, value);
    Py_ssize_t count = to->levels == NULL ? 0 : PyTuple_GET_SIZE(to->levels);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PyTuple_GET_ITEM(to->levels, i);
        if (!Py_IS_TYPE(one, to->state->array_type)) {
            return errors_raise(PyExc_TypeError,
                                "%s: array must be an Array, or a list of one for each level, "
                                "not %.100s; give md.asarray(x).",
                                to->function, Py_TYPE(one)->tp_name);
        }
    }
    if (count > 0) {
        to->array = array_cast(PyTuple_GET_ITEM(to->levels, 0));
        return 0;
    }
    return to->levels == NULL
               ? -1
               : errors_raise(PyExc_ValueError,
                              "%s: the list has no Array; give one for each level, the largest "
                              "first.",
                              to->function);
}

static int
convert_count(const texture_request *to, PyObject *value, int64_t most, int64_t *count)
{
    if (!args_is_given(value)) {
        return 0;
    }
    if (PyUnicode_Check(value)) {
        *count = most;
        return PyUnicode_CompareWithASCIIString(value, "all") == 0
                   ? 0
                   : errors_raise(PyExc_ValueError,
                                  "%s: mip_levels is a number or 'all', not %R.", to->function,
                                  value);
    }
    return args_int64(to->function, "mip_levels", value, count);
}

int
texture_request_count(texture_request *to, PyObject *value)
{
    int64_t given = PyTuple_GET_SIZE(to->levels), count = given;
    int64_t most = 1;
    if (!to->kind->is_line) {
        most = texture_most_levels((uint32_t)to->facts.width, (uint32_t)to->facts.height,
                                   (uint32_t)to->facts.depth);
    }
    if (convert_count(to, value, most, &count) < 0) {
        return -1;
    }
    if (given > 1 && count != given) {
        return errors_raise(PyExc_ValueError,
                            "%s: mip_levels is %lld, and the list has %lld levels; leave "
                            "mip_levels out, or give the largest alone.",
                            to->function, (long long)count, (long long)given);
    }
    if (count < 1 || count > most) {
        return errors_raise(PyExc_ValueError,
                            "%s: %lld levels are asked for, and this texture of kind '%s' has "
                            "at least 1, and at most %lld.",
                            to->function, (long long)count, to->kind->name, (long long)most);
    }
    to->is_generated = count > given;
    if (to->is_generated && !pixel_format_is_generated(to->format)) {
        return errors_raise(PyExc_ValueError,
                            "%s: Metal makes smaller levels of colours that it filters, and "
                            "not of %s; give a list of Arrays, one for each level.",
                            to->function, to->format->name);
    }
    to->facts.levels = (size_t)count;
    return 0;
}

static int
refuse_shape(const texture_request *to, size_t level, const ArrayObject *array,
             const int64_t *shape)
{
    PyObject *is = layout_tuple(array_shape(array), array->ndim);
    PyObject *was = is == NULL ? NULL : layout_tuple(array_shape(to->array), to->array->ndim);
    PyObject *wanted = was == NULL ? NULL : layout_tuple(shape, to->array->ndim);
    if (wanted != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "%s: level %zu has the shape %R, and where level 0 has %R it is %R: "
                     "sides are halved and rounded down.",
                     to->function, level, is, was, wanted);
    }
    Py_XDECREF(is);
    Py_XDECREF(was);
    Py_XDECREF(wanted);
    return -1;
}

int
texture_check_levels(const texture_request *to, const TextureObject *self)
{
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(to->levels); i++) {
        const ArrayObject *array = array_cast(PyTuple_GET_ITEM(to->levels, i));
        int here = array_storage(array)->device->index;
        int first = array_storage(to->array)->device->index;
        int64_t shape[5];
        texture_level_shape(self, (size_t)i, shape);
        if (memcmp(&array->dtype, &self->dtype, sizeof self->dtype) != 0) {
            return errors_raise(PyExc_TypeError,
                                "%s: level %zd has items of %s, and level 0 of %s; convert it "
                                "with astype().",
                                to->function, i, dtype_name(array->dtype).text,
                                dtype_name(self->dtype).text);
        }
        if (here != first) {
            return errors_raise(PyExc_ValueError,
                                "%s: level %zd is on metal:%d, level 0 on metal:%d; give "
                                "to_device('metal:%d').",
                                to->function, i, here, first, first);
        }
        if (array->ndim != self->ndim ||
            memcmp(array_shape(array), shape, (size_t)self->ndim * sizeof *shape) != 0) {
            return refuse_shape(to, (size_t)i, array, shape);
        }
    }
    return 0;
}
