/* soft_residency.m: MTLResidencySet: which buffers are wired, and when that lapses.
 *
 * Owns:    a list of the sets that live, and the count of bytes that Metal's own fault keeps wired.
 * Calls:   objects.h, host.h.
 * Threads: any; one lock is round the list.
 * Note:    two things that were measured on Macs are played: a request lasts a second (llama.cpp pull request
 *          17766), and a set that was requested and ended in a process whose GPU never worked keeps its memory
 *          (llama.cpp issue 25937).  A set counts its buffers and keeps none.
 */
#import "softmetal/apple/objects.h"

#include "softmetal/host.h"
#include "softmetal/softmetal.h"

#define LASTS_NS UINT64_C(1000000000)

int soft_gpu_has_worked;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static SoftMetalResidencySet *first; /* borrowed: a set leaves in dealloc */
static size_t lost_nbytes;

size_t
softmetal_resident_nbytes(void)
{
    uint64_t now = soft_monotonic_ns();
    pthread_mutex_lock(&list_lock);
    size_t nbytes = lost_nbytes;
    for (const SoftMetalResidencySet *set = first; set != nil; set = set->_next) {
        nbytes += now < set->_until_ns ? set->_nbytes : 0;
    }
    pthread_mutex_unlock(&list_lock);
    return nbytes;
}

@implementation MTLResidencySetDescriptor
@end

@implementation SoftMetalResidencySet

- (instancetype)init
{
    self = [super init];
    pthread_mutex_lock(&list_lock);
    _next = first;
    first = self;
    pthread_mutex_unlock(&list_lock);
    return self;
}

- (void)dealloc
{
    pthread_mutex_lock(&list_lock);
    SoftMetalResidencySet **place = &first;
    while (*place != self) {
        place = &(*place)->_next;
    }
    *place = _next;
    if (_wasRequested && __atomic_load_n(&soft_gpu_has_worked, __ATOMIC_RELAXED) == 0) {
        lost_nbytes += _nbytes;
    }
    pthread_mutex_unlock(&list_lock);
    [super dealloc];
}

- (void)addAllocation:(id<MTLAllocation>)allocation
{
    SOFT_CALLED();
    pthread_mutex_lock(&list_lock);
    _stagedNbytes += [(id<MTLBuffer>)allocation length];
    pthread_mutex_unlock(&list_lock);
}

- (void)commit
{
    SOFT_CALLED();
    pthread_mutex_lock(&list_lock);
    _nbytes += _stagedNbytes;
    _stagedNbytes = 0;
    pthread_mutex_unlock(&list_lock);
}

- (void)requestResidency
{
    SOFT_CALLED();
    pthread_mutex_lock(&list_lock);
    _until_ns = soft_monotonic_ns() + LASTS_NS;
    _wasRequested = YES;
    pthread_mutex_unlock(&list_lock);
}

- (void)endResidency
{
    SOFT_CALLED();
    pthread_mutex_lock(&list_lock);
    _until_ns = 0;
    pthread_mutex_unlock(&list_lock);
}

@end
