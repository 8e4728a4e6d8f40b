/* managed_tensor.c: see managed_tensor.h. */
#include "metal/managed_tensor.h"

#include <stdlib.h>

/* One allocation a tensor. */
typedef struct export_block {
    metal_storage *storage; /* owned (+1) */
    bool *is_deleted;       /* borrowed while managed_hand_over runs; NULL before and after */
    union {
        DLManagedTensor legacy;
        DLManagedTensorVersioned versioned;
    } tensor;
    int64_t dims[]; /* shape, then strides; one spare so that ndim 0 has an address */
} export_block;

/* SPEC soak */
static void
free_block(export_block *block)
{
    if (block->is_deleted != NULL) {
        *block->is_deleted = true;
    }
    storage_release(block->storage);
    free(block);
}

static void
delete_legacy(DLManagedTensor *self)
{
    free_block(self->manager_ctx);
}

/* SPEC export-deleter */
static void
delete_versioned(DLManagedTensorVersioned *self)
{
    free_block(self->manager_ctx);
}

/* SPEC export-versioned, export-strides */
void *
managed_new(metal_storage *storage, int ndim, bool versioned, uint64_t flags, DLTensor **tensor)
{
    *tensor = NULL;
    size_t ndims = ndim == 0 ? 1 : (size_t)ndim;
    export_block *block = malloc(sizeof *block + 2 * ndims * sizeof(int64_t));
    if (block == NULL) {
        return NULL;
    }
    storage_retain(storage);
    block->storage = storage;
    block->is_deleted = NULL;
    DLTensor *dl;
    if (versioned) {
        DLManagedTensorVersioned *managed = &block->tensor.versioned;
        managed->version.major = DLPACK_MAJOR_VERSION;
        managed->version.minor = DLPACK_MINOR_VERSION;
        managed->manager_ctx = block;
        managed->deleter = delete_versioned;
        managed->flags = flags;
        dl = &managed->dl_tensor;
    }
    else {
        block->tensor.legacy.manager_ctx = block;
        block->tensor.legacy.deleter = delete_legacy;
        dl = &block->tensor.legacy.dl_tensor;
    }
    dl->ndim = ndim;
    dl->shape = block->dims;
    dl->strides = block->dims + ndims;
    *tensor = dl;
    return &block->tensor;
}

/* dlpack.h does not say who deletes the tensor after a failure; torch does not. */
bool
managed_hand_over(DLManagedTensorVersioned *managed, DLPackManagedTensorToPyObjectNoSync take,
                  void **out)
{
    export_block *block = managed->manager_ctx;
    bool is_deleted = false;
    *out = NULL;
    block->is_deleted = &is_deleted;
    bool is_taken = take(managed, out) == 0 && *out != NULL;
    if (is_deleted) {
        return is_taken;
    }
    block->is_deleted =
        NULL; /* only the result could delete it now, and nobody else has that yet */
    if (!is_taken) {
        managed_delete(managed, true);
    }
    return is_taken;
}

/* SPEC import-null-deleter */
void
managed_delete(void *managed, bool versioned)
{
    if (versioned) {
        DLManagedTensorVersioned *tensor = managed;
        if (tensor->deleter != NULL) {
            tensor->deleter(tensor);
        }
    }
    else {
        DLManagedTensor *tensor = managed;
        if (tensor->deleter != NULL) {
            tensor->deleter(tensor);
        }
    }
}
