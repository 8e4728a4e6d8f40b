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

/* The name of the capsule of a type's table.  SPEC dlpack.h */
#define CAPSULE_EXCHANGE_API "dlpack_exchange_api"

/* What is known of the type: borrowed until the next call.  NULL with an exception. */
const foreign_type *foreign_type_of(md_state *state, PyTypeObject *type);

/* May our Metal memory go to the type, which has a table?  -1 with BufferError. */
int foreign_check_taker(md_state *state, PyTypeObject *type);

/* Empty the cache. */
void foreign_types_forget(md_state *state);

/* Run the hook of metal_dlpack/sync.py for the type of `op`, whose Metal tensor is about to
 * be read.  `*moment` is owned (+1) and says when the GPU work on it is finished: what the
 * hook returned, if that is an Event or has __metal_stream__; without a hook `op` itself, if
 * it has __metal_stream__.  NULL: it is finished.  -1 with what the hook raised. */
int foreign_synchronize(md_state *state, PyObject *op, PyObject **moment);

#endif /* MD_FOREIGN_TYPES_H */
