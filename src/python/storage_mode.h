/* storage_mode.h: which storage mode an allocation gets.
 *
 * Rule:    the call's `storage=`, else METAL_DLPACK_STORAGE_MODE (read once an interpreter),
 *          else shared.
 * Threads: the GIL is held.
 */
#ifndef MD_STORAGE_MODE_H
#define MD_STORAGE_MODE_H

#include "metal/devices.h"
#include "python/state.h"

const char *storage_mode_name(bridge_storage mode); /* "shared" ... static */

/* `value`: NULL or None for the default, or a name in any letter case.  -1 with TypeError or
 * ValueError (or the RuntimeWarning of a wrong variable, made an error). */
int storage_mode_convert(md_state *state, const char *function, PyObject *value,
                         bridge_storage *out);

extern PyMethodDef storage_mode_functions[];

#endif /* MD_STORAGE_MODE_H */
