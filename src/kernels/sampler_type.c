/* sampler_type.c: the Sampler type, and sampler().
 *
 * Owns:    one reference to the sampler's state.
 * Threads: the GIL is held; released while Metal makes one.
 * Source:  MTLDevice newSamplerStateWithDescriptor:; MTLSampler.h.
 */
#include "kernels/texture_object.h"

#include <float.h>
#include <string.h>

#include "python/args.h"
#include "python/errors.h"
#include "streams/device.h"

/* Names in the order of Metal's numbers, as Metal's language spells them. */
static const char *const filters[] = {"nearest", "linear", NULL};
static const char *const mip_filters[] = {"none", "nearest", "linear", NULL};
static const char *const addresses[] = {
    "clamp_to_edge", "mirror_clamp_to_edge", "repeat", "mirrored_repeat",
    "clamp_to_zero", "clamp_to_border",      NULL};
static const char *const compares[] = {"never",         "less",    "equal",
                                       "less_equal",    "greater", "not_equal",
                                       "greater_equal", "always",  NULL};
static const char *const borders[] = {"transparent_black", "opaque_black", "opaque_white",
                                      NULL};

/* A name of the list; nothing where none is given.  -1 with TypeError or ValueError. */
static int
convert_name(const char *what, PyObject *value, const char *const *names, unsigned *out)
{
    const char *name;
    if (args_text_or_none("sampler", what, value, &name) < 0 || name == NULL) {
        return name == NULL && !PyErr_Occurred() ? 0 : -1;
    }
    for (unsigned i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = i;
            return 0;
        }
    }
    PyObject *known = PyUnicode_FromString(names[0]);
    for (unsigned i = 1; known != NULL && names[i] != NULL; i++) {
        Py_SETREF(known, PyUnicode_FromFormat("%U, %s", known, names[i]));
    }
    if (known != NULL) {
        PyErr_Format(PyExc_ValueError, "sampler: %s is one of %U, not %R.", what, known, value);
        Py_DECREF(known);
    }
    return -1;
}

/* One for s, t and r, or a tuple of one to three, whose last is for the rest. */
static int
convert_addresses(PyObject *value, unsigned address[3])
{
    if (value == NULL || !PyTuple_Check(value)) {
        int result = convert_name("address", value, addresses, &address[0]);
        address[1] = address[2] = address[0];
        return result;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(value);
    if (count < 1 || count > 3) {
        return errors_raise(
            PyExc_ValueError,
            "sampler: address is a name, or a tuple of one for each of s, t and "
            "r, not %R.",
            value);
    }
    for (Py_ssize_t axis = 0; axis < 3; axis++) {
        PyObject *one = PyTuple_GET_ITEM(value, axis < count ? axis : count - 1);
        if (convert_name("address", one, addresses, &address[axis]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* What is no number gets our own sentence; NaN, which no level is, stands for a number that is too large. */
static int
convert_level(PyObject *value, float *out)
{
    double level = PyFloat_AsDouble(value);
    if (level == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            return args_refuse_type("sampler", "a level of lod", "a number", value);
        }
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return -1;
        }
        PyErr_Clear();
        level = Py_NAN;
    }
    *out = (float)level;
    return 0;
}

/* (least, most), of which the second may be None. */
static int
convert_levels(PyObject *value, bridge_sampler_facts *facts)
{
    if (!args_is_given(value)) {
        return 0;
    }
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2) {
        return args_refuse_type("sampler", "lod", "a tuple of two levels, (0, None)", value);
    }
    PyObject *most = PyTuple_GET_ITEM(value, 1);
    if (convert_level(PyTuple_GET_ITEM(value, 0), &facts->lod_min) < 0 ||
        (most != Py_None && convert_level(most, &facts->lod_max) < 0)) {
        return -1;
    }
    bool is_range = facts->lod_min >= 0 && facts->lod_max >= facts->lod_min;
    return is_range
               ? 0
               : errors_raise(PyExc_ValueError,
                              "sampler: lod is the least and the most level, from 0 on, not "
                              "%R.",
                              value);
}

/* SPEC MTLSampler.h normalizedCoordinates */
static int
check_pixels(const bridge_sampler_facts *facts)
{
    bool is_clamped = true;
    for (int axis = 0; axis < 3; axis++) {
        unsigned mode = facts->address[axis];
        is_clamped = is_clamped && (mode == 0 || mode == 4 || mode == 5);
    }
    bool is_good =
        facts->is_normalized || (is_clamped && facts->min_filter == facts->mag_filter &&
                                 facts->mip_filter == 0 && facts->max_anisotropy == 1);
    return is_good ? 0
                   : errors_raise(PyExc_ValueError,
                                  "sampler: with normalized=False address is clamp_to_edge, "
                                  "clamp_to_zero or clamp_to_border, min_filter is mag_filter, "
                                  "mip_filter is none and max_anisotropy is 1; normalize the "
                                  "coordinates, or give one of those.");
}

static int
convert_numbers(PyObject *const *values, bridge_sampler_facts *facts)
{
    int64_t anisotropy = 1;
    int is_normalized = 1;
    if ((args_is_given(values[5]) &&
         args_bool("sampler", "normalized", values[5], &is_normalized) < 0) ||
        (values[8] != NULL &&
         args_int64("sampler", "max_anisotropy", values[8], &anisotropy) < 0)) {
        return -1;
    }
    if (anisotropy < 1 || anisotropy > 16) {
        return errors_raise(PyExc_ValueError,
                            "sampler: max_anisotropy (%lld) is not within 1 to 16.",
                            (long long)anisotropy);
    }
    facts->is_normalized = is_normalized != 0;
    facts->max_anisotropy = (unsigned)anisotropy;
    return convert_levels(values[9], facts) < 0 ? -1 : check_pixels(facts);
}

/* In the order of the arguments' names. */
static int
convert_facts(PyObject *const *values, bridge_sampler_facts *facts)
{
    *facts = (bridge_sampler_facts){.lod_max = FLT_MAX};
    if (convert_name("filter", values[0], filters, &facts->min_filter) < 0) {
        return -1;
    }
    facts->mag_filter = facts->min_filter;
    return convert_name("min_filter", values[1], filters, &facts->min_filter) < 0 ||
                   convert_name("mag_filter", values[2], filters, &facts->mag_filter) < 0 ||
                   convert_name("mip_filter", values[3], mip_filters, &facts->mip_filter) < 0 ||
                   convert_addresses(values[4], facts->address) < 0 ||
                   convert_name("compare", values[6], compares, &facts->compare) < 0 ||
                   convert_name("border", values[7], borders, &facts->border) < 0
               ? -1
               : convert_numbers(values, facts);
}

PyDoc_STRVAR(
    sampler_function_doc,
    "sampler($module, filter='nearest', *, min_filter=None, mag_filter=None, "
    "mip_filter='none',\n"
    "        address='clamp_to_edge', normalized=True, compare=None, "
    "border='transparent_black',\n"
    "        max_anisotropy=1, lod=(0, None), device=None)\n--\n\n"
    "How a kernel samples textures: for a parameter of type `sampler`.\n\n"
    "Parameters\n----------\n"
    "filter : {'nearest', 'linear'}\n"
    "    Within a level; min_filter and mag_filter, where the two differ.\n"
    "mip_filter : {'none', 'nearest', 'linear'}\n    Between levels.\n"
    "address : str or tuple of str\n"
    "    Beyond the edge: 'clamp_to_edge', 'mirror_clamp_to_edge', 'repeat', "
    "'mirrored_repeat',\n"
    "    'clamp_to_zero' or 'clamp_to_border'; a tuple has one for each of s, t and r.\n"
    "normalized : bool\n    False: coordinates are pixels, not parts of the whole.\n"
    "compare : str, optional\n"
    "    What sample_compare does: 'never', 'less', 'equal', 'less_equal', 'greater', "
    "'not_equal',\n"
    "    'greater_equal' or 'always'.\n"
    "border : {'transparent_black', 'opaque_black', 'opaque_white'}\n"
    "    The colour of 'clamp_to_border'.\n"
    "max_anisotropy : int\n    1 to 16.\n"
    "lod : (least, most)\n    The levels that are used; None: all.\n"
    "device : Device or str, optional\n    Default: the system's default device.\n\n"
    "Returns\n-------\nSampler\n\n"
    "Raises\n------\n"
    "TypeError, ValueError\n    No such name; the message has those that there are.\n"
    "MetalError\n    Metal gave no sampler: a device has room for so many different ones.\n\n"
    "Source: MTLSamplerDescriptor; docs/textures.md.");

ARGS_FUNCTION(core_sampler, module, "sampler", 0, 1, 0, "filter", "min_filter", "mag_filter",
              "mip_filter", "address", "normalized", "compare", "border", "max_anisotropy",
              "lod", "device")
{
    md_state *state = state_of_module(module);
    bridge_sampler_facts facts;
    if (convert_facts(values, &facts) < 0) {
        return NULL;
    }
    const device_record *device = device_convert(state, function, values[10]);
    PyObject *op =
        device == NULL ? NULL : state->sampler_type->tp_alloc(state->sampler_type, 0);
    if (op == NULL) {
        return NULL;
    }
    SamplerObject *self = sampler_cast(op);
    self->device = device;
    self->facts = facts;
    bridge_status status =
        WITHOUT_GIL(bridge_sampler_new(device->handle, &facts, &self->sampler));
    if (errors_check_status(state, function, status, NULL, 0) < 0) {
        Py_CLEAR(op);
    }
    return op;
}

PyMethodDef sampler_functions[] = {
    {"sampler", MD_FASTCALL(core_sampler), sampler_function_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the type ---- */

MD_GETTER(sampler_get_min_filter,
          PyUnicode_FromString(filters[sampler_cast(op)->facts.min_filter]));
MD_GETTER(sampler_get_mag_filter,
          PyUnicode_FromString(filters[sampler_cast(op)->facts.mag_filter]));
MD_GETTER(sampler_get_mip_filter,
          PyUnicode_FromString(mip_filters[sampler_cast(op)->facts.mip_filter]));
MD_GETTER(sampler_get_normalized, PyBool_FromLong(sampler_cast(op)->facts.is_normalized));
MD_GETTER(sampler_get_device, device_of_record(state_of(op), sampler_cast(op)->device));
MD_GETTER(sampler_get_handle, PyLong_FromVoidPtr(sampler_cast(op)->sampler));

static PyObject *
sampler_get_address(PyObject *op, void *Py_UNUSED(closure))
{
    const unsigned *address = sampler_cast(op)->facts.address;
    return Py_BuildValue("(sss)", addresses[address[0]], addresses[address[1]],
                         addresses[address[2]]);
}

static PyObject *
sampler_get_gpu_resource_id(PyObject *op, void *Py_UNUSED(closure))
{
    if (errors_check_fork(state_of(op), "Sampler.gpu_resource_id") < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(bridge_sampler_resource_id(sampler_cast(op)->sampler));
}

static PyGetSetDef sampler_getset[] = {
    MD_FACT(sampler, min_filter, "'nearest' or 'linear', where pixels are smaller than steps."),
    MD_FACT(sampler, mag_filter, "'nearest' or 'linear', where pixels are larger than steps."),
    MD_FACT(sampler, mip_filter, "'none', 'nearest' or 'linear', between levels."),
    MD_FACT(sampler, address, "A tuple: what is beyond the edge along s, t and r."),
    MD_FACT(sampler, normalized, "False if coordinates are pixels."),
    MD_FACT(sampler, device, "The Device it is on."),
    MD_FACT(sampler, handle,
            "The id<MTLSamplerState> as an int: borrowed, valid while the Sampler is."),
    MD_FACT(sampler, gpu_resource_id,
            "What a structure that a kernel is given holds of it, an int of 64 bits.\n\n"
            "Source: MTLSamplerState gpuResourceID."),
    MD_LAST_FACT,
};

static PyObject *
sampler_repr(PyObject *op)
{
    const bridge_sampler_facts *facts = &sampler_cast(op)->facts;
    bool is_one_filter = facts->min_filter == facts->mag_filter;
    return PyUnicode_FromFormat("<metal_dlpack.Sampler %s%s%s, %s%s, on metal:%d>",
                                filters[facts->min_filter], is_one_filter ? "" : " and ",
                                is_one_filter ? "" : filters[facts->mag_filter],
                                addresses[facts->address[0]],
                                facts->is_normalized ? "" : ", pixels",
                                sampler_cast(op)->device->index);
}

MD_REFUSE_NEW(sampler_refuse_new,
              "Sampler() cannot make a sampler; call sampler(), with its filter.");

static void
sampler_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    bridge_sampler_release(sampler_cast(op)->sampler);
    state_free_object(op);
}

PyDoc_STRVAR(sampler_doc,
             "How a kernel samples textures.  Made by sampler(); it never changes.\n\n"
             "Threads: any number may use one.\n\n"
             "Source: MTLSamplerState; docs/textures.md.");

static PyType_Slot sampler_slots[] = {
    {Py_tp_doc, (void *)sampler_doc},
    {Py_tp_new, sampler_refuse_new},
    {Py_tp_dealloc, sampler_dealloc},
    {Py_tp_traverse, state_visit_type},
    {Py_tp_getset, sampler_getset},
    {Py_tp_repr, sampler_repr},
    {0, NULL},
};

MD_SPEC(sampler, "Sampler", sizeof(SamplerObject), 0, 0);
