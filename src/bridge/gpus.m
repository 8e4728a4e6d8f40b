/* gpus.m: GPUs: which there are, and what they say of themselves. */
#import "bridge/parts.h"

#ifdef __APPLE__
#import <CoreGraphics/CoreGraphics.h>
#endif

#ifdef __APPLE__
/* Where CoreGraphics is not in the process, a command-line program has no default device; and a
 * linker with -dead_strip_dylibs, conda's, drops what nothing refers to.  Never called.
 * SPEC metal/mtlcreatesystemdefaultdevice(); pyobjc issue 390 */
__attribute__((used)) static CFTypeID (*const core_graphics_stays)(void) =
    CGColorSpaceGetTypeID;
#endif

/* Nothing says that the default device and the list hold the same object for one GPU. */
static size_t
append_device(bridge_device **out, size_t count, size_t capacity, id<MTLDevice> device)
{
    for (size_t i = 0; i < count; i++) {
        if ([device_object(out[i]) registryID] == [device registryID]) {
            return count;
        }
    }
    if (count < capacity) {
        [device retain];
        out[count++] = (bridge_device *)(void *)device;
    }
    return count;
}

size_t
bridge_device_copy_all(bridge_device **out, size_t capacity)
{
    if (bridge_is_forked()) { /* unreached: callers ask first */
        return 0;
    }
    IN_POOL;
    size_t count = 0;
    /* On a Mac with two GPUs the default one is the one that drives the display and that torch
     * and MLX use, wherever MTLCopyAllDevices lists it. */
    id<MTLDevice> first = MTLCreateSystemDefaultDevice();
    if (first != nil) {
        count = append_device(out, count, capacity, first);
        [first release];
    }
    NSArray *all = MTLCopyAllDevices();
    NSUInteger total = [all count];
    for (NSUInteger i = 0; i < total; i++) {
        count = append_device(out, count, capacity, (id<MTLDevice>)[all objectAtIndex:i]);
    }
    [all release];
    return count;
}

NSInteger
macos_major(void)
{
    NSInteger macos = [[NSProcessInfo processInfo] operatingSystemVersion].majorVersion;
    return macos == 16 ? 26 : macos; /* what 26 tells programs that an older SDK built */
}

void
bridge_device_describe(bridge_device *device, bridge_device_facts *out)
{
    memset(out, 0, sizeof *out);
    if (bridge_is_forked()) { /* unreached: callers ask first */
        return;
    }
    IN_POOL;
    id<MTLDevice> object = device_object(device);
    copy_text([object name], out->name, sizeof out->name);
    out->registry_id = [object registryID];
    out->max_buffer_length = [object maxBufferLength];
    out->recommended_max_working_set = [object recommendedMaxWorkingSetSize];
    out->has_unified_memory = [object hasUnifiedMemory];
    /* SPEC unslothai/llama.cpp pull request 37: seen on macOS 14, not on 15 and 26 */
    out->reads_stale_files =
        strcmp(out->name, "Apple Paravirtual device") == 0 && macos_major() < 15;
#ifndef __APPLE__
    out->is_software = true;
#endif
}

uint64_t
bridge_device_allocated_nbytes(bridge_device *device)
{
    if (bridge_is_forked()) { /* unreached: callers ask first */
        return 0;
    }
    IN_POOL;
    return [device_object(device) currentAllocatedSize];
}
