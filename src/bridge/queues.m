/* queues.m: MTLCommandQueue and MTLSharedEvent. */
#import "bridge/parts.h"

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
