/* labelled.m: labels, events, fences and queues: the objects that hold little.
 *
 * Owns:    a copy of the label, behind a lock; the device (+1); a queue its lane (+1).
 * Calls:   event.h, lane.h, failure.h, settings.h, validation.h.
 * Threads: any.
 */
#import "softmetal/apple/objects.h"

#include "softmetal/call_site.h"
#include "softmetal/failure.h"
#include "softmetal/host.h"
#include "softmetal/settings.h"
#include "softmetal/validation.h"

@implementation SoftMetalLabelled

- (instancetype)init
{
    self = [super init];
    pthread_mutex_init(&_labelLock, NULL);
    return self;
}

- (void)dealloc
{
    pthread_mutex_destroy(&_labelLock);
    [_label release];
    [super dealloc];
}

- (NSString *)label
{
    pthread_mutex_lock(&_labelLock);
    NSString *label = [_label retain];
    pthread_mutex_unlock(&_labelLock);
    return [label autorelease];
}

- (void)setLabel:(NSString *)label
{
    NSString *fresh = [label copy];
    pthread_mutex_lock(&_labelLock);
    NSString *before = _label;
    _label = fresh;
    pthread_mutex_unlock(&_labelLock);
    [before release];
}

@end

@implementation SoftMetalSignal

- (instancetype)initWithDevice:(SoftMetalDevice *)device
{
    self = [super init];
    _device = [device retain];
    _event = soft_event_new();
    if (_event == NULL) {
        [self release];
        return nil;
    }
    return self;
}

- (void)dealloc
{
    soft_event_release(_event);
    [_device release];
    [super dealloc];
}

@synthesize device = _device;

@end

@implementation SoftMetalEvent

- (uint64_t)signaledValue
{
    uint64_t value = soft_event_value(_event);
    soft_races_cpu_waited_for_event(_event, value);
    return value;
}

- (void)setSignaledValue:(uint64_t)signaledValue
{
    if (!soft_process_is_forked()) {
        soft_races_cpu_signals(_event, signaledValue);
        soft_event_raise(_event, signaledValue);
    }
}

- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds
{
    BOOL reached;
    if (soft_process_is_forked() || milliseconds == 0) {
        reached = soft_event_value(_event) >= value;
    }
    else {
        uint64_t deadline = soft_monotonic_after(milliseconds, 1000000);
        reached = soft_event_wait(_event, value, deadline) == SOFT_EVENT_REACHED;
    }
    if (reached) {
        soft_races_cpu_waited_for_event(_event, value);
    }
    return reached;
}

@end

@implementation SoftMetalFence
@end

@implementation SoftMetalQueue

- (instancetype)initWithDevice:(SoftMetalDevice *)device limit:(NSUInteger)limit
{
    self = [super init];
    _device = [device retain];
    _lane = soft_lane_new(limit);
    if (_lane == NULL) {
        [self release];
        return nil;
    }
    return self;
}

- (void)dealloc
{
    if (_lane != NULL) {
        if (!soft_process_is_forked()) {
            pthread_mutex_lock(&_lane->lock);
            _lane->is_closed = true;
            pthread_cond_broadcast(&_lane->changed);
            pthread_mutex_unlock(&_lane->lock);
        }
        soft_lane_release(_lane);
    }
    [_device release];
    [super dealloc];
}

@synthesize device = _device;

- (id<MTLCommandBuffer>)makeCommandBuffer:(const char *)method retains:(BOOL)retains
{
    if (!SOFT_DEMAND(!soft_process_is_forked(), SOFT_REPORT_FORK,
                     "-[MTLCommandQueue %s] in a child of fork().", method) ||
        soft_failure_strikes(SOFT_FAIL_COMMAND_BUFFER, NULL) ||
        soft_failure_devices_are_removed()) {
        return nil;
    }
    uint64_t patience_ms = soft_settings_get(SOFT_DEADLOCK_MS);
    if (!soft_lane_enter(_lane, soft_monotonic_after(patience_ms, 1000000))) {
        soft_validation_insist(
            SOFT_REPORT_DEADLOCK,
            "-[MTLCommandQueue %s] waits for %llu ms because all %llu command "
            "buffers of the queue exist and none has completed: some are never "
            "committed or never released.",
            method, (unsigned long long)patience_ms, (unsigned long long)_lane->limit);
        return nil;
    }
    return [[[SoftMetalCommandBuffer alloc] initWithQueue:self retains:retains] autorelease];
}

- (id<MTLCommandBuffer>)commandBuffer
{
    SOFT_CALLED();
    return [self makeCommandBuffer:"commandBuffer" retains:YES];
}

- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences
{
    SOFT_CALLED();
    return [self makeCommandBuffer:"commandBufferWithUnretainedReferences" retains:NO];
}

@end
