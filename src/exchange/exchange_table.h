/* exchange_table.h: DLPack's C exchange API of the Array type: our own table.
 *
 * Owns:    the table behind Array.__dlpack_c_exchange_api__, static for the process.
 * Threads: the GIL is held; the allocator takes it.
 * Source:  dlpack.h 1.3 DLPackExchangeAPI.
 */
#ifndef MD_EXCHANGE_TABLE_H
#define MD_EXCHANGE_TABLE_H

#include "python/state.h"

/* Put __dlpack_c_exchange_api__ on the Array type.  0, or -1 with an exception. */
int exchange_table_add(md_state *state);

#endif /* MD_EXCHANGE_TABLE_H */
