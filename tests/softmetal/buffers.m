/* buffers.m: storage modes, lengths, memory of the caller, purgeable state. */
#import "check.h"

#include <sys/mman.h>

#define SHARED MTLResourceStorageModeShared
#define MANAGED MTLResourceStorageModeManaged
#define PRIVATE MTLResourceStorageModePrivate

static size_t
page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static char *
map_pages(size_t nbytes)
{
    char *bytes =
        mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bytes != MAP_FAILED);
    return bytes;
}

static void
copy_now(id<MTLBuffer> source, id<MTLBuffer> destination)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    encode_copy(commands, source, destination);
    finish(commands);
    CHECK([commands status] == MTLCommandBufferStatusCompleted);
}

CASE(a_buffer_tells_what_it_was_made_with)
{
    id<MTLDevice> device = open_device();
    MTLResourceOptions options = MTLResourceStorageModeManaged |
                                 MTLResourceCPUCacheModeWriteCombined |
                                 MTLResourceHazardTrackingModeUntracked;
    id<MTLBuffer> buffer = [device newBufferWithLength:100 options:options];
    CHECK([buffer length] == 100);
    CHECK([buffer device] == device);
    CHECK([buffer storageMode] == MTLStorageModeManaged);
    CHECK([buffer hazardTrackingMode] == MTLHazardTrackingModeUntracked);
    CHECK([device currentAllocatedSize] == page_size());
    CHECK([buffer label] == nil);
    [buffer setLabel:[NSString stringWithUTF8String:"weights"]];
    CHECK(strcmp([[buffer label] UTF8String], "weights") == 0);
    [buffer release];
    CHECK([device currentAllocatedSize] == 0);
    CHECK([make_buffer(4, SHARED) hazardTrackingMode] == MTLHazardTrackingModeTracked);
}

CASE(a_new_buffer_holds_zeros)
{
    id<MTLDevice> device = open_device();
    for (size_t nbytes = 1; nbytes < 3000000; nbytes = nbytes * 7 + 3) {
        id<MTLBuffer> buffer = [device newBufferWithLength:nbytes options:SHARED];
        const char *bytes = [buffer contents];
        CHECK((uintptr_t)bytes % page_size() == 0);
        for (size_t index = 0; index < nbytes; index++) {
            CHECK(bytes[index] == 0);
        }
        [buffer release];
    }
}

CASE(a_buffer_in_the_memory_of_a_former_one_holds_zeros)
{
    id<MTLDevice> device = open_device();
    for (size_t pages = 1; pages < 7; pages++) {
        for (size_t less = 0; less < 100; less++) {
            id<MTLBuffer> buffer = [device newBufferWithLength:pages * page_size() - less
                                                       options:SHARED];
            char *bytes = [buffer contents];
            for (size_t index = 0; index < [buffer length]; index++) {
                CHECK(bytes[index] == 0);
            }
            memset(bytes, 0xFF, [buffer length]);
            [buffer release];
        }
    }
}

CASE(poison_fills_what_nobody_has_written)
{
    softmetal_set("SOFTMETAL_POISON", "1");
    id<MTLBuffer> fresh = make_buffer(64, PRIVATE);
    id<MTLBuffer> seen = make_buffer(64, SHARED);
    CHECK(((unsigned char *)[seen contents])[63] == 0xCD);
    memset([seen contents], 0, 64);
    copy_now(fresh, seen);
    CHECK(((unsigned char *)[seen contents])[63] == 0xCD);
    id<MTLBuffer> given = make_bytes("\1\2\3", SHARED);
    CHECK(((unsigned char *)[given contents])[2] == 3);
}

CASE(a_huge_buffer_costs_nothing_until_it_is_touched)
{
    id<MTLBuffer> buffer = make_buffer((NSUInteger)16 << 30, SHARED);
    CHECK(buffer != nil);
    ((char *)[buffer contents])[((size_t)16 << 30) - 1] = 1;
}

CASE(private_memory_is_the_gpus_alone)
{
    id<MTLBuffer> source = make_bytes("secret!", PRIVATE);
    id<MTLBuffer> result = make_buffer(8, SHARED);
    if (getenv("SOFTMETAL_VALIDATION") == NULL) {
        CHECK([source contents] == NULL);
    }
    copy_now(source, result);
    CHECK(memcmp([result contents], "secret!", 8) == 0);
}

CASE(managed_memory_is_one_block)
{
    id<MTLBuffer> managed = make_bytes("abcdefg", MANAGED);
    id<MTLBuffer> result = make_buffer(8, SHARED);
    memcpy([managed contents], "ABC", 3);
    copy_now(managed, result);
    CHECK(memcmp([result contents], "ABCdefg", 8) == 0);
    memcpy([result contents], "xyz", 3);
    copy_now(result, managed);
    CHECK(memcmp([managed contents], "xyzdefg", 8) == 0);
}

static void
unmap_and_count(struct block *block, void *pointer, unsigned long length)
{
    munmap(pointer, length);
    *(int *)block->context += 1;
}

/* The caller's. */
static id<MTLBuffer>
wrap(char *bytes, size_t nbytes, MTLResourceOptions options, const void *deallocator)
{
    return [open_device() newBufferWithBytesNoCopy:bytes
                                            length:nbytes
                                           options:options
                                       deallocator:deallocator];
}

CASE(bytes_no_copy_is_the_callers_memory_and_its_deallocator_runs_once)
{
    id<MTLDevice> device = open_device();
    size_t nbytes = 3 * page_size();
    char *bytes = map_pages(nbytes);
    int count = 0;
    id<MTLBuffer> buffer = wrap(bytes, nbytes, SHARED, BLOCK(unmap_and_count, &count));
    CHECK([buffer contents] == bytes);
    CHECK([device currentAllocatedSize] == 0);
    id<MTLBuffer> source = make_bytes("abcdefg", SHARED);
    copy_now(source, buffer);
    CHECK(memcmp(bytes, "abcdefg", 8) == 0);
    CHECK(count == 0);
    [buffer release];
    CHECK(count == 1);
}

static void
count_call(struct block *block, void *pointer, unsigned long nbytes)
{
    (void)pointer, (void)nbytes;
    ++*(int *)block->context;
}

CASE(bytes_no_copy_may_give_another_buffer_than_was_asked_for)
{
    size_t nbytes = page_size();
    char *pages = map_pages(4 * nbytes);
    const char *ways[] = {"short", "moved", "refused"};
    for (int i = 0; i < 3; i++) {
        int count = 0;
        CHECK(softmetal_set("SOFTMETAL_NO_COPY", ways[i]) == 0);
        char *bytes = pages + (size_t)i * nbytes;
        id<MTLBuffer> buffer = wrap(bytes, nbytes, SHARED, BLOCK(count_call, &count));
        CHECK((buffer == nil) == (i == 2));
        CHECK(buffer == nil || ([buffer length] < nbytes) == (i == 0));
        CHECK(buffer == nil || ([buffer contents] != bytes) == (i == 1));
        [buffer release];
        CHECK(count == 1);
    }
    CHECK(softmetal_set("SOFTMETAL_NO_COPY", "other") < 0);
    munmap(pages, 4 * nbytes);
}

CASE(the_deallocator_runs_when_the_last_command_buffer_is_done)
{
    softmetal_set("SOFTMETAL_LATENCY_US", "50000");
    int count = 0;
    id<MTLBuffer> buffer =
        wrap(map_pages(page_size()), page_size(), SHARED, BLOCK(unmap_and_count, &count));
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    encode_fill(commands, buffer, 1);
    [commands commit];
    [buffer release];
    CHECK(__atomic_load_n(&count, __ATOMIC_ACQUIRE) == 0);
    [commands waitUntilCompleted];
    CHECK(count == 1);
}

CASE(a_blit_loses_what_is_past_the_limit)
{
    id<MTLBuffer> source = make_buffer(32, SHARED);
    id<MTLBuffer> copied = make_buffer(32, SHARED);
    memset([source contents], 1, 32);
    CHECK(softmetal_blit_limit() == (size_t)1 << 32);
    CHECK(softmetal_set("SOFTMETAL_BLIT_LIMIT", "12") < 0);
    CHECK(softmetal_set("SOFTMETAL_BLIT_LIMIT", "16") == 0 && softmetal_blit_limit() == 16);
    copy_now(source, copied);
    const char *bytes = [copied contents];
    for (int i = 0; i < 32; i++) {
        CHECK(bytes[i] == (i < 16));
    }
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    encode_fill_part(commands, copied, NSMakeRange(8, 24), 2);
    finish(commands);
    for (int i = 0; i < 32; i++) {
        CHECK(bytes[i] == (i < 8 ? 1 : i < 24 ? 2 : 0));
    }
}

CASE(volatile_memory_is_kept_or_discarded_as_the_setting_says)
{
    id<MTLBuffer> buffer = make_bytes("abcdefg", SHARED);
    CHECK([buffer setPurgeableState:MTLPurgeableStateKeepCurrent] ==
          MTLPurgeableStateNonVolatile);
    CHECK([buffer setPurgeableState:MTLPurgeableStateVolatile] == MTLPurgeableStateNonVolatile);
    CHECK([buffer setPurgeableState:MTLPurgeableStateNonVolatile] == MTLPurgeableStateVolatile);
    CHECK(memcmp([buffer contents], "abcdefg", 8) == 0);
    softmetal_set("SOFTMETAL_PURGE", "1");
    [buffer setPurgeableState:MTLPurgeableStateVolatile];
    CHECK([buffer setPurgeableState:MTLPurgeableStateNonVolatile] == MTLPurgeableStateEmpty);
    CHECK(memcmp([buffer contents], "abcdefg", 8) != 0);
}

REPORTS_BY("zero-length", a_buffer_of_no_bytes, CHECK(make_buffer(0, SHARED) == nil))

REPORTS("length-over-maximum", a_buffer_of_too_many_bytes)
{
    softmetal_set("SOFTMETAL_MAX_BUFFER_LENGTH", "1M");
    id<MTLDevice> device = open_device();
    CHECK([device maxBufferLength] == 1 << 20);
    id<MTLBuffer> largest = make_buffer(1 << 20, SHARED);
    CHECK(largest != nil);
    CHECK([device newBufferWithLength:(1 << 20) + 1 options:SHARED] == nil);
}

REPORTS_BY("cpu-access-to-private", asking_for_the_contents_of_private_memory,
           CHECK([make_buffer(8, PRIVATE) contents] == NULL))

static void
wrap_badly(size_t offset, size_t nbytes, MTLResourceOptions options)
{
    char *bytes = map_pages(2 * page_size());
    int count = 0;
    CHECK(wrap(bytes + offset, nbytes, options, BLOCK(unmap_and_count, &count)) == nil);
    CHECK(count == 0); /* refused memory stays the caller's */
    munmap(bytes, 2 * page_size());
}

REPORTS_BY("bytes-no-copy-alignment", wrapping_a_pointer_inside_of_a_page,
           wrap_badly(64, page_size(), SHARED))
REPORTS_BY("bytes-no-copy-alignment", wrapping_part_of_a_page,
           wrap_badly(0, page_size() + 64, SHARED))
REPORTS_BY("argument", wrapping_memory_as_private, wrap_badly(0, page_size(), PRIVATE))
REPORTS_BY("argument", options_that_mean_nothing_for_a_buffer,
           CHECK(make_buffer(8, MTLResourceStorageModeMemoryless) == nil))
REPORTS_BY("argument", a_purgeable_state_that_does_not_exist,
           [make_buffer(8, SHARED) setPurgeableState:(MTLPurgeableState)9])

CASE(a_residency_set_is_wired_for_a_second_after_each_request)
{
    id<MTLBuffer> buffer = make_buffer(64, 0);
    id<MTLDevice> device = open_device();
    size_t before = softmetal_resident_nbytes();
    MTLResidencySetDescriptor *descriptor =
        [[[MTLResidencySetDescriptor alloc] init] autorelease];
    id<MTLResidencySet> set = [device newResidencySetWithDescriptor:descriptor error:NULL];
    [set addAllocation:(id<MTLAllocation>)buffer];
    [set requestResidency];
    CHECK(softmetal_resident_nbytes() == before); /* nothing is committed */
    [set commit];
    CHECK(softmetal_resident_nbytes() == before + 64);
    [set endResidency];
    CHECK(softmetal_resident_nbytes() == before);
    [set requestResidency];
    usleep(1100 * 1000);
    CHECK(softmetal_resident_nbytes() == before);
    [set requestResidency];
    CHECK(softmetal_resident_nbytes() == before + 64);
    [set release];
    size_t kept = softmetal_resident_nbytes() - before;
    CHECK(kept == 64); /* no work was done yet */
    finish([open_queue() commandBuffer]);
    set = [device newResidencySetWithDescriptor:descriptor error:NULL];
    [set addAllocation:(id<MTLAllocation>)buffer];
    [set commit];
    [set requestResidency];
    [set release];
    CHECK(softmetal_resident_nbytes() - before == kept);
}
