/* texture_object.h: the Python types `Texture` and `Sampler`, as the files of this folder see them.
 *
 * Owns:      the rule that neither changes after it was made; a texture's pixels may.
 * Threads:   the GIL is held; released while Metal makes one.
 * Invariant: a linear texture has an Array, whose bytes are its own; any other a storage, whose handle is the
 *            texture, so that tracking.h orders its users as those of a buffer.
 */
#ifndef MD_TEXTURE_OBJECT_H
#define MD_TEXTURE_OBJECT_H

#include <string.h>

#include "arithmetic/pixel_format.h"
#include "array/array.h"
#include "bridge/metal_bridge.h"
#include "metal/storage.h"
#include "python/state.h"

/* ---- texture_kind.c: which axes a kind of texture has, and which pixels are which items ---- */

typedef struct texture_kind {
    const char *name, *metal_name; /* "2d_array", "texture2d_array" */
    unsigned type;                 /* MTLTextureType */
    int axes; /* of an Array, beside that of the channels: before the last one or two are slices, or a depth */
    bool is_line;   /* rows of one pixel in height */
    bool is_deep;   /* the axis before is a depth */
    bool is_cube;   /* ... is the six faces */
    bool is_linear; /* it may lie over an Array's own bytes */
} texture_kind;

extern const texture_kind texture_kinds[];
extern const size_t texture_kind_count;
const texture_kind *texture_kind_of_type(unsigned type); /* NULL: not known here */
/* NULL (the default, 2d) or a name.  -1 with TypeError or ValueError. */
int texture_kind_convert(const char *function, PyObject *value, const texture_kind **out);

/* The format that is named, or the one that the items have by themselves.  -1 with TypeError (it does not fit the
 * items, items that no format has) or ValueError (no such format, three channels). */
int texture_format_convert(const char *function, PyObject *value, DLDataType dtype,
                           int64_t channels, const pixel_format **out);

/* ---- Texture ---- */

typedef struct {
    PyObject_HEAD
    bridge_texture *texture; /* owned (+1) if it is linear, else the storage's handle */
    metal_storage *storage;  /* owned (+1); NULL: it is linear */
    PyObject *array;         /* owned; NULL: it is not linear */
    PyObject *weakrefs;      /* keeps nothing alive */
    const pixel_format *format;
    const texture_kind *kind;
    bridge_texture_facts facts;
    DLDataType dtype;
    bridge_storage mode; /* of the Array that it was made of */
    int ndim;
    int64_t shape[5];
} TextureObject;

static inline TextureObject *
texture_cast(PyObject *op)
{
    return (TextureObject *)op;
}

/* Where its pixels are, for the order of work. */
static inline metal_storage *
texture_storage(const TextureObject *self)
{
    return self->array != NULL ? array_storage(array_cast(self->array)) : self->storage;
}

/* A level's shape as an Array: width, height and depth are halved, and no slices.  Lines have one level. */
static inline void
texture_level_shape(const TextureObject *self, size_t level, int64_t shape[5])
{
    memcpy(shape, self->shape, sizeof self->shape);
    for (int axis = self->kind->axes - (self->kind->is_deep ? 3 : 2);
         level > 0 && axis < self->kind->axes; axis++) {
        shape[axis] = texture_side((uint32_t)shape[axis], (uint32_t)level);
    }
}

/* Bytes of all pixels of a level. */
static inline size_t
texture_level_nbytes(const TextureObject *self, size_t level)
{
    int64_t shape[5];
    size_t nbytes = pixel_format_nbytes(self->format);
    texture_level_shape(self, level, shape);
    for (int axis = 0; axis < self->kind->axes; axis++) {
        nbytes *= (size_t)shape[axis];
    }
    return nbytes;
}

static inline size_t
texture_nbytes(const TextureObject *self)
{
    size_t nbytes = 0;
    for (size_t level = 0; level < self->facts.levels; level++) {
        nbytes += texture_level_nbytes(self, level);
    }
    return nbytes;
}

/* texture_copy.c: all pixels of a level, in stream order; NULL: the current stream, or the device's own.
 * `is_generated`: the smaller levels are made of them.  -1 with an exception. */
int texture_fill(const char *function, TextureObject *self, size_t level, ArrayObject *from,
                 bool is_generated, metal_stream *stream);
/* The pixels in a new Array: owned (+1). */
PyObject *texture_read(const char *function, TextureObject *self, size_t level);

/* ---- Sampler ---- */

typedef struct {
    PyObject_HEAD
    bridge_sampler *sampler;     /* owned (+1) */
    const device_record *device; /* borrowed for ever */
    bridge_sampler_facts facts;
} SamplerObject;

static inline SamplerObject *
sampler_cast(PyObject *op)
{
    return (SamplerObject *)op;
}

/* texture() and sampler() of the module. */
extern PyMethodDef texture_functions[], sampler_functions[];

#endif /* MD_TEXTURE_OBJECT_H */
