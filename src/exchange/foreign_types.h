/* foreign_types.h: what is known of another library's type: its DLPack exchange table, which tensors
 * to take from it, and how to wait for its GPU work.
 *
 * Owns:    the state's cache of the types seen last.
 * Rule:    torch's table exports any memory.  torch's __dlpack__ refuses conjugated tensors, whose
 *          memory is not their value, and those that require grad, which must not be written
 *          without torch; it overlooks negated ones.
 * Memory:  what torch exports keeps its TensorImpl, which x.data = y and x.set_() make point at
 *          other memory.  x.untyped_storage() keeps the memory itself.
 * Threads: the GIL is held.
 * Source:  dlpack.h 1.3 DLPackExchangeAPI; torch/_tensor.py, Tensor.__dlpack__.
 */
#ifndef MD_FOREIGN_TYPES_H
#define MD_FOREIGN_TYPES_H

#include <dlpack/dlpack.h>

#include "array/array.h"

/* The name of the capsule of a type's table.  SPEC dlpack.h */
#define CAPSULE_EXCHANGE_API "dlpack_exchange_api"

/* What is known of the type: borrowed until the next call.  NULL with an exception. */
const foreign_type *foreign_find_type(md_state *state, PyTypeObject *type);

static inline const foreign_type *
foreign_type_of(md_state *state, PyTypeObject *type)
{
    const foreign_type *last = &state->foreign_types[state->foreign_last];
    return last->type == type ? last : foreign_find_type(state, type);
}

/* Has the type of `op` __dlpack__?  1, 0, or -1 with an exception. */
int foreign_speaks(md_state *state, PyObject *op);

/* Can its Metal memory have GPU work on it that somebody knows of? */
static inline bool
foreign_has_work(const foreign_type *type)
{
    return type->sync != NULL || type->has_torch_queue || type->speaks_metal_stream;
}

/* After the table of the type of `op` made `tensor`: may it be taken?  1: yes, with `*keeper` as
 * below.  0: call __dlpack__ instead, which knows what to refuse.  -1 as below. */
int foreign_examine_made(md_state *state, PyObject *op, const DLTensor *tensor,
                         PyObject **keeper);

/* After __dlpack__ of `op` gave `tensor`; NULL: of another major version.  `*keeper` is owned (+1) and keeps its memory, whatever torch makes the tensor of
 * `op` point at later; NULL: only the managed tensor does.  -1 with BufferError: the memory holds
 * minus the values; or what torch raised. */
int foreign_examine_memory(md_state *state, PyObject *op, const DLTensor *tensor,
                           PyObject **keeper);

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

#endif /* MD_FOREIGN_TYPES_H */
