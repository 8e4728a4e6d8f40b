/* queue.m: MTLCommandQueue, and how a command buffer of it is described.
 *
 * Owns:    the device (+1) and the lane (+1); command buffers own their queue.
 * Calls:   lane.h, failure.h, settings.h, validation.h.
 * Threads: any.
 */
#import "softmetal/apple/objects.h"

#include <stdio.h>

#include "softmetal/call_site.h"
#include "softmetal/failure.h"
#include "softmetal/host.h"
#include "softmetal/settings.h"
#include "softmetal/validation.h"

@implementation MTLCommandBufferDescriptor

@synthesize errorOptions = _errorOptions;

- (void)setErrorOptions:(MTLCommandBufferErrorOption)errorOptions
{
    _errorOptions = errorOptions;
}

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
            pthread_cond_signal(&_lane->work);
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
    SoftMetalCommandBuffer *commands = nil;
    if (soft_worker_exists(_lane)) {
        commands = [[SoftMetalCommandBuffer alloc] initWithQueue:self retains:retains];
    }
    else {
        fprintf(stderr,
                "softmetal: -[MTLCommandQueue %s] returns nil: the system starts no thread for "
                "the queue. The process, its user or its container has too many threads, or no "
                "memory for a stack.\n",
                method);
    }
    if (commands == nil) {
        soft_lane_leave(_lane);
    }
    return [commands autorelease];
}

- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor *)descriptor
{
    SOFT_CALLED();
    SoftMetalCommandBuffer *commands =
        (SoftMetalCommandBuffer *)[self makeCommandBuffer:"commandBufferWithDescriptor:"
                                                  retains:YES];
    if (commands != nil) {
        commands->_tellsEncoders = [descriptor errorOptions] != MTLCommandBufferErrorOptionNone;
    }
    return commands;
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
