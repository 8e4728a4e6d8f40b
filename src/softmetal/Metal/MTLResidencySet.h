/* MTLResidencySet.h: buffers that stay wired, as Apple declares it since macOS 15. */
#ifndef SOFTMETAL_RESIDENCY_SET_H
#define SOFTMETAL_RESIDENCY_SET_H

#import <Foundation/Foundation.h>

@protocol MTLAllocation <NSObject>
@end

@interface MTLResidencySetDescriptor : NSObject
@end

@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end

#endif /* SOFTMETAL_RESIDENCY_SET_H */
