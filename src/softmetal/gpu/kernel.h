/* kernel.h: a kernel, compiled or in C, and one dispatch of it.
 *
 * Owns:    the table of kernels in C, behind a lock; a dispatch owns copies of the bytes it is
 *          given, and a reference to its image.
 * Calls:   kernels/image.h to run an image, soft_storage.h, pixels.h, softmetal.h.
 * Threads: the table from any thread; a dispatch as program.h says.
 */
#ifndef SOFT_KERNEL_H
#define SOFT_KERNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "softmetal/checker/checked_launch.h"
#include "softmetal/gpu/pixels.h"
#include "softmetal/gpu/soft_storage.h"
#include "softmetal/kernels/image.h"
#include "softmetal/softmetal.h"

#define SOFT_MOST_ARGUMENTS SOFT_MOST_BUFFERS

/* Either `image` or `run`; neither: the kernel touches no byte. */
typedef struct soft_kernel {
    const char *name;      /* borrowed for ever; NULL: of an image */
    softmetal_kernel *run; /* in C */
    soft_loaded_image
        *image; /* compiled; borrowed from the pipeline, owned (+1) by a dispatch */
    soft_loaded_image
        *counting;    /* the same kernel as one that counts, owned alike; NULL: none */
    unsigned written; /* bit i: argument i is written */
} soft_kernel;

typedef struct soft_argument {
    soft_storage *storage; /* borrowed from the program's `bound`; NULL: bytes, or nothing */
    size_t offset;
    void *bytes;        /* owned */
    size_t nbytes;      /* of the bytes */
    size_t view_nbytes; /* what was meant; SIZE_MAX: all that there is from the offset on */
    size_t view_before; /* of these, before the offset: where strides are negative */
} soft_argument;

/* A buffer, or the bytes of a texture, that a kernel may reach by an address that it reads. */
typedef struct soft_resource {
    soft_storage *storage; /* borrowed from the program's `bound` */
    size_t offset, nbytes; /* the part that is meant */
    unsigned number, pixel_nbytes;
    bool is_written, is_argument;
    const soft_texture *texture; /* it may be gone; NULL: a buffer */
} soft_resource;

typedef struct soft_dispatch {
    soft_kernel kernel;
    size_t grid[3], group[3]; /* threads */
    soft_u32 threadgroup_nbytes[SOFT_MOST_ARGUMENTS];
    uint64_t count_tag;       /* counts.h; 0: it is not counted */
    soft_given *given;        /* owned */
    soft_resource *resources; /* owned */
    size_t resource_count, resource_capacity;
    soft_textures textures;
    int count; /* one more than the highest index of an argument */
    soft_argument arguments[];
} soft_dispatch;

bool soft_kernel_find(const char *name, soft_kernel *out); /* false: nobody registered it */
bool soft_kernel_is_named_in(const char *text);      /* one that somebody has registered */
bool soft_kernel_is_idle(const soft_kernel *kernel); /* it touches no byte */

soft_dispatch *soft_dispatch_new(void); /* with room for all arguments; NULL: no memory */
/* A copy with bytes of its own; NULL when there is no memory. */
soft_dispatch *soft_dispatch_copy(const soft_dispatch *dispatch);
void soft_dispatch_free(soft_dispatch *dispatch); /* NULL is allowed */
/* The argument at an index below SOFT_MOST_ARGUMENTS, of a dispatch of soft_dispatch_new: empty. */
soft_argument *soft_dispatch_clear_argument(soft_dispatch *dispatch, size_t index);
bool soft_argument_set_bytes(soft_argument *argument, const void *bytes, size_t nbytes);

/* From now on these are reached too: the whole buffer, or a texture; false: no memory. */
bool soft_dispatch_use(soft_dispatch *dispatch, soft_storage *storage, bool is_written);
bool soft_dispatch_use_texture(soft_dispatch *dispatch, const soft_pixels *pixels,
                               bool is_written);

/* All that is reached beside the arguments: those, and then the textures. */
size_t soft_dispatch_reached_count(const soft_dispatch *dispatch);
soft_resource soft_dispatch_reached(const soft_dispatch *dispatch, size_t at);

/* Keep what an argument was given, for the checker.  Nothing, where there is no memory for it. */
void soft_dispatch_gave(soft_dispatch *dispatch, const softmetal_given *given);

/* Every thread of the grid.  False: the kernel was stopped; `*text` says why, malloc'ed. */
bool soft_dispatch_run(const soft_dispatch *dispatch, char **text);

extern pthread_mutex_t soft_kernel_mutex; /* fork holds it */

#endif /* SOFT_KERNEL_H */
