/* texture_request.h: what a call of texture() asks for, as the files that read it see it.
 *
 * Owns:    the tuple of Arrays; the rest is borrowed for the call.
 * Threads: the GIL is held.
 */
#ifndef MD_TEXTURE_REQUEST_H
#define MD_TEXTURE_REQUEST_H

#include "kernels/texture_object.h"

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

/* ---- texture_levels.c; each is -1 with TypeError or ValueError ---- */

/* An Array, or a list or tuple of one for each level: `levels` and `array`. */
int texture_request_arrays(texture_request *to, PyObject *value);
/* A number, 'all', or nothing; behind kind, format and extents: `facts.levels` and `is_generated`. */
int texture_request_count(texture_request *to, PyObject *value);
/* Are the smaller Arrays as the first one says, of which `self` is made? */
int texture_check_levels(const texture_request *to, const TextureObject *self);

#endif /* MD_TEXTURE_REQUEST_H */
