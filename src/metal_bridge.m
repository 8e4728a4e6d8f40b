/* metal_bridge.m: the one file that talks to Metal; see metal_bridge.h.
 *
 * Owns:    nothing but the flag that says this process is a forked child.
 * Calls:   Metal and Foundation: Apple's, or src/softmetal/.
 * Memory:  manual retain/release.  Methods named new..., copy... and alloc give +1, all else
 *          is autoreleased or borrowed, so every function here has a pool (IN_POOL): Python's
 *          threads have none.
 * Builds:  with GCC's Objective-C (no ARC, no blocks, no @autoreleasepool, no _Atomic) and
 *          with Apple's clang (-fno-objc-arc).
 */
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#import <objc/runtime.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#import <CoreGraphics/CoreGraphics.h>
#import <CoreVideo/CoreVideo.h>
#import <IOSurface/IOSurface.h>

#include <libproc.h>
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <unistd.h>
#else
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softmetal/softmetal.h"
#endif

#include "metal_bridge.h"

#define BRIDGE_AS_TEXT(name, text) [name] = text,
static const char *const status_texts[] = {BRIDGE_STATUS_LIST(BRIDGE_AS_TEXT)};
#undef BRIDGE_AS_TEXT

const char *
bridge_status_text(bridge_status status)
{
    return status_texts[status];
}

/* ---- fork ---- */

static int is_forked_child; /* written once, in the child, before it has a second thread */

static void
note_fork(void)
{
    __atomic_store_n(&is_forked_child, 1, __ATOMIC_RELAXED);
}

/* Metal's validation is asked for: its price for the GPU is not documented, so that not all pay it. */
static bool tells_encoders;

/* When the module is loaded: a child must know even if its parent never asked for a device. */
__attribute__((constructor)) static void
watch_fork(void)
{
    const char *validates = getenv("MTL_DEBUG_LAYER");
    tells_encoders = validates != NULL && strcmp(validates, "0") != 0;
    (void)pthread_atfork(NULL, NULL, note_fork);
}

bool
bridge_is_forked(void)
{
    return __atomic_load_n(&is_forked_child, __ATOMIC_RELAXED) != 0;
}

/* ---- pools ---- */

static void
drain_pool(NSAutoreleasePool **pool)
{
    [*pool drain];
}

/* Until the end of the block, however it is left: what is autoreleased goes then. */
#define IN_POOL \
    __attribute__((cleanup(drain_pool), unused)) NSAutoreleasePool *pool = \
        [[NSAutoreleasePool alloc] init]

void
bridge_in_pool(void (*work)(void *context), void *context)
{
    IN_POOL;
    work(context);
}

/* ---- handles as objects ---- */

#define DEFINE_OBJECT(name, protocol) \
    static id<protocol> name##_object(bridge_##name *handle) \
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

/* A label, a queue, an event: whatever is let go may autorelease, and is Metal's to free. */
static void
release_object(void *handle)
{
    if (handle == NULL || bridge_is_forked()) {
        return;
    }
    IN_POOL;
    [(id<NSObject>)handle release];
}

static void
copy_text(NSString *text, char *out, size_t capacity)
{
    const char *utf8 = text == nil ? NULL : [text UTF8String];
    out[0] = '\0';
    if (utf8 != NULL) {
        strncpy(out, utf8, capacity - 1);
        out[capacity - 1] = '\0';
    }
}

/* ---- devices ---- */

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

static NSInteger
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

/* ---- buffers ---- */

static MTLResourceOptions
options_of(bridge_storage storage)
{
    switch (storage) {
    case BRIDGE_MANAGED: return MTLResourceStorageModeManaged;
    case BRIDGE_PRIVATE: return MTLResourceStorageModePrivate;
    default: return MTLResourceStorageModeShared;
    }
}

/* What Metal answers with nil, or ends the process for under its validation layer, is refused
 * before it is asked. */
static bridge_status
check_length(id<MTLDevice> device, size_t nbytes)
{
    if (nbytes == 0) { /* mutant survives (condition never): callers refuse before */
        return BRIDGE_NO_MEMORY;
    }
    return nbytes > [device maxBufferLength] ? BRIDGE_TOO_LARGE : BRIDGE_OK;
}

bridge_status
bridge_buffer_new(bridge_device *device, size_t nbytes, bridge_storage storage,
                  bridge_buffer **out)
{
    *out = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    bridge_status status = check_length(device_object(device), nbytes);
    if (status == BRIDGE_OK) {
        id<MTLBuffer> buffer = [device_object(device) newBufferWithLength:nbytes
                                                                  options:options_of(storage)];
        *out = (bridge_buffer *)(void *)buffer;
        status = buffer == nil ? BRIDGE_NO_MEMORY : BRIDGE_OK;
    }
    return status;
}

/* Whom to tell that the pages may go.  Metal may call the deallocator of a buffer that we did
 * not take, then or later, so the caller is told only once it has the buffer. */
typedef struct pages_claim {
    int holders;             /* each copy of the block, and who makes the buffer */
    bridge_pages_done *done; /* NULL: nobody */
    void *context;
} pages_claim;

typedef struct pages_block {
    block_head head;
    pages_claim *claim;
} pages_block;

static void
drop_claim(pages_claim *claim)
{
    if (__atomic_sub_fetch(&claim->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        free(claim);
    }
}

static void
copy_pages_block(void *made, const void *from)
{
    (void)made;
    __atomic_add_fetch(&((const pages_block *)from)->claim->holders, 1, __ATOMIC_RELAXED);
}

static void
dispose_pages_block(const void *copy)
{
    drop_claim(((const pages_block *)copy)->claim);
}

static void
run_pages_done(pages_block *self, void *pages, NSUInteger nbytes)
{
    (void)pages, (void)nbytes;
    bridge_pages_done *done = __atomic_load_n(&self->claim->done, __ATOMIC_ACQUIRE);
    if (done != NULL) {
        done(self->claim->context);
    }
}

/* +1, or nil.  A buffer of length 0 was seen on Apple's virtual machines. */
static bridge_status
wrap_pages(id<MTLDevice> device, void *pages, size_t nbytes, pages_claim *claim,
           id<MTLBuffer> *out)
{
    static const struct block_descriptor descriptor = {0, sizeof(pages_block), copy_pages_block,
                                                       dispose_pages_block};
    pages_block block = {BLOCK_HEAD(BLOCK_HAS_COPY_DISPOSE, run_pages_done, &descriptor),
                         claim};
    id<MTLBuffer> buffer = [device newBufferWithBytesNoCopy:pages
                                                     length:nbytes
                                                    options:MTLResourceStorageModeShared
                                                deallocator:(id)(void *)&block];
    if (buffer == nil) {
        return BRIDGE_NOT_PAGES;
    }
    if ([buffer contents] != pages || [buffer length] != nbytes) {
        [buffer release];
        return BRIDGE_OTHER_PAGES;
    }
    *out = buffer;
    return BRIDGE_OK;
}

/* A command buffer of a framework can retain the buffer longer than we do, so Metal itself
 * must say when it is done with the pages. */
bridge_status
bridge_buffer_new_over_pages(bridge_device *device, void *pages, size_t nbytes,
                             bridge_pages_done *done, void *context, bridge_buffer **out)
{
    *out = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    pages_claim *claim = malloc(sizeof *claim);
    if (claim == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    *claim = (pages_claim){.holders = 1, .context = context};
    IN_POOL;
    bridge_status status = check_length(device_object(device), nbytes);
    id<MTLBuffer> buffer = nil;
    if (status == BRIDGE_OK) {
        status = wrap_pages(device_object(device), pages, nbytes, claim, &buffer);
    }
    if (status == BRIDGE_OK) {
        __atomic_store_n(&claim->done, done, __ATOMIC_RELEASE);
        *out = (bridge_buffer *)(void *)buffer;
    }
    drop_claim(claim);
    return status;
}

void
bridge_buffer_retain(bridge_buffer *buffer)
{
    [buffer_object(buffer) retain];
}

void
bridge_buffer_release(bridge_buffer *buffer)
{
    release_object(buffer);
}

bool
bridge_buffer_is_only_ours(bridge_buffer *buffer)
{
    if (bridge_is_forked()) {
        return false;
    }
    IN_POOL;
    id<MTLBuffer> object = buffer_object(buffer);
    /* An autoreleased reference counts too: the buffer then looks used, which is safe. */
    return
        [object retainCount] == 1 && [object label] == nil &&
        [object setPurgeableState:MTLPurgeableStateKeepCurrent] == MTLPurgeableStateNonVolatile;
}

#ifdef __APPLE__
/* malloc knows its own blocks, and an object is one as a rule; of all other memory the kernel
 * copies a word, or says that it cannot. */
static bool
is_readable(const void *address)
{
    if (malloc_size(address) >= sizeof(void *)) {
        return true;
    }
    uintptr_t word = 0;
    vm_size_t nbytes = 0;
    kern_return_t result = vm_read_overwrite(mach_task_self(), (vm_address_t)address,
                                             sizeof word, (vm_address_t)&word, &nbytes);
    return result == KERN_SUCCESS && nbytes == sizeof word;
}

bridge_map
bridge_map_at(const void *address)
{
    struct proc_regionwithpathinfo region;
    int nbytes = proc_pidinfo(getpid(), PROC_PIDREGIONPATHINFO, (uintptr_t)address, &region,
                              sizeof region);
    if (nbytes != sizeof region || region.prp_vip.vip_vi.vi_stat.vst_ino == 0) {
        return BRIDGE_NO_FILE;
    }
    return region.prp_prinfo.pri_share_mode == SM_COW ? BRIDGE_PRIVATE_FILE : BRIDGE_FILE;
}
#else
/* The kernel copies the signal set before it looks at `how`: EFAULT says that the word cannot
 * be read, EINVAL that it can.  One call, no signal handler, nothing changed. */
static bool
is_readable(const void *address)
{
    long result = syscall(SYS_rt_sigprocmask, ~0, address, NULL, sizeof(uint64_t));
    return !(result == -1 && errno == EFAULT);
}

bridge_map
bridge_map_at(const void *address)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096 + 100], rights[5] = ""; /* a path, and numbers before it */
    unsigned long first = 0, end = 0, inode = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL &&
           sscanf(line, "%lx-%lx %4s %*s %*s %lu", &first, &end, rights, &inode) == 4 &&
           end <= (uintptr_t)address) {
        inode = 0;
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    bool is_file = first <= (uintptr_t)address && (uintptr_t)address < end && inode != 0;
    return !is_file ? BRIDGE_NO_FILE : rights[3] == 'p' ? BRIDGE_PRIVATE_FILE : BRIDGE_FILE;
}
#endif

/* Is it one of the runtime's classes?  Nothing else may be asked of it before that is known:
 * the first word of a NumPy array's bytes is no class.  A Mac has some ten thousand. */
static bool
is_class(Class candidate)
{
    int capacity = objc_getClassList(NULL, 0);
    Class *known = capacity > 0 ? calloc((size_t)capacity, sizeof *known) : NULL;
    if (known == NULL) {
        return false;
    }
    int count = objc_getClassList(known, capacity);
    count = count < capacity ? count : capacity; /* Apple's runtime gives the total */
    bool is_known = false;
    for (int i = 0; i < count && !is_known; i++) {
        is_known = known[i] == candidate;
    }
    free(known);
    return is_known;
}

static bool
class_conforms(Class found, Protocol *protocol)
{
    for (Class c = found; c != Nil; c = class_getSuperclass(c)) {
        if (class_conformsToProtocol(c, protocol)) {
            return true;
        }
    }
    return false;
}

/* What would be the class, were there an object; Nil: there is none. */
static Class
class_at(const void *handle)
{
    if (handle == NULL || (uintptr_t)handle % sizeof(void *) != 0 || !is_readable(handle)) {
        return Nil;
    }
    /* Reads one word, and on Apple's runtimes masks out what else is in it. */
    return object_getClass((id)handle);
}

/* `last` is the class found good last: it stays good, since no class can be unloaded here.  A
 * plain C pointer, because clang has no atomics for Objective-C's. */
static bool
is_object_of(const void *handle, Protocol *protocol, const void **last)
{
    Class found = class_at(handle);
    if (found == Nil || (const void *)found == __atomic_load_n(last, __ATOMIC_RELAXED)) {
        return found != Nil;
    }
    if (!is_class(found) || !class_conforms(found, protocol)) {
        return false;
    }
    __atomic_store_n(last, (const void *)found, __ATOMIC_RELAXED);
    return true;
}

bool
bridge_handle_is_buffer(const void *handle)
{
    static const void *last;
    return is_object_of(handle, @protocol(MTLBuffer), &last);
}

size_t
bridge_buffer_nbytes(bridge_buffer *buffer)
{
    return [buffer_object(buffer) length];
}

void *
bridge_buffer_contents(bridge_buffer *buffer)
{
    /* Under Apple's validation layer asking a private buffer for its contents ends the
     * process. */
    if (bridge_buffer_storage(buffer) == BRIDGE_PRIVATE) {
        return NULL;
    }
    return [buffer_object(buffer) contents];
}

bridge_storage
bridge_buffer_storage(bridge_buffer *buffer)
{
    switch ([buffer_object(buffer) storageMode]) {
    case MTLStorageModeShared: return BRIDGE_SHARED;
    case MTLStorageModeManaged: return BRIDGE_MANAGED;
    default: return BRIDGE_PRIVATE;
    }
}

bool
bridge_buffer_is_tracked(bridge_buffer *buffer)
{
    /* In a heap "default" is what the heap has, untracked unless it was made otherwise.
     * SPEC MTLHeap.h MTLHeapDescriptor.hazardTrackingMode */
    return [buffer_object(buffer) hazardTrackingMode] == MTLHazardTrackingModeTracked;
}

bridge_device *
bridge_buffer_device(bridge_buffer *buffer)
{
    /* The getter of an atomic property autoreleases what it gives; the buffer keeps
     * it alive. */
    IN_POOL;
    return (bridge_device *)(void *)[buffer_object(buffer) device];
}

void
bridge_buffer_copy_label(bridge_buffer *buffer, char *out, size_t capacity)
{
    out[0] = '\0';
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    copy_text([buffer_object(buffer) label], out, capacity);
}

void
bridge_buffer_set_label(bridge_buffer *buffer, const char *label)
{
    if (bridge_is_forked()) { /* unreached: callers ask first */
        return;
    }
    IN_POOL;
    [buffer_object(buffer) setLabel:[NSString stringWithUTF8String:label]];
}

/* ---- IOSurfaces ---- */

#ifdef __APPLE__
/* Borrowed from the handle; NULL: it is no object, or neither of the two. */
static IOSurfaceRef
surface_of(const void *handle)
{
    if (!is_class(class_at(handle))) {
        return NULL;
    }
    CFTypeID kind = CFGetTypeID(handle);
    if (kind == IOSurfaceGetTypeID()) {
        return (IOSurfaceRef)(void *)handle;
    }
    return kind == CVPixelBufferGetTypeID()
               ? CVPixelBufferGetIOSurface((CVPixelBufferRef)(void *)handle)
               : NULL;
}

/* A lock bounds the CPU's use of the bytes, it does not make their address: the surface is
 * mapped into the process as long as it is kept.  SPEC IOSurfaceRef.h IOSurfaceLock.  Taken
 * once, so that what a GPU has written before is there, and read-only, so that the surface
 * does not count as changed. */
static void *
surface_address(IOSurfaceRef surface)
{
    if (IOSurfaceLock(surface, kIOSurfaceLockReadOnly, NULL) != KERN_SUCCESS) {
        return NULL;
    }
    void *address = IOSurfaceGetBaseAddress(surface);
    (void)IOSurfaceUnlock(surface, kIOSurfaceLockReadOnly, NULL);
    return address;
}

static bridge_status
copy_surface(const void *handle, bridge_surface **out, void **pages, size_t *nbytes)
{
    IOSurfaceRef surface = surface_of(handle);
    void *address = surface == NULL ? NULL : surface_address(surface);
    if (address == NULL) {
        return surface == NULL ? BRIDGE_NOT_A_SURFACE : BRIDGE_NO_ADDRESS;
    }
    *out = (bridge_surface *)(void *)CFRetain(surface);
    IOSurfaceIncrementUseCount(surface);
    *pages = address;
    *nbytes = IOSurfaceGetAllocSize(surface);
    return BRIDGE_OK;
}

void
bridge_surface_release(bridge_surface *surface)
{
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    IOSurfaceDecrementUseCount((IOSurfaceRef)(void *)surface);
    CFRelease(surface);
}
#else
static bridge_status
copy_surface(const void *handle, bridge_surface **out, void **pages, size_t *nbytes)
{
    (void)handle, (void)out, (void)pages, (void)nbytes;
    return BRIDGE_NO_SURFACES;
}

/* unreached: only on a Mac */
void
bridge_surface_release(bridge_surface *surface)
{
    (void)surface; /* there is none */
}
#endif

bridge_status
bridge_surface_copy(const void *handle, bridge_surface **out, void **pages, size_t *nbytes)
{
    *out = NULL;
    *pages = NULL;
    *nbytes = 0;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    return copy_surface(handle, out, pages, nbytes);
}

/* ---- queues ---- */

/* Own queues take this many command buffers that are not complete; Metal's own number is 64. */
#define QUEUE_DEPTH 256

bridge_queue *
bridge_queue_new(bridge_device *device)
{
    if (bridge_is_forked()) {
        return NULL;
    }
    IN_POOL;
    return (bridge_queue *)(void *)[device_object(device)
        newCommandQueueWithMaxCommandBufferCount:QUEUE_DEPTH];
}

void
bridge_queue_retain(bridge_queue *queue)
{
    [queue_object(queue) retain];
}

void
bridge_queue_release(bridge_queue *queue)
{
    release_object(queue);
}

bool
bridge_handle_is_queue(const void *handle)
{
    static const void *last;
    return is_object_of(handle, @protocol(MTLCommandQueue), &last);
}

bridge_device *
bridge_queue_device(bridge_queue *queue)
{
    IN_POOL;
    return (bridge_device *)(void *)[queue_object(queue) device];
}

void
bridge_queue_copy_label(bridge_queue *queue, char *out, size_t capacity)
{
    out[0] = '\0';
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    copy_text([queue_object(queue) label], out, capacity);
}

void
bridge_queue_set_label(bridge_queue *queue, const char *label)
{
    /* mutant survives (condition never): callers ask first */
    if (bridge_is_forked()) { /* unreached: callers ask first */
        return;
    }
    IN_POOL;
    [queue_object(queue) setLabel:[NSString stringWithUTF8String:label]];
}

/* ---- shared events ---- */

bridge_event *
bridge_event_new(bridge_device *device)
{
    if (bridge_is_forked()) {
        return NULL;
    }
    IN_POOL;
    return (bridge_event *)(void *)[device_object(device) newSharedEvent];
}

void
bridge_event_retain(bridge_event *event)
{
    [event_object(event) retain];
}

void
bridge_event_release(bridge_event *event)
{
    release_object(event);
}

bool
bridge_handle_is_event(const void *handle)
{
    static const void *last;
    return is_object_of(handle, @protocol(MTLSharedEvent), &last);
}

uint64_t
bridge_event_value(bridge_event *event)
{
    return [event_object(event) signaledValue];
}

void
bridge_event_raise(bridge_event *event, uint64_t value)
{
    if (bridge_is_forked()) { /* unreached: callers ask first */
        return;
    }
    IN_POOL;
    if ([event_object(event) signaledValue] < value) { /* Metal would set it back */
        [event_object(event) setSignaledValue:value];
    }
}

bool
bridge_event_wait(bridge_event *event, uint64_t value, uint64_t timeout_ms)
{
    if (bridge_is_forked()) {
        return false;
    }
    IN_POOL;
    return [event_object(event) waitUntilSignaledValue:value timeoutMS:timeout_ms];
}

/* ---- command buffers ---- */

bridge_commands *
bridge_commands_new(bridge_queue *queue)
{
    if (bridge_is_forked()) {
        return NULL;
    }
    IN_POOL;
    if (!tells_encoders) {
        return (bridge_commands *)(void *)[[queue_object(queue) commandBuffer] retain];
    }
    MTLCommandBufferDescriptor *descriptor = [[MTLCommandBufferDescriptor alloc] init];
    [descriptor setErrorOptions:MTLCommandBufferErrorOptionEncoderExecutionStatus];
    id<MTLCommandBuffer> commands =
        [[queue_object(queue) commandBufferWithDescriptor:descriptor] retain];
    [descriptor release];
    return (bridge_commands *)(void *)commands;
}

void
bridge_commands_release(bridge_commands *commands)
{
    release_object(commands);
}

void
bridge_encode_wait(bridge_commands *commands, bridge_event *event, uint64_t value)
{
    IN_POOL;
    [commands_object(commands) encodeWaitForEvent:event_object(event) value:value];
}

void
bridge_encode_signal(bridge_commands *commands, bridge_event *event, uint64_t value)
{
    IN_POOL;
    [commands_object(commands) encodeSignalEvent:event_object(event) value:value];
}

/* Metal loses what a copy or fill moves past 4 GiB, without a word; torch cuts its copies at
 * 2 GiB.  SPEC pytorch issue 124335, pull request 164108; Metal.jl issue 710 */
static size_t
most_of_a_blit(void)
{
#ifdef __APPLE__
    return (size_t)1 << 31;
#else
    return softmetal_blit_limit() / 2;
#endif
}

static NSUInteger
at_most(NSUInteger value, NSUInteger most)
{
    return value < most ? value : most;
}

static void
encode_run(id<MTLBlitCommandEncoder> encoder, bridge_buffer *src, bridge_buffer *dst,
           const bridge_run *run)
{
    size_t most = most_of_a_blit();
    for (size_t start = 0; start < run->nbytes; start += most) {
        [encoder copyFromBuffer:buffer_object(src)
                   sourceOffset:run->src_offset_bytes + start
                       toBuffer:buffer_object(dst)
              destinationOffset:run->dst_offset_bytes + start
                           size:at_most(run->nbytes - start, most)];
    }
}

/* nil: Metal gave none.  Copies and fills are in command buffers of ours alone. */
static id<MTLBlitCommandEncoder>
begin_blit(bridge_commands *commands, const char *name)
{
    id<MTLBlitCommandEncoder> encoder = [commands_object(commands) blitCommandEncoder];
    NSString *label = [NSString stringWithUTF8String:name];
    [commands_object(commands) setLabel:label];
    [encoder setLabel:label];
    return encoder;
}

bridge_status
bridge_encode_copies(bridge_commands *commands, bridge_buffer *src, bridge_buffer *dst,
                     const bridge_run *runs, size_t count)
{
    IN_POOL;
    id<MTLBlitCommandEncoder> encoder = begin_blit(commands, "metal_dlpack copy");
    for (size_t i = 0; encoder != nil && i < count; i++) {
        encode_run(encoder, src, dst, &runs[i]);
    }
    [encoder endEncoding];
    return encoder == nil ? BRIDGE_NO_COMMAND : BRIDGE_OK;
}

bridge_status
bridge_encode_fill(bridge_commands *commands, bridge_buffer *buffer, size_t offset_bytes,
                   size_t nbytes, uint8_t value)
{
    IN_POOL;
    size_t most = most_of_a_blit();
    id<MTLBlitCommandEncoder> encoder = begin_blit(commands, "metal_dlpack fill");
    for (size_t start = 0; encoder != nil && start < nbytes; start += most) {
        [encoder fillBuffer:buffer_object(buffer)
                      range:NSMakeRange(offset_bytes + start, at_most(nbytes - start, most))
                      value:value];
    }
    [encoder endEncoding];
    return encoder == nil ? BRIDGE_NO_COMMAND : BRIDGE_OK;
}

/* ---- kernels ---- */

/* Metal's words, and whether they are about the source. */
static bridge_status
refuse(NSError *failure, char **message, bool *is_source)
{
    const char *text = [[failure localizedDescription] UTF8String];
    *message = text == NULL ? NULL : strdup(text);
    *is_source = failure != nil && [[failure domain] isEqualToString:MTLLibraryErrorDomain] &&
                 [failure code] == MTLLibraryErrorCompileFailure;
    return BRIDGE_NO_KERNEL;
}

/* As MTLCompileOptions has them since macOS 15, whatever the SDK that compiles this knows. */
@protocol MathSetters
- (void)setMathMode:(NSInteger)mathMode;
- (void)setMathFloatingPointFunctions:(NSInteger)functions;
@end

/* Apple's default is the mode of the options alone: the functions stay fast unless they are named
 * too.  Before macOS 15 one setter does both. */
static void
set_math(MTLCompileOptions *options, bridge_math math)
{
    if ([options respondsToSelector:@selector(setMathMode:)]) {
        [(id<MathSetters>)options setMathMode:(NSInteger)math]; /* the same numbers */
        [(id<MathSetters>)options setMathFloatingPointFunctions:math == BRIDGE_MATH_SAFE];
    }
    else {
        [options setFastMathEnabled:math == BRIDGE_MATH_FAST];
    }
}

/* The newest language of the system: numbers, as the SDK that compiles this may not know their
 * names.  `standard` is what Metal takes unless it is told: that of the SDK which the program was
 * built with, and a Python may have been built long ago.  Never less than that: a system from the
 * future has more than the table. */
static NSUInteger
newest_language(NSUInteger standard)
{
    static const struct {
        NSInteger macos;
        NSUInteger language;
    } rows[] = {{14, BRIDGE_LANGUAGE(3, 1)},
                {15, BRIDGE_LANGUAGE(3, 2)},
                {26, BRIDGE_LANGUAGE(4, 0)},
                {27, BRIDGE_LANGUAGE(4, 1)}};
    NSInteger macos = macos_major();
    NSUInteger newest = standard;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && rows[i].macos <= macos; i++) {
        newest = rows[i].language > newest ? rows[i].language : newest;
    }
    return newest;
}

unsigned
bridge_language_newest(void)
{
    if (bridge_is_forked()) { /* unreached: callers ask first */
        return 0;
    }
    IN_POOL;
    MTLCompileOptions *options = [[MTLCompileOptions alloc] init];
    NSUInteger newest = newest_language([options languageVersion]);
    [options release];
    return (unsigned)newest;
}

/* +1 */
static MTLCompileOptions *
make_options(const bridge_compile_options *chosen)
{
    MTLCompileOptions *options = [[MTLCompileOptions alloc] init];
    NSUInteger language =
        chosen->language != 0 ? chosen->language : newest_language([options languageVersion]);
    set_math(options, chosen->math);
    [options setLanguageVersion:(MTLLanguageVersion)language];
    return options;
}

bridge_status
bridge_library_new(bridge_device *device, const char *source,
                   const bridge_compile_options *chosen, bridge_library **out, char **message,
                   bool *is_source)
{
    *out = NULL;
    *message = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED; /* mutant survives (constant returned): callers refuse before */
    }
    IN_POOL;
    NSString *text = [NSString stringWithUTF8String:source];
    MTLCompileOptions *options = make_options(chosen);
    NSError *failure = nil; /* warnings of the compiler come through it too */
    bridge_status status = BRIDGE_NO_MEMORY;
    if (text != nil) {
        id<MTLLibrary> library = [device_object(device) newLibraryWithSource:text
                                                                     options:options
                                                                       error:&failure];
        *out = (bridge_library *)(void *)library;
        status = library == nil ? refuse(failure, message, is_source) : BRIDGE_OK;
    }
    [options release];
    return status;
}

void
bridge_library_release(bridge_library *library)
{
    release_object(library);
}

/* A block with an array in front, and the texts that it points at behind it. */
typedef struct text_block {
    char *memory, *free; /* NULL: there is no memory */
} text_block;

static text_block
make_text_block(size_t array_nbytes, size_t text_nbytes)
{
    /* mutant survives (off by one): glibc has a place for 0 bytes too */
    char *memory = malloc(array_nbytes + text_nbytes + 1); /* never of 0 bytes */
    return (text_block){memory, memory == NULL ? NULL : memory + array_nbytes};
}

static size_t
text_nbytes(NSString *text)
{
    const char *utf8 = [text UTF8String];
    return utf8 == NULL ? 1 : strlen(utf8) + 1;
}

static char *
add_text(text_block *block, NSString *text)
{
    const char *utf8 = [text UTF8String];
    char *at = block->free;
    size_t nbytes = text_nbytes(text);
    memcpy(at, utf8 == NULL ? "" : utf8, nbytes);
    block->free += nbytes;
    return at;
}

/* Of the other functions of a library no kernel can be made.  One that Metal makes only with the
 * values of its constants is taken for one. */
static bool
is_kernel(id<MTLLibrary> library, NSString *name)
{
    id<MTLFunction> function = [library newFunctionWithName:name];
    bool result = function == nil || [function functionType] == MTLFunctionTypeKernel;
    [function release];
    return result;
}

/* A block with room for each name. */
static char **
copy_kernel_names(id<MTLLibrary> library, size_t *count)
{
    NSArray *names = [library functionNames];
    size_t nbytes = 0, most = [names count];
    for (size_t i = 0; i < most; i++) {
        nbytes += text_nbytes([names objectAtIndex:i]);
    }
    text_block block = make_text_block(most * sizeof(char *), nbytes);
    char **out = (char **)(void *)block.memory;
    for (size_t i = 0; out != NULL && i < most; i++) {
        NSString *name = [names objectAtIndex:i];
        if (is_kernel(library, name)) {
            out[(*count)++] = add_text(&block, name);
        }
    }
    return out;
}

char **
bridge_library_names(bridge_library *library, size_t *count)
{
    *count = 0;
    if (bridge_is_forked()) {
        return NULL;
    }
    IN_POOL;
    return copy_kernel_names(library_object(library), count);
}

static int
compare_constants(const void *one, const void *other)
{
    unsigned a = ((const bridge_constant_facts *)one)->index;
    unsigned b = ((const bridge_constant_facts *)other)->index;
    return (a > b) - (a < b); /* mutant survives (bound): no index stands twice */
}

static bridge_status
copy_constants(NSDictionary *constants, bridge_constant_facts **out, size_t *count)
{
    size_t nbytes = 0;
    NSEnumerator *names = [constants keyEnumerator];
    for (NSString *name = [names nextObject]; name != nil; name = [names nextObject]) {
        nbytes += text_nbytes(name);
    }
    text_block block =
        make_text_block([constants count] * sizeof(bridge_constant_facts), nbytes);
    bridge_constant_facts *facts = (bridge_constant_facts *)(void *)block.memory;
    if (facts == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    names = [constants keyEnumerator];
    for (NSString *name = [names nextObject]; name != nil; name = [names nextObject]) {
        MTLFunctionConstant *constant = [constants objectForKey:name];
        facts[(*count)++] = (bridge_constant_facts){
            .name = add_text(&block, name),
            .data_type = (unsigned)[constant type],
            .index = (unsigned)[constant index],
            .is_required = [constant required],
        };
    }
    qsort(facts, *count, sizeof *facts, compare_constants);
    *out = facts;
    return BRIDGE_OK;
}

bridge_status
bridge_library_constants(bridge_library *library, const char *function,
                         bridge_constant_facts **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    bridge_status status = BRIDGE_NO_KERNEL;
    NSString *name = [NSString stringWithUTF8String:function];
    id<MTLFunction> found =
        name == nil ? nil : [library_object(library) newFunctionWithName:name];
    if (found != nil) {
        status = copy_constants([found functionConstantsDictionary], out, count);
    }
    [found release];
    return status;
}

/* +1, or nil with `*failure`.  A function with constants must be specialised, even by none. */
static id<MTLFunction>
make_function(id<MTLLibrary> library, NSString *name, const bridge_constant *constants,
              size_t count, NSError **failure)
{
    id<MTLFunction> plain = [library newFunctionWithName:name];
    if (plain != nil && count == 0 && [[plain functionConstantsDictionary] count] == 0) {
        return plain;
    }
    [plain release];
    MTLFunctionConstantValues *values = [[MTLFunctionConstantValues alloc] init];
    for (size_t i = 0; i < count; i++) {
        [values setConstantValue:constants[i].value
                            type:constants[i].data_type
                         atIndex:constants[i].index];
    }
    id<MTLFunction> function = [library newFunctionWithName:name
                                             constantValues:values
                                                      error:failure];
    [values release];
    return function;
}

static bridge_parameter
describe_binding(id<MTLBinding> binding, char *name)
{
    bridge_parameter parameter = {
        .name = name,
        .kind = BRIDGE_PARAMETER_OTHER,
        .is_read = [binding access] != MTLBindingAccessWriteOnly,
        .is_written = [binding access] != MTLBindingAccessReadOnly,
        .is_used = [binding isUsed],
        .index = (unsigned)[binding index],
    };
    if ([binding type] == MTLBindingTypeBuffer) {
        id<MTLBufferBinding> buffer = (id<MTLBufferBinding>)binding;
        parameter.kind = BRIDGE_PARAMETER_BUFFER;
        parameter.data_type = (unsigned)[buffer bufferDataType];
        parameter.nbytes = [buffer bufferDataSize];
        parameter.alignment = [buffer bufferAlignment];
    }
    else if ([binding type] == MTLBindingTypeThreadgroupMemory) {
        id<MTLThreadgroupBinding> room = (id<MTLThreadgroupBinding>)binding;
        parameter.kind = BRIDGE_PARAMETER_THREADGROUP;
        parameter.nbytes = [room threadgroupMemoryDataSize];
        parameter.alignment = [room threadgroupMemoryAlignment];
    }
    return parameter;
}

static bridge_status
describe_kernel(id<MTLComputePipelineState> kernel, NSArray *bindings,
                bridge_kernel_facts *facts)
{
    size_t nbytes = 0, count = [bindings count];
    for (size_t i = 0; i < count; i++) {
        nbytes += text_nbytes([(id<MTLBinding>)[bindings objectAtIndex:i] name]);
    }
    text_block block = make_text_block(count * sizeof(bridge_parameter), nbytes);
    bridge_parameter *parameters = (bridge_parameter *)(void *)block.memory;
    if (parameters == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        id<MTLBinding> binding = (id<MTLBinding>)[bindings objectAtIndex:i];
        parameters[i] = describe_binding(binding, add_text(&block, [binding name]));
    }
    *facts = (bridge_kernel_facts){
        .width = [kernel threadExecutionWidth],
        .max_threads = [kernel maxTotalThreadsPerThreadgroup],
        .threadgroup_nbytes = [kernel staticThreadgroupMemoryLength],
        .max_threadgroup_nbytes = [[kernel device] maxThreadgroupMemoryLength],
        .count = count,
        .parameters = parameters,
    };
    return BRIDGE_OK;
}

/* `*failure` where the status is BRIDGE_NO_KERNEL; `*out` is +1. */
static bridge_status
make_kernel(id<MTLDevice> device, id<MTLFunction> function, NSString *name,
            bridge_kernel_facts *facts, id<MTLComputePipelineState> *out, NSError **failure)
{
    MTLComputePipelineReflection *reflection = nil;
    MTLPipelineOption wanted = MTLPipelineOptionBindingInfo | MTLPipelineOptionBufferTypeInfo;
    MTLComputePipelineDescriptor *descriptor = [[MTLComputePipelineDescriptor alloc] init];
    [descriptor setComputeFunction:function];
    [descriptor setLabel:name];
    *out = [device
        newComputePipelineStateWithDescriptor:descriptor
                                      options:facts == NULL ? MTLPipelineOptionNone : wanted
                                   reflection:facts == NULL ? NULL : &reflection
                                        error:failure];
    [descriptor release];
    if (*out == nil) {
        return BRIDGE_NO_KERNEL;
    }
    bridge_status status =
        facts == NULL ? BRIDGE_OK : describe_kernel(*out, [reflection bindings], facts);
    if (status != BRIDGE_OK) {
        [*out release];
        *out = nil;
    }
    return status;
}

bridge_status
bridge_kernel_new(bridge_library *library, const char *function,
                  const bridge_constant *constants, size_t count, bridge_kernel **out,
                  bridge_kernel_facts *facts, char **message, bool *is_source)
{
    *out = NULL;
    *message = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED; /* mutant survives (constant returned): callers refuse before */
    }
    IN_POOL;
    NSError *failure = nil;
    bridge_status status = BRIDGE_NO_KERNEL;
    id<MTLComputePipelineState> kernel = nil;
    NSString *name = [NSString stringWithUTF8String:function];
    id<MTLFunction> found =
        name == nil ? nil
                    : make_function(library_object(library), name, constants, count, &failure);
    if (found != nil) {
        status = make_kernel([library_object(library) device], found, name, facts, &kernel,
                             &failure);
        [found release];
    }
    if (status == BRIDGE_NO_KERNEL) {
        status = refuse(failure, message, is_source);
    }
    *out = (bridge_kernel *)(void *)kernel;
    return status;
}

void
bridge_kernel_release(bridge_kernel *kernel)
{
    release_object(kernel);
}

#define GROUP_THREADS 256 /* in one threadgroup, where the pipeline takes as many */
#define GROUP_DEPTH 64    /* the most along z that any GPU takes */

/* As many threads as fit, along x first: neighbours there touch neighbouring memory. */
static MTLSize
choose_group(id<MTLComputePipelineState> kernel, const size_t grid[3])
{
    NSUInteger most = at_most([kernel maxTotalThreadsPerThreadgroup], GROUP_THREADS);
    NSUInteger width = at_most(grid[0], most);
    NSUInteger height = at_most(grid[1], most / width);
    NSUInteger depth = at_most(most / (width * height), GROUP_DEPTH);
    return (MTLSize){width, height, at_most(grid[2], depth)};
}

/* To the checker: how many bytes the kernel may touch. */
static void
note_view(id<MTLComputeCommandEncoder> encoder, const bridge_argument *argument)
{
#ifndef __APPLE__
    if (argument->is_empty || argument->nbytes != 0) {
        softmetal_note_view(encoder, argument->index, argument->nbytes_before,
                            argument->is_empty ? 0 : argument->nbytes);
    }
#else
    (void)encoder, (void)argument;
#endif
}

static void
set_arguments(id<MTLComputeCommandEncoder> encoder, const bridge_argument *arguments, int count)
{
    for (int i = 0; i < count; i++) {
        const bridge_argument *argument = &arguments[i];
        if (argument->is_threadgroup) {
            [encoder setThreadgroupMemoryLength:argument->nbytes atIndex:argument->index];
        }
        else if (argument->buffer != NULL) {
            [encoder setBuffer:buffer_object(argument->buffer)
                        offset:argument->offset_bytes
                       atIndex:argument->index];
            note_view(encoder, argument);
        }
        else {
            [encoder setBytes:argument->bytes length:argument->nbytes atIndex:argument->index];
            note_view(encoder, argument);
        }
    }
}

static void
dispatch(id<MTLComputeCommandEncoder> encoder, id<MTLComputePipelineState> kernel,
         const bridge_grid *grid)
{
    MTLSize size = {grid->size[0], grid->size[1], grid->size[2]};
    MTLSize group = {grid->group[0], grid->group[1], grid->group[2]};
    if (grid->is_groups) {
        [encoder dispatchThreadgroups:size threadsPerThreadgroup:group];
    }
    else {
        group = group.width == 0 ? choose_group(kernel, grid->size) : group;
        [encoder dispatchThreads:size threadsPerThreadgroup:group];
    }
}

bridge_status
bridge_encode_kernel(bridge_commands *commands, bool is_ours, bridge_kernel *kernel,
                     const bridge_argument *arguments, int count, const bridge_grid *grid)
{
    IN_POOL;
    id<MTLComputeCommandEncoder> encoder = [commands_object(commands) computeCommandEncoder];
    if (encoder != nil) {
        NSString *label = [kernel_object(kernel) label];
        [encoder setLabel:label];
        if (is_ours) {
            [commands_object(commands) setLabel:label];
        }
        [encoder setComputePipelineState:kernel_object(kernel)];
        set_arguments(encoder, arguments, count);
        dispatch(encoder, kernel_object(kernel), grid);
        [encoder endEncoding]; /* of a kernel */
    }
    return encoder == nil ? BRIDGE_NO_COMMAND : BRIDGE_OK;
}

/* ---- captures ---- */

static bridge_status
begin_capture(MTLCaptureManager *manager, bridge_device *device, const char *path,
              char **message)
{
    NSString *text = [NSString stringWithUTF8String:path];
    NSError *failure = nil;
    if (![manager supportsDestination:MTLCaptureDestinationGPUTraceDocument]) {
        return BRIDGE_NO_CAPTURE;
    }
    if ([manager isCapturing]) {
        return BRIDGE_CAPTURING;
    }
    MTLCaptureDescriptor *descriptor = [[MTLCaptureDescriptor alloc] init];
    [descriptor setCaptureObject:device_object(device)];
    [descriptor setDestination:MTLCaptureDestinationGPUTraceDocument];
    [descriptor setOutputURL:text == nil ? nil : [NSURL fileURLWithPath:text]];
    bool begins = [manager startCaptureWithDescriptor:descriptor error:&failure];
    [descriptor release];
    if (!begins) {
        const char *words = [[failure localizedDescription] UTF8String];
        *message = words == NULL ? NULL : strdup(words);
    }
    return begins ? BRIDGE_OK : BRIDGE_NO_TRACE;
}

bridge_status
bridge_capture_begin(bridge_device *device, const char *path, char **message)
{
    *message = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    return begin_capture([MTLCaptureManager sharedCaptureManager], device, path, message);
}

void
bridge_capture_end(void)
{
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    MTLCaptureManager *manager = [MTLCaptureManager sharedCaptureManager];
    if ([manager isCapturing]) { /* nobody else has ended it */
        [manager stopCapture];
    }
}

/* ---- completion ---- */

typedef struct completion_block {
    block_head head;
    bridge_completed *completed;
    void *context;
} completion_block;

static void
add_words(bridge_error *error, const char *before, NSString *name, const char *after)
{
    const char *text = name == nil ? "" : [name UTF8String];
    size_t length = strlen(error->text);
    snprintf(error->text + length, sizeof error->text - length, "%s'%s'%s", before, text,
             after);
}

/* Which encoders, if Metal says so, else what the command buffer is called; unless Metal's words
 * name it. */
static void
name_what_failed(id<MTLCommandBuffer> commands, NSError *failure, bridge_error *error)
{
    static const char *const states[] = {"", " is done", " is affected", " has not run",
                                         " is at fault"}; /* MTLCommandEncoderErrorState */
    NSArray *infos = [[failure userInfo] objectForKey:MTLCommandBufferEncoderInfoErrorKey];
    NSUInteger count = [infos count];
    NSString *name = [commands label];
    if (name == nil || strstr(error->text, [name UTF8String]) != NULL) {
        return;
    }
    for (NSUInteger i = 0; i < count; i++) {
        id<MTLCommandBufferEncoderInfo> info =
            (id<MTLCommandBufferEncoderInfo>)[infos objectAtIndex:i];
        NSInteger state = [info errorState];
        bool is_known = state >= 0 && state < (NSInteger)(sizeof states / sizeof states[0]);
        add_words(error, i == 0 ? " Its encoders: " : ", ", [info label],
                  is_known ? states[state] : "");
    }
    if (count == 0) {
        add_words(error, " It ran ", name, "");
    }
}

static void
run_completed(completion_block *self, id<MTLCommandBuffer> commands)
{
    IN_POOL;
    bridge_error error;
    bool is_done = [commands status] == MTLCommandBufferStatusCompleted;
    NSError *failure = is_done ? nil : [commands error];
    error.code = failure == nil ? 0 : [failure code];
    copy_text([failure localizedDescription], error.text, sizeof error.text);
    if (!is_done) {
        name_what_failed(commands, failure, &error);
    }
    self->completed(self->context, (bridge_commands *)(void *)commands,
                    is_done ? BRIDGE_OK : BRIDGE_COMMAND_FAILED, &error);
}

void
bridge_commands_times(bridge_commands *commands, bridge_times *out)
{
    IN_POOL;
    id<MTLCommandBuffer> object = commands_object(commands);
    out->scheduled = [object kernelStartTime];
    out->started = [object GPUStartTime];
    out->ended = [object GPUEndTime];
}

void
bridge_commands_commit(bridge_commands *commands, bridge_completed *completed, void *context)
{
    static const struct block_descriptor descriptor = {.size = sizeof(completion_block)};
    completion_block block = {BLOCK_HEAD(0, run_completed, &descriptor), completed, context};
    IN_POOL;
    [commands_object(commands) addCompletedHandler:(MTLCommandBufferHandler)(void *)&block];
    [commands_object(commands) commit];
    [commands_object(commands) release];
}

typedef struct raise_block {
    block_head head;
    bridge_event *event; /* owned (+1) by a copy */
    uint64_t value;
} raise_block;

static void
copy_raise_block(void *made, const void *from)
{
    (void)made;
    bridge_event_retain(((const raise_block *)from)->event);
}

static void
dispose_raise_block(const void *copy)
{
    bridge_event_release(((const raise_block *)copy)->event);
}

static void
run_raise(raise_block *self, id<MTLCommandBuffer> commands)
{
    (void)commands;
    bridge_event_raise(self->event, self->value);
}

void
bridge_raise_when_completed(bridge_commands *commands, bridge_event *event, uint64_t value)
{
    static const struct block_descriptor descriptor = {0, sizeof(raise_block), copy_raise_block,
                                                       dispose_raise_block};
    raise_block block = {BLOCK_HEAD(BLOCK_HAS_COPY_DISPOSE, run_raise, &descriptor), event,
                         value};
    IN_POOL;
    [commands_object(commands) addCompletedHandler:(MTLCommandBufferHandler)(void *)&block];
}
