/* texture_copy.c: the pixels of a texture with bytes of its own, to and from an Array.
 *
 * Owns:    nothing beyond a call.
 * Calls:   work.h, which orders a copy with what is in flight on both sides.
 * Threads: the GIL is held; released while submitting.
 * Source:  MTLBlitCommandEncoder copyFromBuffer:...toTexture:..., copyFromTexture:...toBuffer:...
 */
#include "kernels/texture_object.h"

#include "metal/work.h"
#include "python/errors.h"
#include "streams/stream_object.h"

typedef struct copy_job {
    bridge_texture *texture;
    bridge_buffer *buffer;
    bridge_box box;
    bool is_fill; /* of the texture */
} copy_job;

static bridge_status
encode_copy(bridge_commands *commands, void *context)
{
    const copy_job *job = context;
    return job->is_fill
               ? bridge_encode_to_texture(commands, job->buffer, job->texture, &job->box)
               : bridge_encode_from_texture(commands, job->texture, job->buffer, &job->box);
}

/* An Array of the level's shape, its rows one behind the other. */
static bridge_box
box_of(const TextureObject *self, size_t level, const ArrayObject *array)
{
    size_t width = texture_side((uint32_t)self->facts.width, (uint32_t)level);
    size_t height = texture_side((uint32_t)self->facts.height, (uint32_t)level);
    size_t row = width * pixel_format_nbytes(self->format);
    return (bridge_box){.level = level,
                        .width = width,
                        .height = height,
                        .images = texture_level_nbytes(self, level) / (row * height),
                        .is_deep = self->kind->is_deep,
                        .offset_bytes = (size_t)array->byte_offset,
                        .row_nbytes = row,
                        .image_nbytes = row * height};
}

/* The one that was named, the current one if it is the device's, or the device's own: +1.  NULL with an exception. */
static metal_stream *
choose_stream(md_state *state, const char *function, const device_record *device,
              metal_stream *given)
{
    metal_stream *stream = given;
    if (given != NULL) {
        stream_retain(given);
    }
    else if (stream_convert_target(state, function, NULL, &stream) < 0) {
        return NULL;
    }
    if (stream != NULL && stream->device != device) {
        stream_release(stream);
        stream = NULL;
    }
    return stream != NULL ? stream : stream_default_taken(state, function, device);
}

static int
submit(const char *function, TextureObject *self, size_t level, ArrayObject *array,
       bool is_fill, bool is_generated, metal_stream *given)
{
    md_state *state = state_of((PyObject *)self);
    metal_storage *storage = array_storage(array);
    copy_job job = {self->texture, storage->handle, box_of(self, level, array), is_fill};
    job.box.is_generated = is_generated;
    const work_operand operands[] = {{self->storage, is_fill}, {storage, !is_fill}};
    metal_stream *stream = choose_stream(state, function, self->storage->device, given);
    if (stream == NULL) {
        return -1;
    }
    uint64_t value;
    work_look look = {TIMELINE_COPY, texture_level_nbytes(self, level)};
    bridge_status status =
        WITHOUT_GIL(work_submit(stream, look, operands, 2, encode_copy, &job, NULL, &value));
    stream_release(stream);
    return errors_check_status(state, function, status, NULL, 0);
}

/* What a blit can take: rows without gaps, from a multiple of a pixel and of 4 on. */
static bool
is_plain(const TextureObject *self, const ArrayObject *array)
{
    strided_layout layout;
    array_get_layout(array, &layout);
    size_t unit = pixel_format_nbytes(self->format);
    unit = unit < STORAGE_UNIT ? STORAGE_UNIT : unit;
    return layout_is_contiguous_c(&layout) && (size_t)array->byte_offset % unit == 0;
}

int
texture_fill(const char *function, TextureObject *self, size_t level, ArrayObject *from,
             bool is_generated, metal_stream *stream)
{
    array_creation what = array_like(from);
    PyObject *array = is_plain(self, from) ? Py_NewRef((PyObject *)from)
                                           : array_copied(function, from, &what, stream);
    int result = array == NULL ? -1
                               : submit(function, self, level, array_cast(array), true,
                                        is_generated, stream);
    Py_XDECREF(array);
    return result;
}

PyObject *
texture_read(const char *function, TextureObject *self, size_t level)
{
    int64_t shape[5];
    texture_level_shape(self, level, shape);
    array_creation what = {.device = self->storage->device,
                           .mode = self->mode,
                           .order = 'C',
                           .ndim = self->ndim,
                           .shape = shape,
                           .dtype = self->dtype};
    PyObject *array = array_allocate(state_of((PyObject *)self), function, &what);
    if (array != NULL &&
        submit(function, self, level, array_cast(array), false, false, NULL) < 0) {
        Py_CLEAR(array);
    }
    return array;
}
