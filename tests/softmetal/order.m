/* order.m: what Metal orders by itself, and what it leaves to fences, barriers and events. */
#import "check.h"

#define TRACKED MTLResourceHazardTrackingModeTracked
#define UNTRACKED MTLResourceHazardTrackingModeUntracked

struct scene {
    id<MTLCommandQueue> queue;
    id<MTLBuffer> one, two, three;
};

static struct scene
open_scene(MTLResourceOptions options)
{
    return (struct scene){open_queue(), make_bytes("111", options), make_bytes("222", options),
                          make_bytes("333", options)};
}

static void
use_seed(int seed)
{
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    softmetal_set("SOFTMETAL_SEED", text);
}

static void
encode_fenced(id<MTLCommandBuffer> commands, id<MTLBuffer> source, id<MTLBuffer> destination,
              id<MTLFence> awaited, id<MTLFence> updated)
{
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    if (awaited != nil) {
        [blit waitForFence:awaited];
    }
    [blit copyFromBuffer:source sourceOffset:0 toBuffer:destination destinationOffset:0 size:4];
    if (updated != nil) {
        [blit updateFence:updated];
    }
    [blit endEncoding];
}

static char
run(id<MTLCommandBuffer> commands, id<MTLBuffer> result)
{
    finish(commands);
    CHECK([commands error] == nil);
    return *(char *)[result contents];
}

/* one -> two, then two -> three: '1' in order, '2' the other way round. */
static char
copy_twice(MTLResourceOptions options, BOOL fenced)
{
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init]; /* few queues are watched */
    struct scene scene = open_scene(options);
    id<MTLFence> fence = fenced ? [[open_device() newFence] autorelease] : nil;
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    encode_fenced(commands, scene.one, scene.two, nil, fence);
    encode_fenced(commands, scene.two, scene.three, fence, nil);
    char result = run(commands, scene.three);
    [pool drain];
    return result;
}

RACES(without_a_seed_everything_runs_as_encoded)
{
    CHECK(copy_twice(TRACKED, NO) == '1');
    CHECK(copy_twice(UNTRACKED, NO) == '1');
}

RACES(the_order_last_swaps_untracked_work_every_time)
{
    softmetal_set("SOFTMETAL_SEED", "last");
    for (int round = 0; round < 20; round++) {
        CHECK(copy_twice(UNTRACKED, NO) == '2');
    }
}

CASE(a_fence_orders_untracked_work)
{
    softmetal_set("SOFTMETAL_SEED", "last");
    CHECK(copy_twice(UNTRACKED, YES) == '1');
}

CASE(tracked_work_stays_in_order_whatever_the_seed)
{
    softmetal_set("SOFTMETAL_SEED", "last");
    CHECK(copy_twice(TRACKED, NO) == '1');
    for (int seed = 1; seed < 33; seed++) {
        use_seed(seed);
        CHECK(copy_twice(TRACKED, NO) == '1');
        CHECK(copy_twice(UNTRACKED, YES) == '1');
    }
}

RACES(some_seeds_swap_untracked_work_and_some_do_not)
{
    int seen[3] = {0, 0, 0};
    for (int seed = 1; seed < 33; seed++) {
        use_seed(seed);
        seen[copy_twice(UNTRACKED, NO) - '0'] += 1;
    }
    CHECK(seen[1] >= 4 && seen[2] >= 4 && seen[1] + seen[2] == 32);
    memset(seen, 0, sizeof seen);
    for (int queue = 0; queue < 32; queue++) { /* of one seed: each its own order */
        seen[copy_twice(UNTRACKED, NO) - '0'] += 1;
    }
    CHECK(seen[1] >= 4 && seen[2] >= 4 && seen[1] + seen[2] == 32);
}

/* A write after a read: two -> three, then one -> two.  '2' in order. */
static char
write_after_read(MTLResourceOptions options)
{
    struct scene scene = open_scene(options);
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    encode_fenced(commands, scene.two, scene.three, nil, nil);
    encode_fenced(commands, scene.one, scene.two, nil, nil);
    return run(commands, scene.three);
}

RACES(a_write_waits_for_earlier_reads_of_a_tracked_buffer)
{
    softmetal_set("SOFTMETAL_SEED", "last");
    CHECK(write_after_read(TRACKED) == '2');
    CHECK(write_after_read(UNTRACKED) == '1');
}

CASE(an_event_orders_untracked_work)
{
    softmetal_set("SOFTMETAL_SEED", "last");
    struct scene scene = open_scene(UNTRACKED);
    id<MTLSharedEvent> event = open_event();
    id<MTLCommandBuffer> commands = [scene.queue commandBuffer];
    encode_fenced(commands, scene.one, scene.two, nil, nil);
    [commands encodeSignalEvent:event value:1];
    [commands encodeWaitForEvent:event value:1];
    encode_fenced(commands, scene.two, scene.three, nil, nil);
    CHECK(run(commands, scene.three) == '1');
}

/* Two command buffers of one queue, the second committed while the first one sleeps. */
static char
copy_in_two(MTLResourceOptions options, BOOL fenced)
{
    struct scene scene = open_scene(options);
    id<MTLFence> fence = fenced ? [[open_device() newFence] autorelease] : nil;
    id<MTLCommandBuffer> first = [scene.queue commandBuffer];
    id<MTLCommandBuffer> second = [scene.queue commandBuffer];
    encode_fenced(first, scene.one, scene.two, nil, fence);
    encode_fenced(second, scene.two, scene.three, fence, nil);
    [first commit];
    char result = run(second, scene.three);
    CHECK([first status] == MTLCommandBufferStatusCompleted);
    return result;
}

RACES(untracked_work_of_two_command_buffers_is_swapped_too)
{
    softmetal_set("SOFTMETAL_SEED", "last");
    softmetal_set("SOFTMETAL_LATENCY_US", "20000");
    CHECK(copy_in_two(UNTRACKED, NO) == '2');
    CHECK(copy_in_two(UNTRACKED, YES) == '1');
    CHECK(copy_in_two(TRACKED, NO) == '1');
}

static int finished;

static void
take_place(struct block *block, id<MTLCommandBuffer> commands)
{
    (void)commands;
    *(int *)block->context = __atomic_add_fetch(&finished, 1, __ATOMIC_SEQ_CST);
}

CASE(two_queues_finish_in_either_order_as_the_seed_decides)
{
    int first_wins = 0;
    softmetal_set("SOFTMETAL_JITTER_US", "30000");
    for (int seed = 1; seed < 17; seed++) {
        use_seed(seed);
        struct scene one = open_scene(TRACKED), two = open_scene(TRACKED);
        id<MTLCommandBuffer> first = [one.queue commandBuffer];
        id<MTLCommandBuffer> second = [two.queue commandBuffer];
        int place_of_first = 0, place_of_second = 0;
        [first addCompletedHandler:(const void *)BLOCK(take_place, &place_of_first)];
        [second addCompletedHandler:(const void *)BLOCK(take_place, &place_of_second)];
        [first commit];
        [second commit];
        [first waitUntilCompleted];
        [second waitUntilCompleted];
        first_wins += place_of_first < place_of_second;
    }
    CHECK(first_wins >= 2 && first_wins <= 14);
}

/* The order of each seed goes to stdout: it has to be the same in every process. */
RACES(the_same_seed_gives_the_same_order)
{
    char results[33] = "";
    for (int seed = 1; seed < 33; seed++) {
        use_seed(seed);
        results[seed - 1] = copy_twice(UNTRACKED, NO);
    }
    puts(results);
}
