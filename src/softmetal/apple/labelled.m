/* labelled.m: labels, events and fences: the objects that hold little.
 *
 * Owns:    a copy of the label, behind a lock; the device.
 * Calls:   event.h.
 * Threads: any.
 */
#import "softmetal/apple/objects.h"

#include "softmetal/host.h"
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
