/* foreign_types.h: what is known of another library's type: its DLPack exchange table, and how
 * to wait for its GPU work.
 *
 * Owns:    the state's cache of the types seen last.
 * Threads: the GIL is held.
 * Source:  dlpack.h 1.3 DLPackExchangeAPI.
 */
#ifndef MD_FOREIGN_TYPES_H
#define MD_FOREIGN_TYPES_H

#include <dlpack/dlpack.h>

#include "array/array.h"

/* The name of the capsule of a type's table.  SPEC dlpack.h */
#define CAPSULE_EXCHANGE_API "dlpack_exchange_api"

/* What is known of a type that was not the last one. */
const foreign_type *foreign_type_find(md_state *state, PyTypeObject *type);

/* What is known of the type: borrowed until the next call.  NULL with an exception. */
static inline const foreign_type *
foreign_type_of(md_state *state, PyTypeObject *type)
{
    const foreign_type *last = &state->foreign_types[state->foreign_last];
    return last->type == type ? last : foreign_type_find(state, type);
}

/* May our Metal memory go to the type, which has a table?  -1 with BufferError. */
int foreign_check_taker(md_state *state, PyTypeObject *type);

/* Let the type's own queue wait, on the GPU, for our work in flight on the array.  1: it does.  0:
 * nobody knows how, and the CPU must wait.  -1 with MetalError. */
int foreign_order_taker(md_state *state, PyTypeObject *type, ArrayObject *array);

/* Empty the cache. */
void foreign_types_forget(md_state *state);

/* Before the Metal tensor of `op` is read.  `*moment` is owned (+1) and says when the GPU work on it
 * is finished: what the hook of metal_dlpack/sync.py returned, if that is an Event or has
 * __metal_stream__; an event of torch's queue; `op` itself, if it has __metal_stream__.  NULL: it is
 * finished.  -1 with what the hook raised, or MetalError. */
int foreign_wait(md_state *state, PyObject *op, PyObject **moment);

static inline int
foreign_synchronize(md_state *state, PyObject *op, PyObject **moment)
{
    const foreign_type *slot = foreign_type_of(state, Py_TYPE(op));
    bool is_known = slot != NULL && slot->sync == NULL && !slot->has_torch_queue &&
                    !slot->speaks_metal_stream;
    return is_known ? 0 : foreign_wait(state, op, moment); /* `*moment` is NULL as it was */
}

#endif /* MD_FOREIGN_TYPES_H */
