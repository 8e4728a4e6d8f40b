/* softmetal_synchronization.h: barriers, fences, and the words for memory and scope.
 *
 * Owns:    nothing.
 * Calls:   the run time.
 * Threads: a barrier returns when the others have come.
 */
#ifndef SOFTMETAL_SYNCHRONIZATION_H
#define SOFTMETAL_SYNCHRONIZATION_H

#include "softmetal_runtime.h"

namespace metal {
enum class mem_flags : uint {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_device_and_threadgroup = 3,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8,
    mem_object_data = 16,
};
SOFTMETAL_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) {
    return mem_flags(uint(a) | uint(b));
}
SOFTMETAL_INLINE constexpr mem_flags operator&(mem_flags a, mem_flags b) {
    return mem_flags(uint(a) & uint(b));
}

enum memory_order {
    memory_order_relaxed = __ATOMIC_RELAXED,
    memory_order_acquire = __ATOMIC_ACQUIRE,
    memory_order_release = __ATOMIC_RELEASE,
    memory_order_acq_rel = __ATOMIC_ACQ_REL,
    memory_order_seq_cst = __ATOMIC_SEQ_CST,
};
enum thread_scope {
    thread_scope_thread,
    thread_scope_simdgroup,
    thread_scope_threadgroup,
    thread_scope_device,
};

SOFTMETAL_CONVERGENT void threadgroup_barrier(mem_flags flags,
                                              thread_scope = thread_scope_threadgroup) {
    softmetal::wait_for_group(uint(flags));
}
SOFTMETAL_CONVERGENT void simdgroup_barrier(mem_flags, thread_scope = thread_scope_simdgroup) {
    softmetal::wait_for_all_lanes();
}
/* The strongest order is one that each weaker one allows. */
SOFTMETAL_INLINE void atomic_thread_fence(mem_flags, memory_order,
                                          thread_scope = thread_scope_device) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
} // namespace metal

#endif /* SOFTMETAL_SYNCHRONIZATION_H */
