/* residency.m: MTLResidencySet: buffers that stay wired for the GPU.
 *
 * Note:    macOS 15 brought it, and the SDK of 14 cannot name it, so its methods are declared here and asked
 *          for at run time.
 */
#import "bridge/parts.h"

#import <objc/runtime.h>

@protocol BridgeResidencySet <NSObject>
- (void)addAllocation:(id)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end

@protocol BridgeResidencyDevice <NSObject>
- (id)newResidencySetWithDescriptor:(id)descriptor error:(NSError **)error;
@end

static id<BridgeResidencySet>
set_object(bridge_residency *set)
{
    return (id<BridgeResidencySet>)(void *)set;
}

/* +1, or nil. */
static id<BridgeResidencySet>
make_set(id<BridgeResidencyDevice> device, Class described_by)
{
    id<NSObject> descriptor = [[described_by alloc] init];
    id<BridgeResidencySet> set = [device newResidencySetWithDescriptor:descriptor error:NULL];
    [descriptor release];
    return set;
}

bridge_status
bridge_residency_new(bridge_device *device, bridge_buffer *const *buffers, size_t count,
                     bridge_residency **out)
{
    *out = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    id<BridgeResidencyDevice> asked = (id<BridgeResidencyDevice>)(void *)device;
    Class described_by = objc_getClass("MTLResidencySetDescriptor");
    if (described_by == Nil ||
        ![asked respondsToSelector:@selector(newResidencySetWithDescriptor:error:)]) {
        return BRIDGE_NO_RESIDENCY;
    }
    id<BridgeResidencySet> set = make_set(asked, described_by);
    if (set == nil) {
        return BRIDGE_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        [set addAllocation:buffer_object(buffers[i])];
    }
    [set commit];
    [set requestResidency];
    *out = (bridge_residency *)(void *)set;
    return BRIDGE_OK;
}

void
bridge_residency_request(bridge_residency *set)
{
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    [set_object(set) requestResidency];
}

void
bridge_residency_end(bridge_residency *set)
{
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    [set_object(set) endResidency];
    [set_object(set) release];
}
