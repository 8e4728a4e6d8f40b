/* commands.m: MTLCommandBuffer: waits, signals, copies and fills, and how it ends. */
#import "bridge/parts.h"

#include <stdio.h>

/* Metal's validation is asked for: its price for the GPU is not documented, so that not all pay it. */
static bool tells_encoders;

__attribute__((constructor)) static void
ask_for_validation(void)
{
    const char *validates = getenv("MTL_DEBUG_LAYER");
    tells_encoders = validates != NULL && strcmp(validates, "0") != 0;
}

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

id<MTLBlitCommandEncoder>
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
bridge_commands_commit(bridge_commands *commands, bridge_event *event, uint64_t value,
                       bridge_completed *completed, void *context)
{
    static const struct block_descriptor descriptor = {.size = sizeof(completion_block)};
    completion_block block = {BLOCK_HEAD(0, run_completed, &descriptor), completed, context};
    IN_POOL;
    if (event != NULL) {
        [commands_object(commands) encodeSignalEvent:event_object(event) value:value];
    }
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
