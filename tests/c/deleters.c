/* deleters.c: deleters for hand-made tensors: they count, and take the memory away; by
 * themselves, or as Python functions that were wrapped without care.
 *
 * After a deletion the struct, its shape and its strides fault when touched, and so does the
 * data if it was given: whoever looks at a tensor that it let go dies.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What `manager_ctx` points at. */
typedef struct context {
    int64_t deletions;
    void *tensor; /* the pages of the struct and its arrays */
    size_t tensor_nbytes;
    void *data; /* pages that die with the tensor; NULL: they stay */
    size_t data_nbytes;
    void *seen; /* the argument of the last call */
    int64_t manner;
} context;

enum { PLAIN, LEAVES_AN_EXCEPTION, ENTERS_PYTHON };

extern int PyGILState_Ensure(void);
extern void PyGILState_Release(int state);
extern void PyErr_SetString(void *kind, const char *text);
extern void *PyExc_ValueError;
extern void *PyObject_CallObject(void *callable, void *args);
extern void Py_DecRef(void *op);

/* Borrowed: what ENTERS_PYTHON calls before it deletes. */
void *re_entry;

/* The counter of tensors whose manager_ctx is NULL. */
int64_t contextless_deletions;

static void
take_away(context *self, void *managed)
{
    __atomic_fetch_add(&self->deletions, 1, __ATOMIC_SEQ_CST);
    self->seen = managed;
    if (self->data != NULL) {
        mprotect(self->data, self->data_nbytes, PROT_NONE);
    }
    mprotect(self->tensor, self->tensor_nbytes, PROT_NONE);
}

static void
delete_tensor(context *self, void *managed)
{
    if (self == NULL) {
        __atomic_fetch_add(&contextless_deletions, 1, __ATOMIC_SEQ_CST);
        return;
    }
    if (self->manner == PLAIN) {
        take_away(self, managed);
        return;
    }
    int state = PyGILState_Ensure();
    if (self->manner == ENTERS_PYTHON) {
        Py_DecRef(PyObject_CallObject(re_entry, NULL));
    }
    take_away(self, managed);
    if (self->manner == LEAVES_AN_EXCEPTION) {
        PyErr_SetString(PyExc_ValueError, "left by a deleter");
    }
    PyGILState_Release(state);
}

/* SPEC dlpack.h: manager_ctx lies at byte 48 of DLManagedTensor and at byte 8 of
 * DLManagedTensorVersioned, and the deleter behind it. */
void
delete_legacy(char *managed)
{
    context *self;
    memcpy(&self, managed + 48, sizeof self);
    delete_tensor(self, managed);
}

void
delete_versioned(char *managed)
{
    context *self;
    memcpy(&self, managed + 8, sizeof self);
    delete_tensor(self, managed);
}

/* ---- a capsule's destructor, as a careful producer writes it ---- */

extern const char *PyCapsule_GetName(void *capsule);
extern void *PyCapsule_GetPointer(void *capsule, const char *name);

void
end_capsule(void *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    bool is_versioned = strcmp(name, "dltensor_versioned") == 0;
    if (!is_versioned && strcmp(name, "dltensor") != 0) {
        return; /* somebody has taken it */
    }
    char *managed = PyCapsule_GetPointer(capsule, name);
    void (*deleter)(char *);
    memcpy(&deleter, managed + (is_versioned ? 16 : 56), sizeof deleter);
    if (deleter != NULL) {
        deleter(managed);
    }
}
