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

/* The table of a type, remembered for the types seen last: borrowed, static for the process;
 * NULL: it has none, or none of our major version.  -1 with an exception. */
int foreign_table_of(md_state *state, PyTypeObject *type, const DLPackExchangeAPI **out);

/* Nothing is known of any type any more. */
void foreign_types_forget(md_state *state);

/* Runs what metal_dlpack/sync.py says for the type of `op`, whose Metal tensor is about to be
 * read.  `*moment`, owned (+1), says when its GPU work is over: what the call returned, if
 * that is an Event or has __metal_stream__, or `op` itself, if it has; NULL: it is over.  -1
 * with what the call raised. */
int foreign_synchronize(md_state *state, PyObject *op, PyObject **moment);

/* A tensor of `op` by its type's table: owned by the caller.  1 if it was made, 0 if the
 * object must be asked for __dlpack__ instead (no table; a torch tensor that its own
 * __dlpack__ refuses; a refusal of the table's, of an object that has both), -1 with the
 * exception of the maker. */
int foreign_tensor_of(md_state *state, PyObject *op, DLManagedTensorVersioned **out);

#endif /* MD_FOREIGN_TYPES_H */
