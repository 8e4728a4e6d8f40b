/* owners.h: owners of foreign memory, let go by the interpreter that they belong to.
 *
 * Owns:    a lock-free list, one an interpreter, of retired storages whose owner is a Python
 *          object or a foreign managed tensor (whose deleter may want the GIL).
 * Threads: retiring runs on any thread and never waits: with this interpreter's GIL held it lets
 *          go at once, else it puts the storage on the list, which owners_drain empties.
 * Depth:   owners within owners are let go 50 deep on the stack; the 50th empties the list of
 *          what lies deeper, before its own release returns.
 * End:     once the interpreter is gone the list only grows.  What it holds is leaked on
 *          purpose: nothing is left that could free it.
 */
#ifndef MD_OWNERS_H
#define MD_OWNERS_H

#include "metal/storage.h"
#include "python/state.h"

typedef struct owner_list owner_list;

/* The list of this interpreter: owned by the module, NULL with MemoryError set. */
owner_list *owners_new(void);
/* The module goes: empties the list and closes it.  Retired storages can still arrive. */
void owners_close(owner_list *list);

/* An owner record for storage_wrap_...: steals `object` (a strong reference) once the storage
 * is made, and not if that fails. */
storage_owner owners_of_object(md_state *state, PyObject *object);
/* The same for a foreign managed tensor, whose deleter will be called once.  `keeper`: an object
 * that keeps the memory too, stolen likewise; or NULL. */
storage_owner owners_of_tensor(md_state *state, void *managed, bool versioned,
                               PyObject *keeper);

/* Let go of what has no storage yet, as of an owner, while the GIL is held: code of the producer's
 * can run, and an exception that is set stays set. */
void owners_release_object(PyObject *object);
void owners_delete_tensor(void *managed, bool versioned);

/* The Python object behind a storage: borrowed, NULL where there is none. */
PyObject *owners_object(const metal_storage *storage);

/* Release a storage where the GIL of this interpreter is held, which then need not be found
 * out.  `state`: of state_if_alive. */
static inline void
owners_release_storage(const md_state *state, metal_storage *storage)
{
    /* mutant survives (comparison): no test deletes after its module; else it is found out */
    storage_release_at(storage, state == NULL ? NULL : state->owners);
}

/* Let go of whatever waits.  When nothing does, this is one memory read.  The GIL is held. */
void owners_drain(md_state *state);

#endif /* MD_OWNERS_H */
