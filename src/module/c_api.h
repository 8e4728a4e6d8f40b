/* c_api.h: the capsule _C_API, the table of metal_dlpack/include/metal_dlpack.h.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_C_API_H
#define MD_C_API_H

#include "python/state.h"

/* Puts _C_API into the module.  0, or -1 with an exception. */
int c_api_add_capsule(PyObject *module);

#endif /* MD_C_API_H */
