/* dlpack_exchange.h: DLPack's C exchange API: our own table, and the tables of others.
 *
 * Owns:    the table behind Array.__dlpack_c_exchange_api__, static for the process.
 * Threads: the GIL is held.
 * Source:  dlpack.h 1.3 DLPackExchangeAPI.
 */
#ifndef MD_DLPACK_EXCHANGE_H
#define MD_DLPACK_EXCHANGE_H

#include <dlpack/dlpack.h>

#include "array/array.h"

/* The state of the interpreter that calls, for tables of functions that are one for all
 * interpreters and have no room for it.  Borrowed; NULL with ImportError. */
md_state *exchange_current_state(void);

/* Puts __dlpack_c_exchange_api__ on the Array type.  0, or -1 with an exception. */
int exchange_add_table(md_state *state);

/* The table of a type, remembered for the types seen last: borrowed, static for the process;
 * NULL: it has none, or none of our major version.  -1 with an exception. */
int exchange_table_of(md_state *state, PyTypeObject *type, const DLPackExchangeAPI **out);

/* Nothing is known of any type any more. */
void exchange_forget(md_state *state);

/* Runs what metal_dlpack/sync.py says for the type of `op`, whose Metal tensor is about to be
 * read.  `*moment`, owned (+1), says when its GPU work is over: what the call returned, if
 * that is an Event or has __metal_stream__, or `op` itself, if it has; NULL: it is over.  -1
 * with what the call raised. */
int exchange_synchronize(md_state *state, PyObject *op, PyObject **moment);

/* A tensor of `op` by its type's table: owned by the caller.  1 if it was made, 0 if the
 * object must be asked for __dlpack__ instead (no table; a torch tensor that its own
 * __dlpack__ refuses; a refusal of the table's, of an object that has both), -1 with the
 * exception of the maker. */
int exchange_tensor_of(md_state *state, PyObject *op, DLManagedTensorVersioned **out);

#endif /* MD_DLPACK_EXCHANGE_H */
