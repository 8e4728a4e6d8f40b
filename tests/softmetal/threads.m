/* threads.m: many threads at once; a thread sanitizer watches. */
#import "check.h"

#include <dirent.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 100

static id<MTLDevice> device;
static id<MTLCommandQueue> shared_queue;

static void
share_queue(void *(*run)(void *))
{
    device = open_device();
    shared_queue = open_queue();
    run_threads(THREADS, run);
}

/* From a queue of its own through private memory, over an event, to the queue of all. */
static void *
pass_bytes_on(void *argument)
{
    long number = (long)argument;
    id<MTLCommandQueue> own_queue = [device newCommandQueue];
    id<MTLSharedEvent> event = [device newSharedEvent];
    for (int round = 1; round <= ROUNDS; round++) {
        NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
        id<MTLBuffer> hidden = [device newBufferWithLength:4096
                                                   options:MTLResourceStorageModePrivate];
        id<MTLBuffer> result = [device newBufferWithLength:4096
                                                   options:MTLResourceStorageModeShared];
        id<MTLCommandBuffer> writer = [own_queue commandBuffer];
        encode_fill(writer, hidden, (uint8_t)(round + number * 31));
        [writer encodeSignalEvent:event value:(uint64_t)round];
        id<MTLCommandBuffer> reader = [shared_queue commandBuffer];
        [reader encodeWaitForEvent:event value:(uint64_t)round];
        encode_copy(reader, hidden, result);
        [writer commit];
        [reader commit];
        [hidden release];
        [reader waitUntilCompleted];
        const unsigned char *bytes = [result contents];
        CHECK(bytes[0] == (uint8_t)(round + number * 31) && bytes[4095] == bytes[0]);
        [result release];
        [pool drain];
    }
    [event release];
    [own_queue release];
    return NULL;
}

CASE(four_threads_pass_bytes_between_queues)
{
    share_queue(pass_bytes_on);
}

CASE(four_threads_pass_bytes_under_a_seed)
{
    softmetal_set("SOFTMETAL_SEED", "7");
    share_queue(pass_bytes_on);
}

static void
count_one(const char *class_name, const void *object, long retain_count, const char *site,
          void *context)
{
    *(size_t *)context +=
        class_name != NULL && object != NULL && retain_count > 0 && site != NULL;
}

static void *
come_and_go(void *argument)
{
    (void)argument;
    for (int round = 0; round < ROUNDS; round++) {
        NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
        id<MTLDevice> again = MTLCreateSystemDefaultDevice();
        CHECK(again == device);
        id<MTLCommandBuffer> commands = [shared_queue commandBuffer];
        [shared_queue setLabel:[NSString stringWithUTF8String:"busy"]];
        [shared_queue label];
        softmetal_live_objects("MTLBuffer");
        size_t seen = 0;
        softmetal_visit_live_objects("MTLCommandBuffer", count_one, &seen);
        CHECK(seen >= 1);
        [commands commit];
        [again release];
        [pool drain];
    }
    return NULL;
}

CASE(four_threads_come_and_go)
{
    share_queue(come_and_go);
}

static void *
open_and_close(void *argument)
{
    (void)argument;
    for (int round = 0; round < 300; round++) {
        id<MTLDevice> one = MTLCreateSystemDefaultDevice();
        id<MTLDevice> again = MTLCreateSystemDefaultDevice();
        CHECK(one != nil && one == again);
        [one release];
        [again release];
    }
    return NULL;
}

static int
count_threads(void)
{
    int count = -2; /* "." and ".." */
    DIR *folder = opendir("/proc/self/task");
    while (readdir(folder) != NULL) {
        count += 1;
    }
    closedir(folder);
    return count;
}

CASE(the_thread_of_a_queue_ends_with_it)
{
    device = open_device();
    run_threads(1, open_and_close); /* a sanitizer has a thread of its own from the first on */
    usleep(50000);                  /* the joined one is gone */
    int before = count_threads();
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands commit];
    [commands waitUntilCompleted];
    CHECK(count_threads() > before);
    [pool drain];
    usleep(50000); /* the worker waits for more */
    [queue release];
    for (int tries = 0; count_threads() > before && tries < 10000; tries++) {
        usleep(1000);
    }
    CHECK(count_threads() <= before);
}

CASE(the_last_owner_of_a_device_may_meet_its_next_one)
{
    run_threads(THREADS, open_and_close);
}
