/* events.m: shared events between queues, threads and devices. */
#import "check.h"

#include <time.h>

CASE(a_value_only_grows)
{
    id<MTLDevice> device = open_device();
    id<MTLSharedEvent> event = open_event();
    CHECK([event signaledValue] == 0 && [event device] == device);
    [event setSignaledValue:5];
    [event setSignaledValue:3];
    CHECK([event signaledValue] == 5);
}

CASE(the_cpu_waits_until_the_time_is_up)
{
    id<MTLSharedEvent> event = open_event();
    clock_t before = clock();
    CHECK(![event waitUntilSignaledValue:1 timeoutMS:200]);
    CHECK(clock() - before < CLOCKS_PER_SEC / 50); /* asleep, whatever the time of day */
    CHECK(![event waitUntilSignaledValue:1 timeoutMS:0]);
    [event setSignaledValue:2];
    CHECK([event waitUntilSignaledValue:1 timeoutMS:0]);
    CHECK([event waitUntilSignaledValue:2 timeoutMS:UINT64_MAX]);
}

CASE(one_queue_waits_for_another)
{
    softmetal_set("SOFTMETAL_LATENCY_US", "5000");
    id<MTLCommandQueue> one = open_queue(), two = open_queue();
    id<MTLSharedEvent> event = open_event();
    id<MTLBuffer> source = make_bytes("abcdefg", 0);
    id<MTLBuffer> middle = make_buffer(8, MTLResourceStorageModePrivate);
    id<MTLBuffer> result = make_buffer(8, 0);
    id<MTLCommandBuffer> writer = [one commandBuffer], reader = [two commandBuffer];
    [reader encodeWaitForEvent:event value:1];
    encode_copy(reader, middle, result);
    [reader commit];
    [reader waitUntilScheduled];
    usleep(20000); /* time enough to go on without the event */
    CHECK([reader status] == MTLCommandBufferStatusScheduled);
    encode_copy(writer, source, middle);
    [writer encodeSignalEvent:event value:1];
    [writer commit];
    [reader waitUntilCompleted];
    CHECK(memcmp([result contents], "abcdefg", 8) == 0);
}

/* A wait, a fill behind it, and a fill in the next command buffer: does that one come first?
 * And a copy, in a third, of what the first one fills. */
static void
race_past_a_wait(const char *scope, BOOL passes)
{
    CHECK(softmetal_set("SOFTMETAL_WAIT_SCOPE", scope) == 0);
    id<MTLCommandQueue> queue = open_queue();
    id<MTLSharedEvent> gate = open_event(), done = open_event();
    id<MTLBuffer> one = make_buffer(8, 0);
    id<MTLBuffer> two = make_buffer(8, 0);
    id<MTLBuffer> copied = make_buffer(8, 0);
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
    id<MTLCommandBuffer> third = [queue commandBuffer];
    [first encodeWaitForEvent:gate value:1];
    encode_fill(first, one, 1);
    [first commit];
    encode_fill(second, two, 2);
    [second encodeSignalEvent:done value:1];
    [second commit];
    encode_copy(third, one, copied);
    [third commit];
    CHECK([done waitUntilSignaledValue:1 timeoutMS:passes ? 10000 : 20] == passes);
    [gate setSignaledValue:1];
    [third waitUntilCompleted];
    [second waitUntilCompleted];
    CHECK(*(char *)[copied contents] == 1 && *(char *)[two contents] == 2);
}

CASE(a_wait_holds_back_the_queue_or_its_own_command_buffer)
{
    race_past_a_wait("queue", NO);
    race_past_a_wait("commands", YES);
    softmetal_set("SOFTMETAL_SEED", "last");
    race_past_a_wait("commands", YES);
    CHECK(softmetal_set("SOFTMETAL_WAIT_SCOPE", "pass") < 0);
}

CASE(the_cpu_lets_a_queue_go_on)
{
    id<MTLSharedEvent> event = open_event();
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    [commands encodeWaitForEvent:event value:3];
    [commands encodeSignalEvent:event value:4];
    [commands commit];
    CHECK(![event waitUntilSignaledValue:4 timeoutMS:20]);
    [event setSignaledValue:3];
    CHECK([event waitUntilSignaledValue:4 timeoutMS:10000]);
}

CASE(a_queue_that_waits_holds_up_only_itself)
{
    id<MTLCommandQueue> one = open_queue(), two = open_queue();
    id<MTLSharedEvent> event = open_event();
    id<MTLCommandBuffer> blocked = [one commandBuffer], behind = [one commandBuffer];
    id<MTLCommandBuffer> elsewhere = [two commandBuffer];
    [blocked encodeWaitForEvent:event value:1];
    [blocked commit];
    [behind commit];
    finish(elsewhere);
    CHECK([behind status] < MTLCommandBufferStatusCompleted);
    [event setSignaledValue:1];
    [behind waitUntilCompleted];
}

CASE(a_shared_event_reaches_another_device)
{
    softmetal_set("SOFTMETAL_DEVICES", "unified,discrete");
    NSArray *devices = MTLCopyAllDevices();
    CHECK([devices count] == 2);
    id<MTLDevice> first = [devices objectAtIndex:0], second = [devices objectAtIndex:1];
    CHECK([first hasUnifiedMemory] && ![second hasUnifiedMemory]);
    CHECK([first registryID] != [second registryID]);
    id<MTLSharedEvent> event = [[first newSharedEvent] autorelease];
    id<MTLCommandQueue> one = [[first newCommandQueue] autorelease],
                        two = [[second newCommandQueue] autorelease];
    id<MTLCommandBuffer> waiter = [two commandBuffer], signaler = [one commandBuffer];
    [waiter encodeWaitForEvent:event value:1];
    [waiter commit];
    [signaler encodeSignalEvent:event value:1];
    [signaler commit];
    [waiter waitUntilCompleted];
    [devices release];
}

CASE(a_wait_that_takes_too_long_ends_with_a_timeout)
{
    softmetal_set("SOFTMETAL_EVENT_TIMEOUT_MS", "30");
    id<MTLCommandQueue> queue = open_queue();
    id<MTLSharedEvent> event = open_event();
    id<MTLCommandBuffer> commands = [queue commandBuffer], next = [queue commandBuffer];
    [commands encodeWaitForEvent:event value:1];
    [commands commit];
    [next commit];
    [commands waitUntilCompleted];
    CHECK([[commands error] code] == MTLCommandBufferErrorTimeout);
    [next waitUntilCompleted];
    CHECK([next error] == nil);
}

static id<MTLSharedEvent> awaited;

static void
ask_once_more(void)
{
    [awaited waitUntilSignaledValue:1 timeoutMS:1]; /* hangs if a lock is still held */
}

__attribute__((constructor)) static void
ask_at_exit(void)
{
    atexit(ask_once_more); /* first, so it runs last: after what the software Metal does */
}

CASE(a_process_may_exit_while_a_queue_waits)
{
    awaited = open_event();
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    [commands encodeWaitForEvent:awaited value:1];
    [commands commit];
    [commands waitUntilScheduled];
    exit(0);
}

CASE(a_process_may_exit_while_the_gpu_is_slow)
{
    softmetal_set("SOFTMETAL_LATENCY_US", "30000000");
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    [commands commit];
    [commands waitUntilScheduled];
    exit(0);
}

REPORTS_BY("argument", waiting_for_nil,
           [[open_queue() commandBuffer] encodeWaitForEvent:nil value:1])

REPORTS("argument", a_buffer_of_another_device)
{
    softmetal_set("SOFTMETAL_DEVICES", "unified,unified");
    NSArray *devices = MTLCopyAllDevices();
    id<MTLBuffer> buffer = [[[devices objectAtIndex:0] newBufferWithLength:8
                                                                   options:0] autorelease];
    id<MTLCommandQueue> queue = [[[devices objectAtIndex:1] newCommandQueue] autorelease];
    encode_fill([queue commandBuffer], buffer, 1);
    [devices release];
}

static void
exit_now(struct block *block, id<MTLCommandBuffer> commands)
{
    (void)block;
    (void)commands;
    exit(0);
}

CASE(a_handler_may_end_the_process)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    [commands addCompletedHandler:(const void *)BLOCK(exit_now, NULL)];
    [commands commit];
    sleep(20);
    exit(1);
}
