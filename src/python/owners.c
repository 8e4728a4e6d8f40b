/* owners.c: see owners.h. */
#include "python/owners.h"

#include "metal/managed_tensor.h"
#include "python/errors.h"

struct owner_list {
    owner_list *older;   /* of another interpreter, or of an earlier module */
    metal_storage *head; /* atomic; newest first, linked by storage->owner.next */
    /* the interpreter's number: an address comes again, a number does not */
    int64_t home;
    int depth;            /* releases under way within one another; the GIL guards it */
    bool is_main;         /* pending calls run in the main interpreter only */
    bool is_closed;       /* atomic */
    bool is_call_pending; /* atomic: Py_AddPendingCall has been told */
};

/* Lists are never freed: a deleter can come after the interpreter's end and needs a place to
 * look.  A few words an interpreter. */
static owner_list *every_list; /* atomic; newest first */

/* As CPython's trashcan has it. */
#define MAX_DEPTH 50

enum { OWNER_OBJECT, OWNER_TENSOR_LEGACY, OWNER_TENSOR_VERSIONED };

/* ---- whose GIL does this thread hold? ---- */

/* PyGILState_Check returns 1 on every thread once a second interpreter was made, so it is of no
 * use here.  NULL: none, or it cannot be known. */
static PyThreadState *
attached_thread(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked();
#elif PY_VERSION_HEX >= 0x030C0000
    return _PyThreadState_UncheckedGet();
#else
    /* 3.11 keeps one current thread for the whole process: it is ours only if it is also the
     * one that this thread is known by. */
    PyThreadState *current = _PyThreadState_UncheckedGet();
    return current != NULL && current == PyGILState_GetThisThreadState() ? current : NULL;
#endif
}

/* SPEC interpreters */
static bool
is_attached_to(const owner_list *list)
{
    PyThreadState *thread = attached_thread();
    return thread != NULL &&
           PyInterpreterState_GetID(PyThreadState_GetInterpreter(thread)) == list->home;
}

/* ---- letting go; the GIL of the list's interpreter is held ---- */

/* SPEC import-deleted-once, import-deleter-exception */
static inline void
end_owner(void *owner, int kind, void *keeper)
{
    /* Dropping the owner can run Python code.  The exception that is set must survive, and one
     * that this code leaves must not. */
    PyObject *exception = PyErr_Occurred() ? errors_take() : NULL;
    switch (kind) {
    case OWNER_OBJECT: Py_DECREF((PyObject *)owner); break;
    case OWNER_TENSOR_LEGACY: managed_delete(owner, false); break;
    case OWNER_TENSOR_VERSIONED: managed_delete(owner, true); break;
    }
    Py_XDECREF((PyObject *)keeper);
    if (exception != NULL || PyErr_Occurred()) {
        errors_restore(exception);
    }
}

void
owners_release_object(PyObject *object)
{
    end_owner(object, OWNER_OBJECT, NULL);
}

void
owners_delete_tensor(void *managed, bool versioned)
{
    end_owner(managed, versioned ? OWNER_TENSOR_VERSIONED : OWNER_TENSOR_LEGACY, NULL);
}

static void
let_go(metal_storage *storage)
{
    end_owner(storage->owner.object, storage->owner.kind, storage->owner.keeper);
    storage_free(storage);
}

static void
drain(owner_list *list)
{
    metal_storage *storage;
    /* Again until it is empty: an owner that goes can be the last to hold another storage. */
    while ((storage = __atomic_exchange_n(&list->head, NULL, __ATOMIC_ACQUIRE)) != NULL) {
        while (storage != NULL) {
            metal_storage *next = storage->owner.next;
            let_go(storage);
            storage = next;
        }
    }
}

static void
push(owner_list *list, metal_storage *storage)
{
    storage->owner.next = __atomic_load_n(&list->head, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&list->head, &storage->owner.next, storage, true,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

/* Let go at once.  An owner can be the last to hold another storage, and so on down a long chain:
 * what lies deeper than MAX_DEPTH waits on the list, so that the stack does not overflow. */
static void
let_go_nested(owner_list *list, metal_storage *storage)
{
    if (list->depth == MAX_DEPTH) {
        push(list, storage);
        return;
    }
    bool is_deepest = ++list->depth == MAX_DEPTH;
    let_go(storage);
    if (is_deepest) {
        drain(list);
    }
    list->depth--;
}

static int
drain_when_pending(void *op)
{
    owner_list *list = op;
    __atomic_store_n(&list->is_call_pending, false, __ATOMIC_RELEASE);
    drain(list);
    return 0;
}

/* ---- retiring, on any thread ---- */

/* SPEC export-deleter-late */
static void
ask_for_drain(owner_list *list)
{
    if (!list->is_main || __atomic_load_n(&list->is_closed, __ATOMIC_ACQUIRE) ||
        !Py_IsInitialized() ||
        __atomic_exchange_n(&list->is_call_pending, true, __ATOMIC_ACQ_REL)) {
        return;
    }
    /* mutant survives (bound): one pending call more, of an empty list */
    if (Py_AddPendingCall(drain_when_pending, list) < 0) { /* unreached: the queue is full */
        /* The interpreter's queue is full: the next call into the module drains. */
        __atomic_store_n(&list->is_call_pending, false, __ATOMIC_RELEASE);
    }
}

/* SPEC import-deleter-thread, fork */
static void
retire(metal_storage *storage, const void *here)
{
    owner_list *list = storage->owner.home;
    if (here == list || is_attached_to(list)) {
        let_go_nested(list, storage);
        return;
    }
    push(list, storage);
    ask_for_drain(list);
}

/* ---- the list ---- */

owner_list *
owners_new(void)
{
    owner_list *list = PyMem_RawCalloc(1, sizeof *list);
    if (list == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    list->home = PyInterpreterState_GetID(PyInterpreterState_Get());
    list->is_main = PyInterpreterState_Get() == PyInterpreterState_Main();
    list->older = __atomic_load_n(&every_list, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&every_list, &list->older, list, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
    return list;
}

/* SPEC module-ends */
void
owners_close(owner_list *list)
{
    if (list != NULL) {
        drain(list);
        __atomic_store_n(&list->is_closed, true, __ATOMIC_RELEASE);
    }
}

storage_owner
owners_of_object(md_state *state, PyObject *object)
{
    return (storage_owner){object, OWNER_OBJECT, state->owners, retire, NULL, NULL};
}

storage_owner
owners_of_tensor(md_state *state, void *managed, bool versioned, PyObject *keeper)
{
    int kind = versioned ? OWNER_TENSOR_VERSIONED : OWNER_TENSOR_LEGACY;
    return (storage_owner){managed, kind, state->owners, retire, NULL, keeper};
}

PyObject *
owners_object(const metal_storage *storage)
{
    bool is_object = storage->owner.retire == retire && storage->owner.kind == OWNER_OBJECT;
    return is_object ? storage->owner.object : NULL;
}

void
owners_drain(md_state *state)
{
    if (__atomic_load_n(&state->owners->head, __ATOMIC_RELAXED) != NULL) {
        drain(state->owners);
    }
}
