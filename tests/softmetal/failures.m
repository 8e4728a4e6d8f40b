/* failures.m: calls and command buffers that fail on demand, limits, and forks. */
#import "check.h"

#include <objc/runtime.h>

FIRST_CASE(the_rules_of_the_environment_count_the_very_first_call)
{
    NSUInteger expected = getenv("SOFTMETAL_FAIL") == NULL; /* else device@1 fails */
    NSArray *devices = MTLCopyAllDevices();
    CHECK([devices count] == expected);
    [devices release];
}

CASE(the_nth_buffer_fails_and_no_other)
{
    id<MTLDevice> device = open_device();
    CHECK(softmetal_set("SOFTMETAL_FAIL", "buffer@3") == 0);
    for (int call = 1; call <= 5; call++) {
        id<MTLBuffer> buffer = [device newBufferWithLength:8 options:0];
        CHECK((buffer == nil) == (call == 3));
        [buffer release];
    }
    CHECK(softmetal_set("SOFTMETAL_FAIL", "buffer@2+") == 0);
    for (int call = 1; call <= 5; call++) {
        id<MTLBuffer> buffer = [device newBufferWithBytes:"abc" length:4 options:0];
        CHECK((buffer == nil) == (call >= 2));
        [buffer release];
    }
}

CASE(every_kind_of_call_can_fail)
{
    id<MTLDevice> device = open_device();
    id<MTLCommandQueue> queue = open_queue();
    CHECK(softmetal_set("SOFTMETAL_FAIL",
                        "device@1+,buffer,queue,commandBuffer,encoder,event,fence@1") == 0);
    CHECK(MTLCreateSystemDefaultDevice() == nil);
    NSArray *devices = MTLCopyAllDevices();
    CHECK([devices count] == 0);
    [devices release];
    CHECK([device newBufferWithLength:8 options:0] == nil);
    CHECK([device newCommandQueue] == nil);
    CHECK([queue commandBuffer] == nil);
    CHECK([[queue commandBuffer] blitCommandEncoder] == nil);
    CHECK([device newSharedEvent] == nil);
    CHECK([device newFence] == nil);
}

CASE(a_rule_that_is_not_understood_changes_nothing)
{
    CHECK(softmetal_set("SOFTMETAL_FAIL", "buffer@1+") == 0);
    CHECK(softmetal_set("SOFTMETAL_FAIL", "heap@1") == -1);
    CHECK(softmetal_set("SOFTMETAL_FAIL", "buffer@0") == -1);
    CHECK(softmetal_set("SOFTMETAL_FAIL", "buffer@") == -1);
    CHECK(softmetal_set("SOFTMETAL_FAIL", "buffer@1,") == -1);
    CHECK(softmetal_set("SOFTMETAL_FAIL", ",buffer") == -1);
    CHECK(softmetal_set("SOFTMETAL_FAIL", "commit=99") == -1);
    CHECK(softmetal_set("SOFTMETAL_FAIL", "commit=Melted") == -1);
    CHECK(softmetal_set("SOFTMETAL_SEED", "first") == -1);
    CHECK(softmetal_set("SOFTMETAL_DEVICES", "unified,") == -1);
    CHECK(softmetal_set("SOFTMETAL_DEVICES", "paravirtual,virtual") == -1);
    CHECK(softmetal_set("SOFTMETAL_QUEUE_DEPTH", "12T") == -1);
    CHECK(softmetal_set("SOFTMETAL_QUEUE_DEPTH", "+12") == -1);
    CHECK(softmetal_set("SOFTMETAL_NOTHING", "1") == -1);
    id<MTLDevice> device = open_device();
    CHECK([device newBufferWithLength:8 options:0] == nil);
    CHECK(softmetal_set("SOFTMETAL_FAIL", NULL) == 0);
    id<MTLBuffer> buffer = make_buffer(8, 0);
    CHECK(buffer != nil);
}

static void
expect_code(id<MTLDevice> device, id<MTLCommandQueue> queue, const char *rule, NSInteger code)
{
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    CHECK(softmetal_set("SOFTMETAL_FAIL", NULL) == 0);
    id<MTLBuffer> buffer = [device newBufferWithLength:8 options:0];
    id<MTLSharedEvent> event = [device newSharedEvent];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    CHECK(softmetal_set("SOFTMETAL_FAIL", rule) == 0);
    encode_fill(commands, buffer, 1);
    [commands encodeSignalEvent:event value:1];
    finish(commands);
    CHECK([commands status] == MTLCommandBufferStatusError);
    CHECK([[commands error] code] == code);
    CHECK([[[commands error] domain] isEqual:MTLCommandBufferErrorDomain]);
    CHECK([[[commands error] localizedDescription] length] > 0);
    CHECK(((char *)[buffer contents])[0] == 0);
    CHECK([event signaledValue] == 0);
    [event release];
    [buffer release];
    [pool drain];
}

CASE(each_error_code_can_be_injected)
{
    id<MTLDevice> device = open_device();
    id<MTLCommandQueue> queue = open_queue();
    expect_code(device, queue, "commit", MTLCommandBufferErrorInternal);
    expect_code(device, queue, "commit@1=Timeout", MTLCommandBufferErrorTimeout);
    expect_code(device, queue, "commit@1=PageFault", MTLCommandBufferErrorPageFault);
    expect_code(device, queue, "commit=4", MTLCommandBufferErrorAccessRevoked);
    expect_code(device, queue, "commit=NotPermitted", MTLCommandBufferErrorNotPermitted);
    expect_code(device, queue, "commit=OutOfMemory", MTLCommandBufferErrorOutOfMemory);
    expect_code(device, queue, "commit=InvalidResource", MTLCommandBufferErrorInvalidResource);
    expect_code(device, queue, "commit=Memoryless", MTLCommandBufferErrorMemoryless);
    expect_code(device, queue, "commit=DeviceRemoved", MTLCommandBufferErrorDeviceRemoved);
    expect_code(device, queue, "commit=12", MTLCommandBufferErrorStackOverflow);
}

/* The code with which a command buffer ends that does nothing; 0: it completes. */
static long
code_of_nothing(id<MTLCommandQueue> queue)
{
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    finish(commands);
    long code = [[commands error] code];
    [pool drain];
    return code;
}

CASE(a_queue_may_ignore_what_comes_after_an_error)
{
    id<MTLCommandQueue> queue = open_queue(), other = open_queue();
    CHECK(softmetal_set("SOFTMETAL_FAIL", "commit=Timeout") == 0);
    CHECK(code_of_nothing(queue) == MTLCommandBufferErrorTimeout);
    CHECK(code_of_nothing(queue) == 0);
    CHECK(softmetal_set("SOFTMETAL_AFTER_ERROR", "ignored") == 0);
    CHECK(softmetal_set("SOFTMETAL_FAIL", "commit=OutOfMemory,commit@3=PageFault") == 0);
    CHECK(code_of_nothing(queue) == MTLCommandBufferErrorOutOfMemory);
    CHECK(code_of_nothing(queue) == 0);
    CHECK(code_of_nothing(queue) == MTLCommandBufferErrorPageFault);
    CHECK(code_of_nothing(queue) == MTLCommandBufferErrorAccessRevoked);
    CHECK(code_of_nothing(queue) == MTLCommandBufferErrorAccessRevoked);
    CHECK(code_of_nothing(other) == 0);
    CHECK(softmetal_set("SOFTMETAL_AFTER_ERROR", "works") == 0);
}

CASE(a_removed_device_makes_nothing_more)
{
    id<MTLDevice> device = open_device();
    id<MTLCommandQueue> queue = open_queue();
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
    softmetal_set("SOFTMETAL_FAIL", "commit@1=DeviceRemoved");
    finish(first);
    finish(second);
    CHECK([[second error] code] == MTLCommandBufferErrorDeviceRemoved);
    CHECK([device newBufferWithLength:8 options:0] == nil);
    CHECK([queue commandBuffer] == nil);
    CHECK(MTLCreateSystemDefaultDevice() == nil);
    softmetal_set("SOFTMETAL_FAIL", NULL);
    CHECK([queue commandBuffer] != nil);
}

CASE(a_failed_command_buffer_may_signal_if_the_setting_says_so)
{
    softmetal_set("SOFTMETAL_SIGNAL_ON_ERROR", "1");
    softmetal_set("SOFTMETAL_FAIL", "commit");
    id<MTLSharedEvent> event = open_event();
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    [commands encodeSignalEvent:event value:1];
    [commands commit];
    CHECK([event waitUntilSignaledValue:1 timeoutMS:10000]);
}

CASE(memory_runs_out_where_the_limit_says)
{
    softmetal_set("SOFTMETAL_MEMORY_LIMIT", "1M");
    id<MTLDevice> device = open_device();
    CHECK([device recommendedMaxWorkingSetSize] == 1 << 20);
    id<MTLBuffer> half = make_buffer(1 << 19, 0);
    CHECK(half != nil && [device currentAllocatedSize] == 1 << 19);
    CHECK([device newBufferWithLength:(1 << 19) + 1 options:0] == nil);
    CHECK([device currentAllocatedSize] == 1 << 19);
    id<MTLBuffer> rest = make_buffer(1 << 19, 0);
    CHECK(rest != nil && [device currentAllocatedSize] == 1 << 20);
    CHECK([device newBufferWithLength:1 options:0] == nil);
}

static id
give_nothing(id self, SEL selector)
{
    (void)self, (void)selector;
    return nil;
}

CASE(where_no_object_can_be_made_its_place_and_its_memory_are_free_again)
{
    softmetal_set("SOFTMETAL_DEADLOCK_MS", "50");
    id<MTLDevice> device = open_device();
    id<MTLCommandQueue> queue =
        [[device newCommandQueueWithMaxCommandBufferCount:1] autorelease];
    static const char *const classes[] = {"SoftMetalCommandBuffer", "SoftMetalBuffer"};
    for (int index = 0; index < 2; index++) {
        Class meta = object_getClass(objc_getClass(classes[index]));
        CHECK(class_addMethod(meta, @selector(alloc), (IMP)give_nothing, "@@:"));
    }
    CHECK([queue commandBuffer] == nil);
    CHECK([queue commandBuffer] == nil && softmetal_reports("deadlock") == 0);
    CHECK([device newBufferWithLength:8 options:0] == nil);
    CHECK([device currentAllocatedSize] == 0);
}

CASE(there_may_be_no_device)
{
    softmetal_set("SOFTMETAL_DEVICES", "none");
    CHECK(MTLCreateSystemDefaultDevice() == nil);
    NSArray *devices = MTLCopyAllDevices();
    CHECK([devices count] == 0);
    [devices release];
}

CASE(one_gpu_is_one_object_while_it_lives)
{
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    id<MTLDevice> again = MTLCreateSystemDefaultDevice();
    NSArray *devices = MTLCopyAllDevices();
    CHECK(device == again && [devices count] == 1 && [devices objectAtIndex:0] == device);
    CHECK([[device name] length] > 0 && [device hasUnifiedMemory]);
    [devices release];
    [device release];
    [again release];
    softmetal_set("SOFTMETAL_DISCRETE", "1");
    device = open_device();
    CHECK(![device hasUnifiedMemory]);
}

CASE(many_objects_of_one_gpu_work_together)
{
    softmetal_set("SOFTMETAL_DEVICE_OBJECTS", "many");
    id<MTLDevice> one = open_device(), two = open_device();
    CHECK(one != two && [one registryID] == [two registryID]);
    id<MTLBuffer> buffer = [[one newBufferWithLength:8 options:0] autorelease];
    id<MTLCommandQueue> queue = [[two newCommandQueue] autorelease];
    CHECK([buffer device] == one && [queue device] == two);
    CHECK([two currentAllocatedSize] == [one currentAllocatedSize]);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    encode_fill(commands, buffer, 1);
    finish(commands);
    CHECK(((char *)[buffer contents])[0] == 1);
}

static void *
commit_later(void *commands)
{
    usleep(30000);
    [(id<MTLCommandBuffer>)commands commit];
    return NULL;
}

CASE(a_full_queue_blocks_until_a_command_buffer_completes)
{
    id<MTLDevice> device = open_device();
    id<MTLCommandQueue> queue =
        [[device newCommandQueueWithMaxCommandBufferCount:2] autorelease];
    id<MTLCommandBuffer> first = [queue commandBuffer];
    [queue commandBuffer];
    pthread_t thread;
    pthread_create(&thread, NULL, commit_later, first);
    CHECK([queue commandBuffer] != nil);
    CHECK([first status] == MTLCommandBufferStatusCompleted);
    pthread_join(thread, NULL);
}

REPORTS("deadlock", a_full_queue_in_which_nothing_completes)
{
    if (getenv("SOFTMETAL_VALIDATION") == NULL) {
        return; /* the same report, which this harness does not expect then */
    }
    softmetal_set("SOFTMETAL_DEADLOCK_MS", "50");
    softmetal_set("SOFTMETAL_QUEUE_DEPTH", "2");
    id<MTLCommandQueue> queue = open_queue();
    [queue commandBuffer];
    [queue commandBuffer];
    CHECK([queue commandBuffer] == nil);
}

REPORTS("deadlock", a_queue_takes_64_command_buffers_unless_it_is_asked_for_more)
{
    if (getenv("SOFTMETAL_VALIDATION") == NULL) {
        return; /* as above */
    }
    softmetal_set("SOFTMETAL_DEADLOCK_MS", "50");
    id<MTLDevice> device = open_device();
    id<MTLCommandQueue> queue = open_queue();
    id<MTLCommandQueue> deeper =
        [[device newCommandQueueWithMaxCommandBufferCount:65] autorelease];
    for (int number = 1; number <= 64; number++) {
        CHECK([queue commandBuffer] != nil && [deeper commandBuffer] != nil);
    }
    CHECK([deeper commandBuffer] != nil);
    CHECK([queue commandBuffer] == nil);
}

struct inheritance {
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLBuffer> buffer;
    id<MTLSharedEvent> event;
    id<MTLCommandBuffer> open, running;
};

static void
use_inherited(void *argument)
{
    struct inheritance *all = argument;
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    CHECK(MTLCreateSystemDefaultDevice() == nil);
    CHECK([all->device newBufferWithLength:8 options:0] == nil);
    CHECK([all->device newCommandQueue] == nil);
    CHECK([all->device newSharedEvent] == nil);
    CHECK([all->queue commandBuffer] == nil);
    CHECK([all->open blitCommandEncoder] == nil);
    [all->open commit];
    [all->open waitUntilCompleted];
    [all->running waitUntilCompleted];
    CHECK([all->running status] == MTLCommandBufferStatusError);
    CHECK([[all->running error] code] == MTLCommandBufferErrorNotPermitted);
    CHECK(![all->event waitUntilSignaledValue:9 timeoutMS:UINT64_MAX]);
    CHECK(((char *)[all->buffer contents])[0] == 'a');
    [pool drain];
}

static void
drop_inherited(void *argument)
{
    struct inheritance *all = argument;
    [all->buffer release];
    [all->event release];
    [all->queue release];
    [all->device release];
    [all->open release];
    [all->running release];
}

static struct inheritance
leave_behind(void)
{
    struct inheritance all;
    softmetal_set("SOFTMETAL_LATENCY_US", "300000");
    all.device = [open_device() retain];
    all.queue = [all.device newCommandQueue];
    all.buffer = [all.device newBufferWithBytes:"abc" length:4 options:0];
    all.event = [all.device newSharedEvent];
    all.open = [[all.queue commandBuffer] retain];
    all.running = [[all.queue commandBuffer] retain];
    [all.running commit];
    [all.running waitUntilScheduled];
    return all;
}

CASE(a_forked_child_can_make_nothing_and_waits_for_nothing)
{
    struct inheritance all = leave_behind();
    CHECK(run_child(use_inherited, &all) == 0);
    [all.running waitUntilCompleted]; /* the parent's work goes on */
    CHECK([all.running error] == nil);
    drop_inherited(&all);
}

CASE(a_forked_child_lets_go_of_everything_in_silence)
{
    struct inheritance all = leave_behind();
    CHECK(run_child(drop_inherited, &all) == 0);
    drop_inherited(&all);
}

static void
make_in_child(void *device)
{
    [(id<MTLDevice>)device newBufferWithLength:8 options:0];
    CHECK(softmetal_reports("fork") == (getenv("SOFTMETAL_VALIDATION") != NULL));
}

CASE(validation_reports_metal_in_a_child)
{
    softmetal_set("SOFTMETAL_VALIDATION_MODE", "log");
    id<MTLDevice> device = open_device();
    CHECK(run_child(make_in_child, device) == 0);
}

static void
ignore(void *argument)
{
    (void)argument;
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    [[NSObject new] release];
    [pool drain];
}

static int stop;

static void *
work_all_the_time(void *device)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
        id<MTLCommandQueue> queue = [(id<MTLDevice>)device newCommandQueue];
        [[queue commandBuffer] commit];
        [queue release];
        [pool drain];
    }
    return NULL;
}

CASE(a_fork_amid_work_leaves_no_lock_taken)
{
    id<MTLDevice> device = open_device();
    pthread_t thread;
    pthread_create(&thread, NULL, work_all_the_time, device);
    for (int round = 0; round < 50; round++) {
        CHECK(run_child(ignore, NULL) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}
