/* encoder.m: what all encoders share.
 *
 * Owns:      the command buffer (+1), so that an encoder may outlive the caller's reference.
 * Calls:     program.h, validation.h.
 * Threads:   one thread at a time, as Metal demands.
 * Invariant: the command buffer's `_encoder` is this object until endEncoding or dealloc.
 */
#import "softmetal/apple/objects.h"

#include <stdlib.h>

#include "softmetal/apple/object_list.h"
#include "softmetal/validation.h"

@implementation SoftMetalEncoder

- (instancetype)initWithCommandBuffer:(SoftMetalCommandBuffer *)commandBuffer
{
    self = [super init];
    if (self != nil) {
        _commandBuffer = [commandBuffer retain];
    }
    return self;
}

- (void)dealloc
{
    if (!_isEnded) {
        char site[512];
        soft_call_site_describe(soft_object_of(self)->site, site, sizeof site);
        soft_validation_report(
            SOFT_REPORT_NO_END_ENCODING,
            "a command encoder is released without endEncoding; it was made at "
            "%s",
            site);
        _commandBuffer->_encoder = nil;
    }
    [_commandBuffer release];
    [super dealloc];
}

- (id<MTLDevice>)device
{
    return [_commandBuffer device];
}

- (BOOL)isOpenFor:(const char *)method
{
    if (_isEnded) {
        soft_validation_report(SOFT_REPORT_ENCODER_STATE, "-[%s] after endEncoding.", method);
    }
    return !_isEnded;
}

- (void)endEncoding
{
    if ([self isOpenFor:"MTLCommandEncoder endEncoding"]) {
        _isEnded = YES;
        _commandBuffer->_encoder = nil;
    }
}

/* The token of a fence, kept alive; NULL after a report. */
- (soft_event *)tokenOf:(id)fence for:(const char *)method
{
    if (![self isOpenFor:method]) {
        return NULL;
    }
    if (![fence isKindOfClass:[SoftMetalFence class]]) {
        soft_validation_report(SOFT_REPORT_ARGUMENT, "-[%s]: the fence is nil.", method);
        return NULL;
    }
    [_commandBuffer keepObject:fence];
    return ((SoftMetalFence *)fence)->_event;
}

- (void)addUpdatedFence:(id)fence
{
    soft_event *token = [self tokenOf:fence for:"MTLCommandEncoder updateFence:"];
    soft_pass *pass = token != NULL ? [_commandBuffer openPass] : NULL;
    if (pass != NULL && !soft_pass_add_fence(&pass->updated, &pass->updated_count, token)) {
        abort();
    }
}

- (void)addAwaitedFence:(id)fence
{
    soft_event *token = [self tokenOf:fence for:"MTLCommandEncoder waitForFence:"];
    soft_pass *pass = token != NULL ? [_commandBuffer openPass] : NULL;
    if (pass != NULL && !soft_pass_add_fence(&pass->awaited, &pass->awaited_count, token)) {
        abort();
    }
}

@end
