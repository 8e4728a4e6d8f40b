/* parts.h: what the parts of the bridge share: handles as objects, pools, blocks.
 *
 * Memory:  manual retain/release.  Methods named new..., copy... and alloc give +1, all else
 *          is autoreleased or borrowed, so every entry of the bridge has a pool (IN_POOL):
 *          Python's threads have none.
 * Builds:  with GCC's Objective-C (no ARC, no blocks, no @autoreleasepool, no _Atomic) and
 *          with Apple's clang (-fno-objc-arc).
 */
#ifndef MD_BRIDGE_PARTS_H
#define MD_BRIDGE_PARTS_H

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <stdlib.h>
#include <string.h>

#ifndef __APPLE__
#include "softmetal/softmetal.h"
#endif

#include "bridge/metal_bridge.h"

/* ---- pools ---- */

static inline void
drain_pool(NSAutoreleasePool **pool)
{
    [*pool drain];
}

/* Until the end of the block, however it is left: what is autoreleased goes then. */
#define IN_POOL \
    __attribute__((cleanup(drain_pool), unused)) NSAutoreleasePool *pool = \
        [[NSAutoreleasePool alloc] init]

/* ---- handles as objects ---- */

#define DEFINE_OBJECT(name, protocol) \
    static inline id<protocol> name##_object(bridge_##name *handle) \
    { \
        return (id<protocol>)(void *)handle; \
    }

DEFINE_OBJECT(device, MTLDevice)
DEFINE_OBJECT(buffer, MTLBuffer)
DEFINE_OBJECT(queue, MTLCommandQueue)
DEFINE_OBJECT(event, MTLSharedEvent)
DEFINE_OBJECT(commands, MTLCommandBuffer)
DEFINE_OBJECT(library, MTLLibrary)
DEFINE_OBJECT(kernel, MTLComputePipelineState)
DEFINE_OBJECT(texture, MTLTexture)
DEFINE_OBJECT(sampler, MTLSamplerState)

/* A label, a queue, an event: whatever is let go may autorelease, and is Metal's to free. */
void release_object(void *handle);

/* Cut at `capacity`; "" for nil. */
void copy_text(NSString *text, char *out, size_t capacity);

/* Is an object of any class there? */
bool is_object(const void *handle);

/* `last` is the class found good last: it stays good, since no class can be unloaded here.  A
 * plain C pointer, because clang has no atomics for Objective-C's. */
bool is_object_of(const void *handle, Protocol *protocol, const void **last);

/* ---- numbers ---- */

static inline NSUInteger
at_most(NSUInteger value, NSUInteger most)
{
    return value < most ? value : most;
}

/* The first number of the system's version. */
NSInteger macos_major(void);

/* nil: Metal gave none.  Copies and fills are in our command buffers alone. */
id<MTLBlitCommandEncoder> begin_blit(bridge_commands *commands, const char *name);

/* ---- errors ---- */

/* Metal's words, and whether they are about the source. */
bridge_status refuse(NSError *failure, char **message, bool *is_source);

/* ---- texts ---- */

/* A block with an array in front, and the texts that it points at behind it. */
typedef struct text_block {
    char *memory, *free; /* NULL: there is no memory */
} text_block;

text_block make_text_block(size_t array_nbytes, size_t text_nbytes);
size_t text_nbytes(NSString *text);
char *add_text(text_block *block, NSString *text);

/* ---- blocks ---- */

/* What all blocks begin with, made by hand, because GCC makes none.  Metal copies a block off
 * the stack, as many bytes as the descriptor says.  SPEC clang, "Block Implementation
 * Specification". */
typedef struct block_head {
    void *isa;
    int flags;
    int reserved;
    void (*invoke)(void); /* takes the block itself, and what Metal passes */
    const struct block_descriptor {
        unsigned long reserved, size;
        /* called for a copy that is made or freed; with BLOCK_HAS_COPY_DISPOSE only */
        void (*copy)(void *made, const void *from);
        void (*dispose)(const void *copy);
    } *descriptor;
} block_head;

extern void *_NSConcreteStackBlock[32];

#define BLOCK_HAS_COPY_DISPOSE (1 << 25)
#define BLOCK_HEAD(flags, function, descriptor) \
    {_NSConcreteStackBlock, (flags), 0, (void (*)(void))(function), (descriptor)}

#endif /* MD_BRIDGE_PARTS_H */
