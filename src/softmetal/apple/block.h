/* block.h: blocks without a compiler that knows them.
 *
 * Owns:    nothing; copies are owned (+1) by whoever asked.
 * Threads: any.
 * SPEC:    clang, "Block Implementation Specification": layout, flags and helpers of a block.
 */
#ifndef SOFT_BLOCK_H
#define SOFT_BLOCK_H

/* A copy that outlives the caller's stack frame; NULL for NULL, or when there is no memory. */
const void *soft_block_copy(const void *block);
void soft_block_release(const void *block); /* NULL is allowed */

/* Call a block that takes one pointer (void (^)(id)), or a pointer and a length. */
void soft_block_call(const void *block, void *argument);
void soft_block_call_with_length(const void *block, void *pointer, unsigned long length);

#endif /* SOFT_BLOCK_H */
