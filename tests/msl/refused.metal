// What Apple's compiler refuses, a line each, under the sections of the Metal Shading Language Specification 3.2.
// A line that begins with a brace is the body of a kernel: tests/msl/test_by_section.py has its parameters.
// 1.5.4 Restrictions of C++
struct S { virtual void f() {} };
{ auto p = new int; }
{ delete x; }
{ again: goto again; }
{ try { x[i] = 1; } catch (...) { } }
{ throw 1; }
{ x[i] = typeid(int) == typeid(float); }
{ register int a = 1; x[i] = a; }
{ asm("nop"); }
thread_local constant int a = 1;
#include <vector>
#include <cmath>
// 1.5.3 C++14
{ std::vector<int> v; }
{ static_assert(sizeof(int) == 8, "no"); }
{ int a[] = {1.5f}; x[i] = a[0]; }
enum class E { a }; void f() { int b = E::a; }
class C { int a; }; int f(C c) { return c.a; }
template <int N> int f() { return N; } int g() { return f<float>(); }
constexpr int f(int a) { return a / 0; } constexpr constant int b = f(1);
struct S { int a; }; int f(S s) { return s.b; }
void f(int a) { switch (a) { case 1: case 1: break; } }
int f(const int a) { a = 2; return a; }
template <class T> T f(T a, T b) { return a; } float g() { return f(1, 2.0f); }
// 2.1 Scalars
{ double a = 1; x[i] = a; }
{ long double a = 1; }
{ long long a = 1; x[i] = a; }
{ float32_t a = 1; }
{ x[i] = 1.0f % 2.0f; }
{ x[i] = x[i] << 1; }
{ x[i] = ~x[i]; }
{ int *thread p = nullptr; }
{ x[i] = as_type<float>(half(1)); }
{ x[i] = as_type<float2>(1.0f).x; }
// 2.2 Vectors
{ float5 a; }
{ vec3 a = vec3(1); }
{ x[i] = float2(1).z; }
{ x[i] = float4(1).xr.x; }
{ float2 a; a.xx = float2(1); }
{ float4 a = float4(1, 2, 3, 4, 5); }
{ float4 a = float4(float2(1), 1.0f); }
{ float4 a = float3(1); }
{ float4 a = float4(1.0f, 2.0f); }
{ float3 a = float3(1.0f, 2.0f); }
{ float4 a = int4(1); }
{ half4 a = float4(1); }
{ float4 a = float4(1) + int4(1); }
{ float4 a = float4(1) * float2(1); }
{ if (float4(1) == float4(2)) x[i] = 1; }
{ bool b = float2(1) < float2(2); }
{ float4 a = float4(1) % float4(2); }
{ float a = float4(1); }
// 2.3 Matrices
{ int2x2 a; }
{ float3 a = float4x4(1) * float3(1); }
{ float4x4 a = float4x4(1) * float3x3(1); }
{ float4x4 a; a[0] = float3(1); }
{ float2x2 a = float3x3(1); }
// 2.13 Argument buffers
struct S { threadgroup int *a; }; kernel void k(device S *s) { s[0].a[0] = 1; }
struct S { device float *a [[id(0)]]; device int *b [[id(0)]]; }; kernel void k(constant S &s) { s.a[0] = s.b[0]; }
// 3 Operators
{ x[i] = x + x; }
{ x[i]++++; }
{ 1 = x[i]; }
// 4 Address spaces
void f(float *p) { p[0] = 1; }
void f(float &r) { r = 1; }
float *f();
struct S { float *p; };
{ float *p = x; }
{ float &r = x[0]; r = 1; }
{ float *p[2] = {x, x}; }
{ thread float *p = x; p[0] = 1; }
{ thread float &r = x[0]; r = 1; }
{ thread float *p = (thread float *)x; p[0] = 1; }
{ thread float *p = reinterpret_cast<thread float *>(x); p[0] = 1; }
{ constant float *p = x; x[i] = p[1]; }
{ threadgroup float t[2]; device float *p = t; p[0] = 1; }
{ float a = 1; device float *p = &a; p[0] = 1; }
void f(thread float *p) { p[0] = 1; } kernel void k(device float *x) { f(x); }
void f(threadgroup float *p) { p[0] = 1; } kernel void k(device float *x) { f(&x[1]); }
void f(device float *p) { p[0] = 1; } kernel void k(constant float *x) { f(x); }
// 4.1, 4.2, 4.4 Device, constant and threadgroup memory
float a = 1;
static int a = 1;
int a[4];
device float a[4];
threadgroup float a[4];
constant float a;
constant float a = 1; void f() { a = 2; }
{ k4[0] = 1; }
void f(const device float *p) { p[0] = 1; }
void f() { threadgroup float t[4]; t[0] = 1; }
{ static int a = 1; x[i] = a; }
// 5.1 Functions
kernel int k(device float *x) { return 1; }
kernel void a(device float *x) { x[0] = 1; } kernel void k(device float *x) { a(x); }
// 5.2 Arguments
kernel void k(device float x) { }
kernel void k(float a, device float *x) { x[0] = a; }
kernel void k(thread float *x) { x[0] = 1; }
kernel void k(device float *x [[buffer(31)]]) { x[0] = 1; }
kernel void k(device float *x [[buffer(-1)]]) { x[0] = 1; }
kernel void k(device float *x [[buffer(1)]], device float *y [[buffer(1)]]) { x[0] = y[0]; }
kernel void k(threadgroup float *x [[threadgroup(40)]]) { x[0] = 1; }
// 5.2.3.6 Attributes of kernels' parameters
kernel void k(device float *x, float i [[thread_position_in_grid]]) { x[0] = i; }
kernel void k(device float *x, uint4 i [[thread_position_in_grid]]) { x[0] = i.x; }
kernel void k(device float *x, int i [[thread_index_in_simdgroup]]) { x[0] = i; }
kernel void k(device float *x, uint2 i [[thread_index_in_threadgroup]]) { x[0] = i.x; }
kernel void k(device float *x, uint i [[thread_position_in_gird]]) { x[0] = i; }
kernel void k(device float *x, uint i [[thread_position_in_grid]], uint2 j [[thread_position_in_threadgroup]]) { x[0] = i + j.x; }
// 5.8 Function constants
float a [[function_constant(0)]];
constant int a [[function_constant(0)]] = 3;
// 6.5 Mathematical functions
{ x[i] = lerp(1.0f, 2.0f, 0.5f); }
{ x[i] = frac(x[i]); }
{ x[i] = mad(x[i], 2.0f, 1.0f); }
{ x[i] = sinf(x[i]); }
{ x[i] = clamp(x[i], 0.0f); }
{ x[i] = dot(float3(1), float4(1)); }
{ x[i] = cross(float4(1), float4(1)).x; }
{ x[i] = mul(float2x2(1), float2(1)).x; }
// 6.9 Threadgroup and SIMD-group functions
{ threadgroup_barrier(); }
{ threadgroup_barrier(1); }
{ __syncthreads(); }
{ barrier(CLK_LOCAL_MEM_FENCE); }
{ x[get_global_id(0)] = 1; }
{ x[threadIdx.x] = 1; }
{ x[i] = simd_shuffle(x[i]); }
{ x[i] = simd_sum(x[i], 2); }
// 6.15 Atomics
{ atomic_fetch_add_explicit(n, 1, memory_order_relaxed); }
{ atomic_fetch_add_explicit((device atomic_int *)n, 1); }
{ atomicAdd(n, 1); }
{ (*(device atomic_int *)n)++; }
void f(constant atomic_int *a) { atomic_store_explicit(a, 1, memory_order_relaxed); }
// 6.12 Textures
void f(texture2d<float, access::read> t) { t.write(float4(1), uint2(0)); }
{ printf("%d", 1); }
{ x[i] = (float *)malloc(4); }
// 2.9, 6.12 Textures and samplers
kernel void k(texture2d<float, access::write> t, device float *x) { x[0] = t.read(uint2(0)).x; }
kernel void k(texture2d<float, access::write> t, sampler s, device float *x) { x[0] = t.sample(s, float2(0)).x; }
kernel void k(texture2d<float, access::read> t, sampler s, device float *x) { x[0] = t.sample(s, float2(0)).x; }
kernel void k(texture2d<float> t) { t.write(float4(1), uint2(0)); }
kernel void k(texture2d<float, access::read> t, device float *x) { x[0] = t.read(float2(0)).x; }
kernel void k(texture2d<float, access::read> t, device float *x) { x[0] = t.read(int2(0)).x; }
kernel void k(texture2d<float, access::read> t, device float *x) { x[0] = t.read(uint3(0)).x; }
kernel void k(texture1d<float, access::read> t, device float *x) { x[0] = t.read(1.5f).x; }
kernel void k(texture2d_array<float, access::read> t, device float *x) { x[0] = t.read(uint2(0)).x; }
kernel void k(texture2d<float> t, sampler s, device float *x) { x[0] = t.sample(s, uint2(0)).x; }
kernel void k(texture2d<float> t, sampler s, device float *x) { x[0] = t.sample(float2(0), s).x; }
kernel void k(texture2d<float> t, sampler s, device float *x) { x[0] = t.sample(s, float2(0), level(1), min_lod_clamp(1)).x; }
kernel void k(texture2d<float> t, device float *x) { x[0] = t.get_depth(); }
kernel void k(texture2d<float, access::read> t, device float4 *x) { x[0] = t.read(uint2(0)).xy; }
kernel void k(texture2d<half, access::write> t) { t.write(float4(1), uint2(0)); }
kernel void k(depth2d<float> t, device float4 *x) { float4 v = t.read(uint2(0)).xyzw; x[0] = v; }
kernel void k(texture2d<float> t, sampler s, device float *x) { x[0] = t.sample_compare(s, float2(0), 0.5f); }
kernel void k(texture2d<float, access::read_write> t) { t.atomic_fetch_add(uint2(0), 1.0f); }
kernel void k(texture2d<uint, access::read> t) { t.atomic_fetch_add(uint2(0), 1u); }
kernel void k(texture2d<float, access::read> t) { t.fence(); }
kernel void k(texture3d<float> t, sampler s, device float *x) { x[0] = t.gather(s, float3(0)).x; }
{ constexpr sampler s(5); }
{ constexpr sampler s(filter::cubic); }
// 6.3 to 6.5 Functions of floats, of which vectors of integers are none
{ x[i] = sin(int4(n[i])).x; }
{ x[i] = sign(int2(n[i])).x; }
{ x[i] = fma(uint3(1), uint3(2), uint3(3)).x; }
