/* buffers.m: MTLBuffer: made, made over pages of the caller's, asked. */
#import "bridge/parts.h"

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

uint64_t
bridge_buffer_gpu_address(bridge_buffer *buffer)
{
    return [buffer_object(buffer) gpuAddress];
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
