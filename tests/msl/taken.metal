// What Apple's compiler takes, as in refused.metal.
// 1.5.3 C++14
typedef struct { float a; } S; float f(S s) { return s.a; }
template <class T> struct A { using type = T; static constexpr constant int n = 3; }; A<int>::type f() { return A<float>::n; }
template <class T> struct A { }; template <> struct A<int> { int a; }; int f(A<int> a) { return a.a; }
int f(int a = 3) { return a; } int g() { return f(); }
template <typename F> int f(F g) { return g(2); } struct G { int operator()(int a) const { return a; } }; int h() { return f(G()); }
{ float a[4] = {}; for (uint j = 0; j < 4; ++j) a[j] = j; x[i] = a[i % 4]; }
{ struct { float a; } s = {1}; x[i] = s.a; }
constant int a = sizeof(float4) + alignof(int);
struct S { int a; }; bool operator==(S a, S b) { return a.a == b.a; } bool f(S s) { return s == s; }
{ auto a = x[i]; decltype(a) b = a; x[i] = b; }
struct A { int a; int f() const { return a; } }; struct B : A { int b; }; int f(B b) { return b.f() + b.b; }
template <typename T, int N> struct S { T a[N]; T sum() const thread { T s = 0; for (int i = 0; i < N; i++) s += a[i]; return s; } };
template <typename... T> int f(T... a) { return sizeof...(a); } int g() { return f(1, 2.0f, 3u); }
template <class T> constexpr constant T pi = T(3.14159); float f() { return pi<float>; }
constexpr int f(int a) { return a < 2 ? 1 : a * f(a - 1); } constant int b = f(5);
enum class E : uchar { a, b }; int f(E e) { switch (e) { case E::a: return 1; default: return 2; } }
namespace a { namespace b { inline int f() { return 1; } } } using namespace a::b; int g() { return f(); }
struct S { float a; S() : a(1) {} explicit S(float b) : a(b) {} S operator+(S o) const { return S(a + o.a); } operator float() const { return a; } };
union U { float a; uint b; }; uint f(float a) { U u; u.a = a; return u.b; }
using F = float; typedef int I; F f(I a) { return F(a); }
{ int a[] = {1, 2, 3}; for (auto b : a) x[i] += b; }
{ do { x[i] += 1; } while (x[i] < 4); while (true) { if (x[i] > 9) break; x[i] *= 2; continue; } }
static_assert(sizeof(float3) == 16 && sizeof(packed_float3) == 12 && alignof(float4) == 16, "");
template <class T, enable_if_t<is_integral_v<T>, int> = 0> int f(T) { return 1; } template <class T, enable_if_t<is_floating_point_v<T>, int> = 0> int f(T) { return 2; } int g() { return f(1) + f(1.0f); }
// 2.1 Scalars
{ half a = 1.5h, b = half(x[i]); a = a * b + 1; x[i] = a; }
{ x[i] = static_cast<float>(n[i]) + float(ushort(3)) + (float)4; }
{ x[i] = i > 2 ? 1 : 2.0f; }
{ uint a = (1u << 3 | 2) & ~4u ^ 5u; x[i] = a % 3 + a / 2; }
{ bool a = x[i]; a = !a || i > 2 && a; x[i] = a; }
{ bool a = true; char b = 'a'; uchar c = 2; short d = 3; ushort e = 4; int f = 5; uint g = 6u; long h = 7l; ulong j = 8ul; half k = 9.0h; float l = 1.0f; x[i] = a + b + c + d + e + f + g + h + j + k + l; }
{ int8_t a = 1; uint16_t b = 2; int32_t c = 3; uint64_t d = 4; size_t e = 5; ptrdiff_t f = 6; x[i] = a + b + c + d + e + f; }
{ bfloat a = 1.0bf; x[i] = float(a) + float(bfloat(2.0f)); }
{ x[i] = 0x1p-2f + 1e3f + 0b101 + 0777 + 1'000; }
{ x[i] = as_type<float>(as_type<uint>(x[i]) ^ 1u); }
{ x[i] = as_type<half2>(1.0f).x; }
{ unsigned a = 1; unsigned char b = 2; signed short c = 3; x[i] = a + b + c; }
{ x[i] = INFINITY + NAN + FLT_MAX + HALF_MAX + INT_MAX + M_PI_F; }
// 2.2 Vectors
{ float4 a = 1; float3 b = float3(a.xy, 2); x[i] = b.z + a.w; }
{ uchar4 a = uchar4(x[i]); x[i] = float4(a).x; }
{ float2 a = float2(1) / float2(2); a += 1; a *= a; x[i] = -a.x; }
{ x[i] = as_type<int4>(float4(1)).x + as_type<short2>(1).y; }
{ packed_uchar4 a = uchar4(1); packed_int2 b = int2(2); x[i] = a[0] + b[1]; }
{ int4 a = int4(5) % 3; a &= 6; a ^= int4(1); a <<= 1; x[i] = a.w; }
{ float4 a = float4(1, 2, 3, 4), b = float4(1), d = float4(float2(1), 2, 3), e = float4(1, float3(2)); x[i] = dot(a + b, d - e); }
{ float4 a = float4(1); a.xy = a.zw; a.wzyx = a; a.rgb *= 2; a[2] = a.g; x[i] = a.r; }
{ float4 a = {1, 2, 3, 4}, b = {1, 2, 3}; float2 c = a.xz; x[i] = c.y + b.w; }
{ bool4 a = float4(1) < float4(2); x[i] = any(a) && all(a == bool4(true)); }
{ int3 a = int3(float3(1.5f)); uint3 b = uint3(a); x[i] = (a << 1).x + (b >> 1u).y + (-a).z + (~b).x + (!bool3(a)).x; }
{ packed_float3 a = float3(1); packed_half4 b = half4(2); float3 d = a; x[i] = d.x + float(b[1]); }
{ char4 a = char4(1); long2 b = long2(2); half3 d = half3(3); ulong4 e = ulong4(4); x[i] = a.x + b.y + d.z + e.w; }
{ float4 a = select(float4(1), float4(2), bool4(true)); a = mix(a, 2.0f, 0.5f); a = 2.0f * a + 1.0f; x[i] = a.x; }
{ vec<float, 3> a(1, 2, 3); x[i] = a.z; }
template <class T, uint N, uint M> int f(thread vec<T, N> (&a)[M]) { return N * M; } int g(float4 a) { float4 b[3] = {a, a, a}; return f(b); }
static_assert(is_integral<int4>::value && !is_integral_v<float2> && is_floating_point_v<half3>, ""); template <class T, class = enable_if_t<is_integral<T>::value>> T sign(T a) { return select(T(1), T(-1), a < T(0)); } int3 f(int3 a) { return sign(a); }
// 2.3 Matrices
{ half4x4 a(half4(1), half4(2), half4(3), half4(4)); x[i] = a[3][2]; }
{ float3x3 a = float3x3(float3(1), float3(2), float3(3)); a[0] = float3(4); a = -a; x[i] = (a * 2.0f)[0].x; }
{ float4x4 a(1.0f); float4 b = a * float4(1), d = float4(1) * a; a[1][2] = b.x; a = a * a + a - a; x[i] = determinant(a) + transpose(a)[2][1] + d.y; }
{ float2x3 a = float2x3(float3(1), float3(2)); float3 b = a * float2(1); half3x2 d; d[0] = half2(1); x[i] = b.x + d[0].x; }
{ matrix<float, 2, 2> a = matrix<float, 2, 2>(1); a *= 2.0f; x[i] = a[0][0]; }
// 2.4, 6.7 SIMD-group matrices
{ simdgroup_float8x8 a, b(2.0f), d; simdgroup_load(a, x, 8); simdgroup_multiply(d, a, b); simdgroup_multiply_accumulate(d, a, b, d); simdgroup_store(d, x, 8); }
// 2.11 Arrays
{ array<float, 4> a = {1, 2, 3, 4}; x[i] = a[1] + a.size(); }
{ float a[2][3] = {{1, 2, 3}, {4, 5, 6}}; x[i] = a[1][2]; }
// 2.13 Argument buffers
struct S { device float *a; constant uint *b; ulong n; }; kernel void k(constant S &s, uint i [[thread_position_in_grid]]) { s.a[i] = s.b[i] + s.n; }
struct A { device float *a; }; struct S { A a[2]; const device A *b; }; kernel void k(device S *s) { s->a[1].a[0] = s->b->a[0]; }
struct S { array<device float *, 4> a [[id(0)]]; device int *b [[id(4)]]; }; kernel void k(device S &s) { s.a[3][0] = s.b[0]; }
// 4 Address spaces
struct S { float a[4]; }; void f(device S *s, threadgroup S *t, thread S &u) { u = *s; *t = u; s->a[1] = t->a[2]; }
{ const constant float4 *p = k4; x[i] = p[1].x; }
{ device packed_float3 *p = (device packed_float3 *)x; p[i] = float3(1); }
template <typename P> float f(P p) { return p[0]; } float g(device float *p, constant float *q) { return f(p) + f(q); }
void f(volatile device float *p) { *p = 1; float a = *p; (void)a; }
{ device float *p = nullptr; if (p == nullptr) p = x; p += i; *p = p - x; }
void f(device float *p, constant float *q, thread float *r, threadgroup float *s) { *p = *q + *r + *s; }
void f(thread float &r) { r += 1; } kernel void k(device float *x) { float a = x[0]; f(a); x[0] = a; }
{ device float *p = x + 1; const device float *q = p; device int *r = (device int *)x; p[0] = q[1] + r[2]; }
{ device const float4 *p = reinterpret_cast<device const float4 *>(x); x[i] = p->x; }
{ thread float a[3] = {1, 2, 3}; thread float *p = a; x[i] = p[1]; }
{ ulong a = (ulong)x; x[i] = a != 0; }
template <typename T> T f(const device T *p) { return *p; } template <typename T> T f(const threadgroup T *p) { return *p; }
template <class T> constexpr bool is_float_pointer() { return is_same<T, device float *>::value || metal::is_same<T, threadgroup float *>::value || is_same<T, thread float *>::value; } static_assert(is_float_pointer<thread float *>(), "");
template <class T> enable_if_t<sizeof(T) == 4, int> f(device T *x) { return 1; } template <class T> enable_if_t<sizeof(T) == 2, int> f(const thread T *x) { return 2; } int g(device float *x, thread half *y) { return f(x) + f(y); }
template <class T> enable_if_t<is_integral_v<T>, int> f(device T *x) { return 1; } template <class T> enable_if_t<is_integral_v<T>, int> f(thread T *x) { return 2; } int g(int a) { return a; }
struct A { template <class T> static T f(device T &x) { return x; } template <class T> static T f(thread T &x) { return x; } }; struct B { template <class T> static T f(device T &x) { return -x; } template <class T> static T f(thread T &x) { return -x; } }; template <> half A::f<half>(device half &x) { return x + 1; } template <> half B::f<half>(thread half &x) { return x + 2; }
template <class T> struct M { T a; M() thread = default; M(const thread M &) thread = default; M(const device M &) thread = default; thread M &operator=(const thread M &) thread = default; thread M &operator=(const device M &) thread = default; thread M &operator=(const constant T &b) thread { a = b; return *this; } thread M &operator=(const device T &b) thread { a = b; return *this; } thread M &operator=(initializer_list<T> b) thread { a = *b.begin(); return *this; } };
// 4.1, 4.2, 4.4 Device, constant and threadgroup memory
{ threadgroup float t[4][8]; threadgroup float *p = t[1]; p[i % 8] = 1; x[i] = t[1][i % 8]; }
constant float a[3] = {1, 2, 3}; float f(int i) { return a[i]; }
constant constexpr int a = 3; constexpr constant float b = a * 2; static constant int d = 4;
struct S { float a; int b; }; constant S s[] = {{1, 2}, {3, 4}}; float f() { return s[1].a; }
{ threadgroup float t[64]; threadgroup float2 u; t[i % 64] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); u.x = t[0]; x[i] = u.x; }
{ threadgroup union { float a[4]; int b[4]; } t; t.b[0] = 1; x[i] = t.a[0]; }
{ if (i == 0) { threadgroup int t; t = 1; x[i] = t; } }
// 5.1 Functions
kernel void a(device float *x) { x[0] = 1; } kernel void b(device float *x) { x[0] = 2; }
[[host_name("other")]] kernel void k(device float *x) { x[0] = 1; }
[[kernel]] void k(device float *x) { x[0] = 1; }
template <typename T> kernel void k(device T *x) { x[0] = 1; } template [[host_name("k_int")]] kernel void k<int>(device int *); template [[host_name("k_half")]] kernel void k<half>(device half *);
[[kernel, max_total_threads_per_threadgroup(64)]] void k(device float *x) { x[0] = 1; }
inline float f(float a) __attribute__((always_inline)); inline float f(float a) { return a; } static float g(float a) { return f(a); }
int f(int a) { return a; } float f(float a) { return a; } int g() { return f(1) + int(f(1.0f)); }
// 5.2 Arguments
kernel void k(constant float2 *a [[buffer(2)]], const device int *b [[buffer(1)]], device atomic_int *c [[buffer(0)]], volatile device float *d) { *d = a[0].x + b[0]; }
kernel void k(device float *x [[buffer(30)]], constant float &y [[buffer(0)]], threadgroup float *t [[threadgroup(1)]]) { t[0] = y; x[0] = t[0]; }
kernel void k(device float4 &x, constant float (&y)[3], device const uchar *z, constant void *w) { x = y[0] + z[0] + *(constant float *)w; }
struct S { float3 a; packed_float3 b; float4x4 m; uint n[3]; bool c; }; kernel void k(constant S &s, device float *x) { x[0] = s.a.x + s.b[1] + s.m[0][0] + s.n[2] + s.c; }
// 5.2.3.6 Attributes of kernels' parameters
kernel void k(device float *x, uint a [[thread_execution_width]], uint b [[quadgroup_index_in_threadgroup]], uint c [[thread_index_in_quadgroup]]) { x[a] = b + c; }
kernel void k(device float *x, uint3 a [[dispatch_threads_per_threadgroup]], uint3 b [[threadgroups_per_grid]], uint c [[simdgroups_per_threadgroup]]) { x[a.x] = b.y + c; }
kernel void k(device float *x, uint3 a [[thread_position_in_grid]], uint3 b [[threads_per_grid]], uint3 c [[threadgroup_position_in_grid]]) { x[a.x] = b.y + c.z; }
kernel void k(device float *x, ushort a [[thread_index_in_simdgroup]], ushort b [[simdgroup_index_in_threadgroup]], uint c [[threads_per_simdgroup]], uint d [[thread_index_in_threadgroup]]) { x[d] = a + b + c; }
kernel void k(device float *x, ushort2 a [[thread_position_in_threadgroup]], ushort2 b [[threads_per_threadgroup]]) { x[a.x] = b.y; }
// 5.8 Function constants
constant bool a [[function_constant(0)]]; constant int b [[function_constant(1)]]; constant float4 d [[function_constant(2)]]; kernel void k(device float *x) { x[0] = 1; }
constant bool a [[function_constant(0)]]; kernel void k(device float *x, device float *y [[function_constant(a)]]) { x[0] = 1; }
// 6.3 to 6.6 Common, integer, relational and mathematical functions
{ x[i] = clamp(x[i], 0.0f, 1.0f) + saturate(x[i]) + smoothstep(0.0f, 1.0f, x[i]) + step(0.5f, x[i]) + mix(1.0f, 2.0f, x[i]) + sign(x[i]); }
{ x[i] = abs(-1) + clz(1) + ctz(2) + popcount(3u) + reverse_bits(4u) + rotate(5u, 1u) + mulhi(6, 7) + absdiff(1, 2) + hadd(3, 4) + max3(1, 2, 3) + median3(1, 2, 3) + extract_bits(7u, 1, 2) + insert_bits(0u, 1u, 2, 3); }
{ x[i] = isnan(x[i]) + isinf(x[i]) + isfinite(x[i]) + signbit(x[i]) + isnormal(x[i]); }
{ x[i] = sin(x[i]) + cos(x[i]) + exp2(x[i]) + log10(x[i]) + pow(x[i], 2.0f) + rsqrt(x[i]) + fma(x[i], 2.0f, 1.0f) + fmod(x[i], 2.0f) + atan2(x[i], 1.0f) + fract(x[i]) + rint(x[i]) + trunc(x[i]) + powr(x[i], 2.0f) + sinpi(x[i]); }
{ float a; x[i] = sincos(x[i], a) + modf(x[i], a); int b; x[i] += frexp(x[i], b) + ldexp(x[i], 2) + ilogb(x[i]); }
{ x[i] = fast::exp(x[i]) + precise::sqrt(x[i]) + fast::sin(x[i]); }
{ x[i] = distance(float3(1), float3(2)) + length(float2(1)) + normalize(float3(1)).x + cross(float3(1), float3(2)).y + reflect(float3(1), float3(0)).z + faceforward(float2(1), float2(1), float2(1)).x; }
// 6.9 Threadgroup and SIMD-group functions
{ x[i] = simd_product(x[i]) + simd_min(x[i]) + simd_prefix_inclusive_product(x[i]); n[i] = simd_and(n[i]) + simd_or(n[i]) + simd_xor(n[i]); }
{ x[i] = simd_shuffle_and_fill_down(x[i], 1.0f, 1) + simd_shuffle_xor(x[i], 3) + simd_broadcast(x[i], 0); }
{ x[i] = quad_broadcast(x[i], 1) + quad_shuffle_up(x[i], 1) + quad_max(x[i]) + quad_all(i > 1); }
{ threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); simdgroup_barrier(mem_flags::mem_none); }
{ x[i] = simd_sum(x[i]) + simd_max(x[i]) + simd_prefix_exclusive_sum(x[i]) + simd_shuffle_down(x[i], 1) + simd_broadcast_first(x[i]) + simd_shuffle_rotate_up(x[i], 2) + quad_sum(x[i]); }
{ x[i] = simd_all(i > 2) + simd_any(i > 3) + simd_is_first() + ulong(simd_vote::vote_t(simd_ballot(i > 1))); }
// 6.14 Packing
{ x[i] = pack_float_to_snorm2x16(float2(1)) + unpack_snorm2x16_to_float(3).x; }
{ x[i] = pack_half_to_unorm4x8(half4(1)) + float(unpack_unorm4x8_to_half(3).w); }
{ x[i] = unpack_unorm4x8_to_float(pack_float_to_unorm4x8(float4(1))).x; }
// 6.15 Atomics
{ device atomic_float *a = (device atomic_float *)x; atomic_fetch_add_explicit(a, 1.0f, memory_order_relaxed); float b = 1; atomic_compare_exchange_weak_explicit(a, &b, 2.0f, memory_order_relaxed, memory_order_relaxed); }
{ device atomic<uint> *a = (device atomic<uint> *)n; n[2] = atomic_fetch_sub_explicit(a, 1u, memory_order_relaxed) + atomic_fetch_or_explicit(a, 2u, memory_order_relaxed) + atomic_load_explicit(a, memory_order_relaxed); }
{ atomic_store_explicit((device atomic_int *)n, 1, memory_order_relaxed); n[1] = atomic_exchange_explicit((device atomic_int *)n, 2, memory_order_relaxed); }
{ threadgroup atomic_uint t; atomic_store_explicit(&t, 0, memory_order_relaxed); atomic_fetch_max_explicit(&t, i, memory_order_relaxed); atomic_thread_fence(mem_flags::mem_threadgroup, memory_order_relaxed); }
// 2.9, 2.10, 6.12 Textures and samplers
constexpr sampler s; constexpr sampler t(coord::pixel, filter::linear, address::clamp_to_zero); kernel void k(texture2d<float> a, device float4 *x) { x[0] = a.sample(s, float2(0)) + a.sample(t, float2(1)); }
{ constexpr sampler s(mag_filter::linear, min_filter::nearest, mip_filter::linear, s_address::repeat, t_address::mirrored_repeat, r_address::clamp_to_border, border_color::opaque_black, compare_func::greater_equal, max_anisotropy(8), lod_clamp(0.5f, 3.0f), reduction::maximum, bias(0.5f)); }
struct S { texture2d<float> t [[id(0)]]; sampler s [[id(1)]]; array<texture2d<half, access::read>, 3> many [[id(2)]]; texture2d<int, access::write> w; }; kernel void k(constant S &s, device float4 *x) { x[0] = s.t.sample(s.s, float2(0)) + float4(s.many[2].read(uint2(0))); s.w.write(int4(1), uint2(0)); }
template <class T, access A> vec<T, 4> first(texture2d<T, A> t) { return t.read(uint2(0)); } kernel void k(texture2d<half, access::read> a, texture2d<uint> b, device half4 *x) { x[0] = first(a) + half4(first(b)); }
float4 f(thread const texture2d<float> &t, thread const sampler &s) { return t.sample(s, float2(0.5)); } kernel void k(texture2d<float> t [[texture(3)]], sampler s [[sampler(2)]], device float4 *x) { x[0] = f(t, s); }
float4 f(array_ref<texture2d<float>> t, uint n) { return t[n].read(uint2(0)); } kernel void k(const array<texture2d<float>, 4> t [[texture(0)]], device float4 *x) { x[0] = f(t, 2) + f({t.data(), 2}, 1); }
kernel void k(texture2d_ms<float> a, texture2d_ms_array<uint, access::read> b, depth2d_ms<float> c, depth2d_ms_array<float> d, device float4 *x) { x[0] = a.read(uint2(0), 1) + float4(b.read(ushort2(0), 1, 2)) + c.read(uint2(0), 1) + d.read(uint2(0), 1, 1) + a.get_num_samples() + b.get_array_size(); }
kernel void k(texture2d<float, access::read_write, memory_coherence_device> t, uint2 i [[thread_position_in_grid]]) { t.write(t.read(i) * 2, i); t.fence(); atomic_thread_fence(mem_flags::mem_texture, memory_order_acq_rel); t.write(t.read(i).rgba, i); }
kernel void k(texturecube<half> c, depthcube<float> d, texture3d<short, access::read> v, texture1d_array<ushort> r, sampler s, device half4 *x) { x[0] = c.sample(s, float3(1), level(1)) + c.sample(s, float3(1), gradientcube(float3(0), float3(1))) + c.gather(s, float3(1), component::w); x[1] = half4(d.sample(s, float3(1), bias(1))) + half4(v.read(ushort3(1))) + half4(r.sample(s, 0.5f, 1)) + half(d.get_width()); }
constant bool has [[function_constant(0)]]; kernel void k(texture2d<float> a [[texture(0), function_constant(has)]], device float *x) { if (has && !is_null_texture(a)) x[0] = a.read(uint2(0)).r; }
