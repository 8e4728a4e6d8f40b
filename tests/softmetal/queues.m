/* queues.m: command buffers: order, time, lifetimes, handlers, encoders, blits. */
#import "check.h"

#include <time.h>

static double
seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

CASE(commit_returns_before_the_work_is_done)
{
    softmetal_set("SOFTMETAL_LATENCY_US", "100000");
    id<MTLDevice> device = open_device();
    id<MTLBuffer> buffer = make_buffer(8, 0);
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    CHECK([commands status] == MTLCommandBufferStatusNotEnqueued);
    CHECK([commands device] == device);
    encode_fill(commands, buffer, 7);
    double start = seconds();
    [commands commit];
    CHECK([commands status] == MTLCommandBufferStatusCommitted ||
          [commands status] == MTLCommandBufferStatusScheduled);
    CHECK(((char *)[buffer contents])[0] == 0); /* a reader that does not wait sees old bytes */
    [commands waitUntilScheduled];
    [commands waitUntilCompleted];
    CHECK(seconds() - start >= 0.1);
    CHECK([commands status] == MTLCommandBufferStatusCompleted);
    CHECK([commands error] == nil);
    CHECK([commands GPUEndTime] - [commands GPUStartTime] >= 0.1);
    CHECK(((char *)[buffer contents])[7] == 7);
}

CASE(a_queue_runs_in_the_order_of_enqueue_not_of_commit)
{
    id<MTLCommandQueue> queue = open_queue();
    id<MTLBuffer> buffer = make_buffer(8, 0);
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
    [first enqueue];
    CHECK([first status] == MTLCommandBufferStatusEnqueued);
    encode_fill(second, buffer, 2);
    [second commit];
    usleep(20000);
    CHECK([second status] == MTLCommandBufferStatusCommitted);
    encode_fill(first, buffer, 1);
    [first commit];
    [second waitUntilCompleted];
    CHECK([first status] == MTLCommandBufferStatusCompleted);
    CHECK(((char *)[buffer contents])[0] == 2);
}

CASE(a_command_buffer_that_is_never_committed_is_forgotten)
{
    id<MTLCommandQueue> queue = open_queue();
    id<MTLBuffer> buffer = make_buffer(8, 0);
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    id<MTLCommandBuffer> dropped = [queue commandBuffer];
    encode_fill(dropped, buffer, 1);
    [dropped enqueue];
    [pool drain];
    CHECK(softmetal_live_objects("MTLCommandBuffer") == 0);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    finish(commands); /* the dropped one does not stand in its way */
    CHECK(((char *)[buffer contents])[0] == 0);
}

CASE(command_buffers_that_are_dropped_give_their_place_back)
{
    softmetal_set("SOFTMETAL_QUEUE_DEPTH", "2");
    softmetal_set("SOFTMETAL_DEADLOCK_MS", "1000");
    id<MTLCommandQueue> queue = open_queue();
    for (int round = 0; round < 10; round++) {
        NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
        CHECK([queue commandBuffer] != nil);
        [pool drain];
    }
}

CASE(retained_references_keep_a_buffer_until_completion)
{
    softmetal_set("SOFTMETAL_LATENCY_US", "20000");
    id<MTLDevice> device = open_device();
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLBuffer> source = [device newBufferWithBytes:"abcdefg" length:8 options:0];
    id<MTLBuffer> result = make_buffer(8, 0);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    encode_copy(commands, source, result);
    [commands commit];
    [source release];
    [queue release];
    CHECK(softmetal_live_objects("MTLBuffer") == 2);
    [commands waitUntilCompleted];
    CHECK(softmetal_live_objects("MTLBuffer") == 1);
    CHECK(memcmp([result contents], "abcdefg", 8) == 0);
}

CASE(everything_is_let_go_of_before_waiters_wake)
{
    id<MTLDevice> device = open_device();
    id<MTLCommandQueue> queue = open_queue();
    for (int round = 0; round < 500; round++) {
        NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
        id<MTLBuffer> buffer = [device newBufferWithLength:64 options:0];
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        encode_fill(commands, buffer, 1);
        [commands commit];
        [buffer release];
        [commands waitUntilCompleted];
        CHECK(softmetal_live_objects("MTLBuffer") == 0);
        CHECK([commands retainCount] == 2); /* the pool's, and the encoder's */
        [pool drain];
        CHECK(softmetal_live_objects("MTLCommandBuffer") == 0);
    }
}

CASE(dropping_everything_after_commit_is_allowed)
{
    id<MTLDevice> device = open_device();
    for (int round = 0; round < 200; round++) {
        NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
        id<MTLCommandQueue> queue = [device newCommandQueue];
        id<MTLBuffer> buffer = [device newBufferWithLength:64 options:0];
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        encode_fill(commands, buffer, 1);
        [commands commit];
        [buffer release];
        [queue release];
        [pool drain];
    }
}

CASE(unretained_references_work_while_the_caller_keeps_the_buffer)
{
    id<MTLCommandQueue> queue = open_queue();
    id<MTLBuffer> buffer = make_buffer(8, 0);
    id<MTLCommandBuffer> commands = [queue commandBufferWithUnretainedReferences];
    encode_fill(commands, buffer, 9);
    CHECK([buffer retainCount] == 1);
    finish(commands);
    CHECK(((char *)[buffer contents])[0] == 9);
}

/* A buffer that nobody keeps, after the commit or before it. */
static void
use_what_is_gone(BOOL is_committed)
{
    id<MTLBuffer> buffer = [open_device() newBufferWithLength:8 options:0];
    id<MTLCommandBuffer> commands = [open_queue() commandBufferWithUnretainedReferences];
    encode_fill(commands, buffer, 9);
    if (is_committed) {
        [commands commit];
    }
    [buffer release];
    if (!is_committed) {
        [commands commit];
    }
    [commands waitUntilCompleted];
    CHECK([commands status] == MTLCommandBufferStatusError);
    CHECK([[commands error] code] == MTLCommandBufferErrorInvalidResource);
}

REPORTS("destroyed-in-use", a_buffer_destroyed_while_its_command_buffer_runs)
{
    softmetal_set("SOFTMETAL_LATENCY_US", "50000");
    use_what_is_gone(YES);
}

REPORTS_BY("deallocated-at-commit", a_commit_that_names_a_buffer_that_is_gone,
           use_what_is_gone(NO))

struct note {
    pthread_t thread;
    int count;
    MTLCommandBufferStatus status;
};

static void
take_note(struct block *block, id<MTLCommandBuffer> commands)
{
    struct note *note = block->context;
    note->thread = pthread_self();
    note->count += 1;
    note->status = [commands status];
    [commands label]; /* autoreleases: the worker has a pool */
}

CASE(handlers_run_once_on_a_foreign_thread_before_waiters_wake)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    struct note scheduled = {0}, completed = {0};
    [commands setLabel:[NSString stringWithUTF8String:"noted"]];
    [commands addScheduledHandler:(const void *)BLOCK(take_note, &scheduled)];
    [commands addCompletedHandler:(const void *)BLOCK(take_note, &completed)];
    [commands addCompletedHandler:(const void *)BLOCK(take_note, &completed)];
    [commands commit];
    [commands waitUntilScheduled];
    CHECK(scheduled.count == 1 && scheduled.status >= MTLCommandBufferStatusScheduled);
    [commands waitUntilCompleted];
    CHECK(completed.count == 2 && completed.status == MTLCommandBufferStatusCompleted);
    CHECK(!pthread_equal(completed.thread, pthread_self()));
}

/* A block with a captured object, as clang lays it out: copied with the block, freed with it.
 */
struct owning_descriptor {
    unsigned long reserved, size;
    void (*copy)(void *destination, const void *source);
    void (*dispose)(const void *block);
};

static void
retain_context(void *destination, const void *source)
{
    (void)destination;
    [(id)((const struct block *)source)->context retain];
}

static void
release_context(const void *block)
{
    [(id)((const struct block *)block)->context release];
}

static void
check_context(struct block *block, id<MTLCommandBuffer> commands)
{
    (void)commands;
    CHECK([(id)block->context retainCount] == 1); /* the block's own */
}

CASE(a_block_from_the_stack_is_copied_and_let_go_of)
{
    static const struct owning_descriptor descriptor = {0, sizeof(struct block), retain_context,
                                                        release_context};
    NSObject *captured = [NSObject new];
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    struct block literal = {NULL,
                            1 << 25,
                            0,
                            (void (*)(void))check_context,
                            (const struct block_descriptor *)&descriptor,
                            captured};
    [commands addCompletedHandler:(const void *)&literal];
    CHECK([captured retainCount] == 2);
    [captured release];
    memset(&literal, 0, sizeof literal); /* the stack frame is gone */
    size_t before = softmetal_live_objects(NULL);
    finish(commands);
    CHECK(softmetal_live_objects(NULL) == before - 1);
}

CASE(a_global_block_is_used_as_it_is)
{
    static struct note note;
    static struct block global = {
        NULL, 1 << 28, 0, (void (*)(void))take_note, &plain_descriptor, &note};
    for (int round = 1; round < 4; round++) {
        id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
        [commands addCompletedHandler:(const void *)&global];
        finish(commands);
        CHECK(note.count == round);
    }
}

CASE(blits_work_inside_of_one_buffer_and_at_offsets)
{
    id<MTLBuffer> buffer = make_bytes("abcdefghijkl", 0);
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    CHECK([blit device] == open_device());
    [blit copyFromBuffer:buffer sourceOffset:0 toBuffer:buffer destinationOffset:8 size:4];
    [blit fillBuffer:buffer range:NSMakeRange(4, 4) value:'-'];
    [blit endEncoding];
    finish(commands);
    CHECK(strcmp([buffer contents], "abcd----abcd") == 0);
}

CASE(an_encoder_keeps_its_command_buffer)
{
    id<MTLCommandQueue> queue = open_queue();
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    id<MTLBlitCommandEncoder> blit = [[[queue commandBuffer] blitCommandEncoder] retain];
    [pool drain];
    CHECK(softmetal_live_objects("MTLCommandBuffer") == 1);
    [blit endEncoding];
    [blit release];
    CHECK(softmetal_live_objects("MTLCommandBuffer") == 0);
}

/* ---- wrong use: each case starts from an open command buffer, with an open encoder ---- */

struct scene {
    id<MTLBuffer> buffer;
    id<MTLCommandBuffer> commands;
    id<MTLBlitCommandEncoder> blit;
};

static struct scene
open_scene(void)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    return (struct scene){make_buffer(64, 0), commands, [commands blitCommandEncoder]};
}

static void
fill(BOOL is_of_nil, NSUInteger start, NSUInteger length)
{
    struct scene scene = open_scene();
    [scene.blit fillBuffer:is_of_nil ? nil : scene.buffer
                     range:NSMakeRange(start, length)
                     value:0];
    [scene.blit endEncoding];
}

static void
copy(NSUInteger from, NSUInteger to, NSUInteger size, BOOL is_onto_itself)
{
    struct scene scene = open_scene();
    [scene.blit copyFromBuffer:scene.buffer
                  sourceOffset:from
                      toBuffer:is_onto_itself ? scene.buffer : make_buffer(64, 0)
             destinationOffset:to
                          size:size];
    [scene.blit endEncoding];
}

REPORTS_BY("blit-range", a_copy_past_the_end_of_its_source, copy(60, 0, 8, YES))
REPORTS_BY("blit-range", a_fill_whose_end_overflows, fill(NO, NSUIntegerMax - 3, 8))
REPORTS_BY("blit-range", a_copy_onto_itself, copy(0, 4, 8, YES))
REPORTS_BY("blit-range", a_copy_backwards_onto_itself, copy(4, 0, 8, YES))

CASE(copies_inside_of_a_buffer_may_touch)
{
    copy(0, 32, 32, YES);
    copy(32, 0, 32, YES);
}

REPORTS_BY("blit-alignment", a_fill_from_an_odd_place, fill(NO, 2, 8))
REPORTS_BY("blit-alignment", a_copy_from_an_odd_place, copy(1, 0, 8, NO))
REPORTS_BY("blit-alignment", a_copy_to_an_odd_place, copy(0, 3, 8, NO))
REPORTS_BY("blit-alignment", a_copy_of_an_odd_size, copy(0, 4, 6, NO))
REPORTS_BY("blit-alignment", a_fill_of_three_bytes, fill(NO, 0, 3))
REPORTS_BY("argument", a_blit_of_nil, fill(YES, 0, 4))

REPORTS("set-bytes", setting_more_than_4096_bytes)
{
    char bytes[4097] = {0};
    id<MTLComputeCommandEncoder> compute = [[open_queue() commandBuffer] computeCommandEncoder];
    [compute setBytes:bytes length:4096 atIndex:0];
    [compute setBytes:bytes length:4097 atIndex:0];
    [compute endEncoding];
}

REPORTS("second-encoder", a_second_encoder_on_one_command_buffer)
{
    struct scene scene = open_scene();
    CHECK([scene.commands blitCommandEncoder] == nil);
    [scene.blit endEncoding];
}

REPORTS("second-encoder", an_event_inside_of_an_encoder)
{
    struct scene scene = open_scene();
    [scene.commands encodeSignalEvent:open_event() value:1];
    [scene.blit endEncoding];
}

REPORTS("no-end-encoding", an_encoder_released_without_end_encoding)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    [commands blitCommandEncoder];
    [pool drain];
    finish(commands); /* no encoder is open any more */
    CHECK([commands status] == MTLCommandBufferStatusCompleted);
}

REPORTS("encoder-state", encoding_after_end_encoding)
{
    struct scene scene = open_scene();
    [scene.blit endEncoding];
    [scene.blit fillBuffer:scene.buffer range:NSMakeRange(0, 64) value:1];
    finish(scene.commands);
    CHECK(((char *)[scene.buffer contents])[0] == 0);
}

REPORTS("encoder-state", ending_an_encoder_twice)
{
    struct scene scene = open_scene();
    [scene.blit endEncoding];
    [scene.blit endEncoding];
}

REPORTS("commit", a_commit_while_encoding)
{
    struct scene scene = open_scene();
    [scene.commands commit];
    CHECK([scene.commands status] == MTLCommandBufferStatusNotEnqueued);
    [scene.blit endEncoding];
}

REPORTS("commit", a_second_commit)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    [commands commit];
    finish(commands);
}

REPORTS("commit", an_encoder_after_commit)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    [commands commit];
    CHECK([commands blitCommandEncoder] == nil);
}

REPORTS("commit", a_handler_after_commit)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    struct note note = {0};
    [commands commit];
    [commands addCompletedHandler:(const void *)BLOCK(take_note, &note)];
    [commands waitUntilCompleted];
    CHECK(note.count == 0);
}

REPORTS_BY("commit", a_wait_before_commit, [[open_queue() commandBuffer] waitUntilCompleted])

REPORTS("purgeable-at-commit", a_commit_with_a_volatile_buffer)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    id<MTLBuffer> buffer = make_buffer(64, 0);
    encode_fill(commands, buffer, 1);
    [buffer setPurgeableState:MTLPurgeableStateVolatile];
    finish(commands);
    CHECK([[commands error] code] == MTLCommandBufferErrorInvalidResource);
}

/* ---- names, and what they are for ---- */

static NSArray *
infos_of(id<MTLCommandBuffer> commands)
{
    return [[[commands error] userInfo] objectForKey:MTLCommandBufferEncoderInfoErrorKey];
}

static id<MTLCommandBuffer>
fail_with_two_encoders(MTLCommandBufferErrorOption option)
{
    MTLCommandBufferDescriptor *descriptor =
        [[[MTLCommandBufferDescriptor alloc] init] autorelease];
    [descriptor setErrorOptions:option];
    softmetal_set("SOFTMETAL_FAIL", "commit=Internal");
    id<MTLCommandBuffer> commands = [open_queue() commandBufferWithDescriptor:descriptor];
    const char *const names[] = {"first", "second"};
    for (int i = 0; i < 2; i++) {
        id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
        [blit setLabel:[NSString stringWithUTF8String:names[i]]];
        [blit fillBuffer:make_buffer(64, 0) range:NSMakeRange(0, 64) value:1];
        [blit endEncoding];
    }
    finish(commands);
    softmetal_set("SOFTMETAL_FAIL", NULL);
    return commands;
}

CASE(an_error_tells_of_encoders_where_a_descriptor_asks_for_it)
{
    NSArray *infos =
        infos_of(fail_with_two_encoders(MTLCommandBufferErrorOptionEncoderExecutionStatus));
    CHECK([infos count] == 2);
    id<MTLCommandBufferEncoderInfo> first = [infos objectAtIndex:0];
    id<MTLCommandBufferEncoderInfo> second = [infos objectAtIndex:1];
    CHECK(strcmp([[first label] UTF8String], "first") == 0);
    CHECK([first errorState] == MTLCommandEncoderErrorStateFaulted);
    CHECK(strcmp([[second label] UTF8String], "second") == 0);
    CHECK([second errorState] == MTLCommandEncoderErrorStatePending);
    CHECK(infos_of(fail_with_two_encoders(MTLCommandBufferErrorOptionNone)) == nil);
}
