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

#include "python/state.h"

/* The exchange table of a type: borrowed, static for the process.  NULL: it has none, or
 * none of our major version.  -1 with an exception. */
int foreign_table_of(md_state *state, PyTypeObject *type, const DLPackExchangeAPI **out);

/* May our Metal memory go to the type, which has a table?  -1 with BufferError. */
int foreign_check_taker(md_state *state, PyTypeObject *type);

/* Empty the cache. */
void foreign_types_forget(md_state *state);

/* Run the hook of metal_dlpack/sync.py for the type of `op`, whose Metal tensor is about to
 * be read.  `*moment` is owned (+1) and says when the GPU work on it is finished: what the
 * hook returned, if that is an Event or has __metal_stream__; without a hook `op` itself, if
 * it has __metal_stream__.  NULL: it is finished.  -1 with what the hook raised. */
int foreign_synchronize(md_state *state, PyObject *op, PyObject **moment);

/* Ask the table of the type of `op` for a tensor.  1: the caller owns `*out`.  0: call
 * __dlpack__ instead (there is no table; torch's __dlpack__ refuses this tensor; the table
 * refused, and there is a __dlpack__ to say why).  -1 with the exception that the table's
 * function raised. */
int foreign_tensor_of(md_state *state, PyObject *op, DLManagedTensorVersioned **out);

#endif /* MD_FOREIGN_TYPES_H */
