/* block.c: copies, calls and frees blocks made by clang or by hand.
 *
 * Owns:    the copies.
 * Threads: any; the count of a copy is atomic.
 * Note:    a copy's `isa` is never looked at here; the weak symbols are what a literal made by
 *          hand points at, as with Apple's libsystem_blocks.
 */
#include "softmetal/apple/block.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_REFCOUNT_MASK 0xfffe
#define BLOCK_REFCOUNT_ONE 2
#define BLOCK_NEEDS_FREE (1 << 24)
#define BLOCK_HAS_COPY_DISPOSE (1 << 25)
#define BLOCK_IS_GLOBAL (1 << 28)

struct descriptor {
    unsigned long reserved;
    unsigned long size;
    void (*copy)(void *destination, const void *source);
    void (*dispose)(const void *block);
};

struct literal {
    void *isa;
    int flags;
    int reserved;
    void (*invoke)(void);
    struct descriptor *descriptor;
};

extern void *_NSConcreteGlobalBlock[32];
extern void *_NSConcreteStackBlock[32];
extern void *_NSConcreteMallocBlock[32];
__attribute__((weak)) void *_NSConcreteGlobalBlock[32];
__attribute__((weak)) void *_NSConcreteStackBlock[32];
__attribute__((weak)) void *_NSConcreteMallocBlock[32];

const void *
soft_block_copy(const void *block)
{
    struct literal *source = (struct literal *)block;
    if (source == NULL || (source->flags & BLOCK_IS_GLOBAL) != 0) {
        return block;
    }
    if ((source->flags & BLOCK_NEEDS_FREE) != 0) {
        __atomic_add_fetch(&source->flags, BLOCK_REFCOUNT_ONE, __ATOMIC_RELAXED);
        return block;
    }
    struct literal *copy = malloc(source->descriptor->size);
    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, source, source->descriptor->size);
    copy->isa = _NSConcreteMallocBlock;
    copy->flags =
        (source->flags & ~BLOCK_REFCOUNT_MASK) | BLOCK_NEEDS_FREE | BLOCK_REFCOUNT_ONE;
    if ((source->flags & BLOCK_HAS_COPY_DISPOSE) != 0) {
        source->descriptor->copy(copy, source);
    }
    return copy;
}

void
soft_block_release(const void *block)
{
    struct literal *copy = (struct literal *)block;
    if (copy == NULL || (copy->flags & BLOCK_NEEDS_FREE) == 0) {
        return;
    }
    int flags = __atomic_sub_fetch(&copy->flags, BLOCK_REFCOUNT_ONE, __ATOMIC_ACQ_REL);
    if ((flags & BLOCK_REFCOUNT_MASK) != 0) {
        return;
    }
    if ((flags & BLOCK_HAS_COPY_DISPOSE) != 0) {
        copy->descriptor->dispose(copy);
    }
    free(copy);
}

void
soft_block_call(const void *block, void *argument)
{
    void (*invoke)(const void *, void *) =
        (void (*)(const void *, void *))((const struct literal *)block)->invoke;
    invoke(block, argument);
}

void
soft_block_call_with_length(const void *block, void *pointer, unsigned long length)
{
    void (*invoke)(const void *, void *, unsigned long) =
        (void (*)(const void *, void *, unsigned long))((const struct literal *)block)->invoke;
    invoke(block, pointer, length);
}
