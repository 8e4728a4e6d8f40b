#include <metal_stdlib>
using namespace metal;
#define KERNEL(name, ...) \
    kernel void name(__VA_ARGS__, uint i [[thread_position_in_grid]], \
                     uint t [[thread_index_in_threadgroup]], \
                     uint g [[threadgroup_position_in_grid]], \
                     uint lane [[thread_index_in_simdgroup]], \
                     uint simd [[simdgroup_index_in_threadgroup]])
#define FLOATS device const float *a, device float *b
