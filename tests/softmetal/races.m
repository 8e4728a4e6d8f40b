/* races.m: uses of the same bytes that nothing orders, and all that orders them. */
#import "check.h"

#define SIZE 64

/* Two queues, and two buffers with zeros. */
struct scene {
    id<MTLCommandQueue> queue, other;
    id<MTLBuffer> buffer, second;
    id<MTLSharedEvent> event;
};

static struct scene
open_scene(MTLResourceOptions options)
{
    return (struct scene){open_queue(), open_queue(), make_buffer(SIZE, options),
                          make_buffer(SIZE, options), open_event()};
}

static id<MTLCommandBuffer>
commit_fill(id<MTLCommandQueue> queue, id<MTLBuffer> buffer)
{
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    encode_fill(commands, buffer, 1);
    [commands commit];
    return commands;
}

static void
commit_copy(struct scene scene)
{
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    encode_copy(commands, scene.buffer, scene.second);
    [commands commit];
}

static void
read_bytes(id<MTLBuffer> buffer)
{
    softmetal_host_access(buffer, 0, SIZE, 0);
}

static void
write_bytes(id<MTLBuffer> buffer)
{
    softmetal_host_access(buffer, 0, SIZE, 1);
}

/* ---- the CPU and one queue ---- */

REPORTS("race", the_cpu_reads_what_the_gpu_writes)
{
    struct scene scene = open_scene(0);
    commit_fill(scene.queue, scene.buffer);
    read_bytes(scene.buffer);
}

REPORTS("race", the_cpu_writes_what_the_gpu_reads)
{
    struct scene scene = open_scene(0);
    commit_copy(scene);
    write_bytes(scene.buffer);
}

REPORTS("race", the_gpu_is_done_but_nobody_has_waited)
{
    struct scene scene = open_scene(0);
    commit_fill(scene.queue, scene.buffer);
    usleep(100000);
    read_bytes(scene.buffer);
}

REPORTS("race", the_cpu_waits_for_the_command_buffer_before)
{
    struct scene scene = open_scene(0);
    id<MTLCommandBuffer> before = commit_fill(scene.queue, scene.second);
    commit_fill(scene.queue, scene.buffer);
    [before waitUntilCompleted];
    read_bytes(scene.buffer);
}

CASE(commit_and_completion_order_the_cpu_and_a_queue)
{
    struct scene scene = open_scene(0);
    write_bytes(scene.buffer);
    [commit_fill(scene.queue, scene.buffer) waitUntilCompleted];
    write_bytes(scene.buffer);
    id<MTLCommandBuffer> commands = commit_fill(scene.queue, scene.buffer);
    while ([commands status] != MTLCommandBufferStatusCompleted) {
        usleep(100);
    }
    read_bytes(scene.buffer);
}

CASE(reads_and_ranges_that_do_not_meet_are_no_race)
{
    struct scene scene = open_scene(0);
    id<MTLCommandBuffer> one = [scene.queue commandBuffer], two = [scene.other commandBuffer];
    encode_fill_part(one, scene.buffer, NSMakeRange(0, 16), 1);
    encode_fill_part(two, scene.buffer, NSMakeRange(16, 16), 1);
    [one commit];
    [two commit];
    softmetal_host_access(scene.buffer, 32, 32, 1);
    CHECK(softmetal_wait_idle(10000));
    one = [scene.queue commandBuffer], two = [scene.other commandBuffer];
    id<MTLBuffer> third = make_buffer(SIZE, 0);
    encode_copy(one, scene.buffer, scene.second);
    encode_copy(two, scene.buffer, third);
    [one commit];
    [two commit];
    read_bytes(scene.buffer);
}

REPORTS("race", one_byte_of_two_ranges)
{
    struct scene scene = open_scene(0);
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    encode_fill_part(commands, scene.buffer, NSMakeRange(0, 16), 1);
    [commands commit];
    softmetal_host_access(scene.buffer, 15, 8, 0);
}

/* ---- two queues ---- */

REPORTS("race", two_queues_write_without_an_event)
{
    struct scene scene = open_scene(0);
    commit_fill(scene.queue, scene.buffer);
    commit_fill(scene.other, scene.buffer);
}

static void
fill_signal_wait_copy(struct scene scene, uint64_t awaited)
{
    id<MTLCommandBuffer> writer = [scene.queue commandBuffer];
    [writer encodeSignalEvent:scene.event value:1];
    encode_fill(writer, scene.buffer, 1);
    [writer encodeSignalEvent:scene.event value:2];
    [writer commit];
    id<MTLCommandBuffer> reader = [scene.other commandBuffer];
    [reader encodeWaitForEvent:scene.event value:awaited];
    encode_copy(reader, scene.buffer, scene.second);
    [reader commit];
}

CASE(an_event_orders_two_queues)
{
    struct scene scene = open_scene(0);
    fill_signal_wait_copy(scene, 2);
}

REPORTS("race", a_wait_for_a_value_that_comes_too_early)
{
    struct scene scene = open_scene(0);
    fill_signal_wait_copy(scene, 1);
}

CASE(order_is_passed_on_from_queue_to_queue_to_the_cpu)
{
    struct scene scene = open_scene(0);
    fill_signal_wait_copy(scene, 2);
    finish([scene.other commandBuffer]);
    write_bytes(scene.buffer);
    write_bytes(scene.second);
}

REPORTS("race", what_comes_after_a_signal_is_not_awaited)
{
    struct scene scene = open_scene(0);
    id<MTLCommandBuffer> writer = [scene.queue commandBuffer];
    [writer encodeSignalEvent:scene.event value:1];
    encode_fill(writer, scene.buffer, 1);
    [writer commit];
    CHECK([scene.event waitUntilSignaledValue:1 timeoutMS:10000]);
    read_bytes(scene.buffer);
}

CASE(the_cpu_signals_and_awaits_events)
{
    struct scene scene = open_scene(0);
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    [commands encodeWaitForEvent:scene.event value:1];
    encode_fill(commands, scene.buffer, 1);
    [commands encodeSignalEvent:scene.event value:2];
    [commands commit];
    write_bytes(scene.buffer);
    [scene.event setSignaledValue:1];
    CHECK([scene.event waitUntilSignaledValue:2 timeoutMS:10000]);
    read_bytes(scene.buffer);
}

/* ---- one queue ---- */

/* What orders the passes of a queue: order.m, with the detector on. */
REPORTS("race", untracked_buffers_order_nothing)
{
    struct scene scene = open_scene(MTLResourceHazardTrackingModeUntracked);
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    encode_fill(commands, scene.buffer, 1);
    encode_copy(commands, scene.buffer, scene.second);
    [commands commit];
}

CASE(commands_of_one_encoder_are_in_order)
{
    struct scene scene = open_scene(MTLResourceHazardTrackingModeUntracked);
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit fillBuffer:scene.buffer range:NSMakeRange(0, SIZE) value:1];
    [blit fillBuffer:scene.buffer range:NSMakeRange(0, SIZE) value:2];
    [blit endEncoding];
    [commands commit];
}

CASE(a_tracked_buffer_orders_untracked_ones_along_with_it)
{
    struct scene scene = open_scene(MTLResourceHazardTrackingModeUntracked);
    id<MTLBuffer> tracked = make_buffer(SIZE, 0);
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit fillBuffer:scene.buffer range:NSMakeRange(0, SIZE) value:1];
    [blit fillBuffer:tracked range:NSMakeRange(0, SIZE) value:1];
    [blit endEncoding];
    encode_fill(commands, tracked, 1);
    blit = [commands blitCommandEncoder];
    [blit fillBuffer:tracked range:NSMakeRange(0, SIZE) value:1];
    [blit fillBuffer:scene.buffer range:NSMakeRange(0, SIZE) value:2];
    [blit endEncoding];
    [commands commit];
}

/* ---- order that a program keeps by means of its own ---- */

struct note {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_done;
    id<MTLBuffer> buffer; /* told of, or nil */
};

static void
take_note(struct block *block, id<MTLCommandBuffer> commands)
{
    (void)commands;
    struct note *note = block->context;
    pthread_mutex_lock(&note->lock);
    if (note->buffer != nil) {
        softmetal_host_release(note->buffer);
    }
    note->is_done = 1;
    pthread_cond_signal(&note->changed);
    pthread_mutex_unlock(&note->lock);
}

static void
wait_by_handler(struct scene scene, BOOL tells)
{
    struct note note = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0,
                        tells ? scene.buffer : nil};
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    encode_fill(commands, scene.buffer, 1);
    [commands addCompletedHandler:(const void *)BLOCK(take_note, &note)];
    [commands commit];
    pthread_mutex_lock(&note.lock);
    while (!note.is_done) {
        pthread_cond_wait(&note.changed, &note.lock);
    }
    softmetal_host_acquire(scene.buffer);
    pthread_mutex_unlock(&note.lock);
    read_bytes(scene.buffer);
    CHECK(softmetal_wait_idle(10000));
}

CASE(what_a_handler_knows_is_passed_on_by_release_and_acquire)
{
    struct scene scene = open_scene(0);
    wait_by_handler(scene, YES);
}

REPORTS("race", a_handler_that_tells_nobody)
{
    struct scene scene = open_scene(0);
    wait_by_handler(scene, NO);
}

static void
read_in_handler(struct block *block, id<MTLCommandBuffer> commands)
{
    (void)commands;
    read_bytes((id<MTLBuffer>)block->context);
}

REPORTS("race", a_scheduled_handler_does_not_know_of_the_command_buffer_before)
{
    struct scene scene = open_scene(0);
    commit_fill(scene.queue, scene.buffer);
    id<MTLCommandBuffer> next = [scene.queue commandBuffer];
    [next addScheduledHandler:(const void *)BLOCK(read_in_handler, scene.buffer)];
    finish(next);
}

CASE(an_event_that_the_program_has_seen_by_itself)
{
    struct scene scene = open_scene(0);
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    encode_fill(commands, scene.buffer, 1);
    [commands encodeSignalEvent:scene.event value:1];
    [commands commit];
    usleep(50000);
    softmetal_host_reached(scene.event, 1);
    read_bytes(scene.buffer);
}

/* ---- what is kept stays small ---- */

CASE(long_programs_over_many_queues_and_values)
{
    struct scene scene = open_scene(0);
    for (uint64_t round = 1; round <= 300; round++) {
        NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
        id<MTLCommandQueue> queue = [open_device() newCommandQueue];
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        [commands encodeWaitForEvent:scene.event value:round - 1];
        for (NSUInteger start = 0; start + 4 <= SIZE; start += 8) {
            encode_fill_part(commands, scene.buffer, NSMakeRange(start, 4), 1);
        }
        [commands encodeSignalEvent:scene.event value:round];
        [commands commit];
        [queue release];
        [pool drain];
    }
    CHECK([scene.event waitUntilSignaledValue:300 timeoutMS:10000]);
    write_bytes(scene.buffer);
}

CASE(races_are_not_looked_for_if_the_setting_says_so)
{
    CHECK(softmetal_set("SOFTMETAL_RACES", "0") == 0);
    struct scene scene = open_scene(0);
    commit_fill(scene.queue, scene.buffer);
    read_bytes(scene.buffer);
}

/* ---- what a kernel reaches ---- */

static void
touch_nothing(void *const *arguments, const size_t grid[3])
{
    (void)arguments, (void)grid;
}

static id<MTLCommandBuffer>
commit_use(struct scene scene, MTLResourceUsage usage)
{
    CHECK(softmetal_register_kernel("reach", touch_nothing, 0) == 0);
    id<MTLDevice> device = [scene.queue device];
    id<MTLLibrary> library = [device newLibraryWithSource:text_of("reach")
                                                  options:nil
                                                    error:NULL];
    id<MTLFunction> function = [library newFunctionWithName:text_of("reach")];
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    id<MTLComputeCommandEncoder> compute = [commands computeCommandEncoder];
    [compute setComputePipelineState:[[device newComputePipelineStateWithFunction:function
                                                                            error:NULL]
                                         autorelease]];
    [compute useResource:scene.buffer usage:usage];
    dispatch(compute, 1);
    [compute endEncoding];
    [commands commit];
    [function release];
    [library release];
    return commands;
}

/* The CPU may read meanwhile what the kernel reads, and not write it. */
REPORTS("race", a_resource_counts_as_its_usage_says)
{
    struct scene scene = open_scene(0);
    id<MTLCommandBuffer> commands = commit_use(scene, MTLResourceUsageRead);
    CHECK([scene.buffer gpuAddress] == (uint64_t)(uintptr_t)[scene.buffer contents]);
    read_bytes(scene.buffer);
    CHECK(softmetal_reports("race") == 0);
    write_bytes(scene.buffer);
    [commands waitUntilCompleted];
}

REPORTS("race", the_cpu_reads_a_resource_that_a_kernel_may_write)
{
    struct scene scene = open_scene(0);
    id<MTLCommandBuffer> commands =
        commit_use(scene, MTLResourceUsageRead | MTLResourceUsageWrite);
    read_bytes(scene.buffer);
    [commands waitUntilCompleted];
}

REPORTS("argument", a_resource_of_no_usage)
{
    [commit_use(open_scene(0), 0) waitUntilCompleted];
}
