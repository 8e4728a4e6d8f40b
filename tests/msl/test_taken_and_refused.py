"""What only types, address spaces or attributes decide: what Metal takes is taken, what it refuses is refused by its line.

Each table begins with the section of the Metal Shading Language Specification 3.2.
"""

import re

import pytest

from softmetal import msl

pytestmark = pytest.mark.needs_kernels

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
RELAXED = "memory_order_relaxed"


def body(text):
    return f"kernel void k(device float *x, uint i [[thread_position_in_grid]]) {{ {text} }}"


def of_a_buffer(parameter):
    return f"kernel void k({parameter}, device float *x) {{ x[0] = 1; }}"


def atomic(kind, call):
    """A kernel of one atomic operation; T is the type's plain one."""
    call = call.replace("(", "_explicit(", 1) if "_explicit" not in call else call
    return f"kernel void k(device {kind} *a, threadgroup {kind} *s, device float *x) {{ {call}; }}"


#: 6.15 Atomic Functions: @ where the error is, and words of it.
ATOMICS = {
    "half": (atomic("atomic<half>", f"@atomic_fetch_add(a, half(1), {RELAXED})"), "atomic_int, atomic_uint and atomic_float"),
    "short": (atomic("atomic<short>", f"@atomic_store(a, short(1), {RELAXED})"), "atomic_store_explicit for atomic_int"),
    "long": (atomic("atomic_long", f"@atomic_fetch_or(a, 1, {RELAXED})"), "atomic_int, atomic_uint and atomic_bool"),
    "greatest float": (atomic("atomic_float", f"@atomic_fetch_max(a, 1.0f, {RELAXED})"), "for atomic_int and atomic_uint"),
    "bits of a float": (atomic("atomic_float", f"@atomic_fetch_xor(a, 1, {RELAXED})"), "atomic_uint and atomic_bool"),
    "sum of ulong": (atomic("atomic_ulong", f"@atomic_fetch_add(a, 1ul, {RELAXED})"), "loop of atomic_compare_exchange"),
    "load of ulong": (atomic("atomic_ulong", f"ulong n = @atomic_load_explicit(a, {RELAXED})"), "Metal has atomic_load_explicit"),
    "sum of bool": (atomic("atomic_bool", f"@atomic_fetch_add(a, true, {RELAXED})"), "atomic_float alone"),
    "shared float": (atomic("atomic_float", f"@atomic_fetch_add(s, 1.0f, {RELAXED})"), "not in threadgroup memory"),
    "shared variable": (body(f"threadgroup atomic_float s; @atomic_store_explicit(&s, 1.0f, {RELAXED});"), "not in threadgroup memory"),
    "shared ulong": (atomic("atomic_ulong", f"@atomic_max(s, 1ul, {RELAXED})"), "atomic_ulong in device memory"),
    "a thread's own": (body(f"atomic_int n; @atomic_store_explicit(&n, 1, {RELAXED});"), "not on thread memory"),
    "a thread's field": (body(f"struct {{ atomic_uint n; }} s; @atomic_fetch_add_explicit(&s.n, 1, {RELAXED});"), "not on thread memory"),
    "acquire": (atomic("atomic_int", "atomic_fetch_add(a, 1, memory_order_acquire@)"), "takes memory_order_relaxed alone"),
    "release": (atomic("atomic_uint", "atomic_store(s, 1, memory_order_release@)"), "takes memory_order_relaxed alone"),
    "order of a failure": (
        atomic("atomic_int", f"int n = 1; atomic_compare_exchange_weak_explicit(a, &n, 2, {RELAXED}, memory_order_seq_cst@)"),
        "atomic_thread_fence",
    ),
    "in a template": (
        "template <class T> void add(device atomic<T> *a) { @atomic_fetch_add_explicit(a, T(1), memory_order_relaxed); }"
        + atomic("atomic<half>", "add(a)").replace("add_explicit", "add"),
        "Metal has atomic_fetch_add_explicit",
    ),
}  # fmt: skip
OTHERS = {
    # 4.1, 4.2: device and constant memory
    "in device memory": (body("@device float y = 1; x[i] = y;"), "leave 'device' out"),
    "an array in device memory": (body("const @device int y[2] = {1, 2}; x[i] = y[1];"), "cannot be in device memory"),
    "a structure in device memory": ("struct S { int a; };" + body("@device S s; s.a = 1;"), "cannot be in device memory"),
    "a constant of memory": (body("@constant float y = x[1]; x[i] = y;"), "write 'const' instead"),
    "a constant of a thread": ("float f(int n) { static @constant int m[2] = {1, n}; return m[0]; }", "that the compiler knows"),
    # 5.2.1, 5.2.3.6, 5.8.1: attributes
    "an initial value": ("constant bool b [[@function_constant(0)]] = true;" + body("x[i] = b;"), "leave it out, and ask"),
    "an initial list": ("constant int b [[@function_constant(0)]] {1};" + body("x[i] = b;"), "cannot have an initial value"),
    "no threads": ("[[@max_total_threads_per_threadgroup(0)]] " + body("x[i] = 1;"), "must be 1 or more"),
    "no threads, by a name": ("constant int n = 0; [[kernel, @max_total_threads_per_threadgroup(n)]] void k(device float *x) {}", "out of bounds"),
    "a position twice": (body("x[i] = j;").replace(") {", ", uint j [[@thread_position_in_grid]]) {"), "given to two parameters"),
    # 2.13, 4, 5.2: pointers in buffers
    "a threadgroup's pointer in a buffer": ("struct S { float n; @threadgroup float *t; };" + of_a_buffer("constant S &s"), "a pointer to threadgroup memory cannot be used in a buffer"),
    "a thread's pointer in a buffer": ("struct S { @thread float *t; };" + of_a_buffer("device S *s"), "a pointer to thread memory cannot be used in a buffer"),
    "in a structure's structure": ("struct A { @threadgroup float *t[2]; }; struct S { A a[3]; };" + of_a_buffer("const device S &s"), "threadgroup memory cannot be used in a buffer"),
    "a pointer to a thread's pointers": (of_a_buffer("@thread float *constant *s"), "a pointer to thread memory cannot be used in a buffer"),
    "a pointer to pointers that the thread has": (of_a_buffer("@device float *thread *s"), "parameter 's' of a kernel is neither in an address space"),
    "a pointer of no space": ("struct S { float @*t; };" + of_a_buffer("constant S &s"), "must have explicit address space qualifier"),
    "an id of two members": ("struct S { device float *a [[id(2)]]; device float *b [[@id(2)]]; };" + of_a_buffer("constant S &s"), "cannot reserve 'id' resource location at index 2"),
    # 2.4, 6.7, 6.9: matrices and functions of SIMD-groups
    "a matrix of integers": (body("simdgroup_matrix<int, 8, 8> @m; simdgroup_load(m, (device int *)x);"), "Metal has matrices"),
    "a structure of a lane": ("struct S { float a; };" + body("S s = {x[i]}; x[i] = @simd_broadcast(s, 0).a;"), "for each field"),
    "a structure's sum": ("struct S { int a; S(int a) : a(a) {} };" + body("x[i] = @simd_sum(S(1)).a;"), "scalars and vectors alone"),
    "a union of a lane": ("union S { int a; float b; };" + body("S s; s.a = 1; x[i] = @quad_shuffle_xor(s, 1).b;"), "scalars and vectors"),
}  # fmt: skip


def arrays(call):
    """A kernel that calls with arrays of each address space, in structures and not."""
    return (
        "struct S { float a[4], b[2][3]; }; void look(const thread float *p) {} void dev(device float *p) {} void mine(thread float *p) {} void shared(threadgroup float *p) {}"
        "float know(constant float *p) { return *p; } float whatever(const device void *p) { return 1; }"
        "template <class T> void put(device T *p, T x) {} void both(device float *p) {} void both(threadgroup float *p) {}"
        "struct M { M(device float *p) thread {} void f(device float *p) thread {} }; struct N { N(device float *p) {} void f(device float *p) {} };"
        "kernel void k(device S *d, constant S &c, threadgroup S *t, device float *x) {"
        f"float l[4]; threadgroup float s[4]; S o; threadgroup S u; {call}; }}"
    )


#: 4 Address Spaces: arrays that decay to a pointer.
ARRAYS = {
    "a local array": (arrays("@dev(l)"), "its 1st argument leads to thread memory, where device memory is expected"),
    "a row of a local one": (arrays("@dev(o.b[1])"), "leads to thread memory"),
    "a shared array to device": (arrays("@dev(s)"), "leads to threadgroup memory, where device memory"),
    "a shared array to thread": (arrays("@mine(s)"), "leads to threadgroup memory, where thread memory"),
    "a local array to shared": (arrays("@shared(l)"), "leads to thread memory, where threadgroup memory"),
    "a device structure's": (arrays("@mine(d->a)"), "leads to device memory, where thread memory"),
    "a device structure's row": (arrays("@shared(d[1].b[0])"), "leads to device memory, where threadgroup memory"),
    "a shared structure's": (arrays("@dev(u.a)"), "leads to threadgroup memory, where device memory"),
    "a shared structure's row": (arrays("thread float *@p = u.b[1]"), "leads to threadgroup memory, where thread memory"),
    "a constructor's": (arrays("N @m(l)"), "no matching function for call to 'N'"),
    "a member function's": (arrays("N m(x); m.f(@o.a)"), "leads to thread memory, where device memory"),
    "a local structure's": (arrays("@dev(o.a)"), "leads to thread memory, where device memory"),
    "a constant structure's": (arrays("@look(c.a)"), "leads to constant memory, where thread memory"),
    "an array to constant": (arrays("x[0] = @know(l)"), "leads to thread memory, where constant memory"),
    "to any type": (arrays("x[0] = @whatever(l)"), "leads to thread memory, where device memory"),
    "to each overload": (arrays("@both(o.a)"), "no matching function for call to 'both'"),
    "to a template": (arrays("@put(l, 1.0f)"), "its 1st argument leads to thread memory, where device"),
    "to a structure's pointer": (arrays("device float *@p = t->a"), "leads to threadgroup memory, where device memory"),
    "a program's table": ("constant float t[2] = {1, 2}; float f(thread const float *p) { return *p; }" + body("x[i] = @f(t);"), "constant memory, where thread"),
    "a result": ("device float *f() { float l[2]; return @l; }", "leads to thread memory, where device memory"),
}  # fmt: skip
REFUSED = ATOMICS | OTHERS | ARRAYS

TAKEN = [
    # 6.15 Atomic Functions
    *(
        atomic(kind, f"atomic_fetch_{name}({place}, 1, {RELAXED})")
        for kind in ("atomic_int", "atomic<uint>")
        for name in ("add", "sub", "and", "or", "xor", "min", "max")
        for place in "as"
    ),
    *(atomic("atomic_float", f"x[0] = atomic_{name}(a, 1.0f, {RELAXED})") for name in ("fetch_add", "fetch_sub", "exchange")),
    *(atomic("atomic_ulong", f"atomic_{name}(a, 1ul, {RELAXED})") for name in ("min", "max")),
    *(atomic(f"atomic_{kind}", f"atomic_store_explicit(a, atomic_load_explicit(a, {RELAXED}), {RELAXED})") for kind in ("bool", "int", "float")),
    atomic("atomic_float", f"float n = 1; while (!atomic_compare_exchange_weak_explicit(a, &n, n * 2, {RELAXED}, {RELAXED})) {{}}"),
    atomic("atomic_bool", f"x[0] = metal::atomic_exchange_explicit(s, true, {RELAXED})"),
    "struct S { atomic_uint n; atomic_float f[2]; }; kernel void k(device S *s, threadgroup S &t, volatile device atomic_int *v) {"
    f"atomic_fetch_add_explicit(&s->n, 1u, {RELAXED}); atomic_fetch_add_explicit(&t.n, 1u, {RELAXED}); atomic_load_explicit(v, {RELAXED});"
    f"atomic_fetch_add_explicit(&s[1].f[0], 1.0f, {RELAXED}); device atomic_uint &n = s->n; atomic_store_explicit(&n, 1, {RELAXED}); }}",
    f"void add(device atomic_uint *n) {{ atomic_fetch_add_explicit(n, 1, {RELAXED}); }} template <class P> void put(P p) {{"
    f"atomic_store_explicit(p, 1, {RELAXED}); }}" + atomic("atomic_uint", "add(a), put(a + 1), put(s)").replace("add_explicit", "add"),
    f"kernel void k(device uint *x) {{ threadgroup atomic_uint s[4]; atomic_fetch_add_explicit((device atomic_uint *)x + 1, 1, {RELAXED});"
    f"atomic_fetch_add_explicit(&s[0], 1, {RELAXED}); atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device); }}",
    "kernel void k(device atomic<half> *a, device float *x) { x[0] = 1; }",  # a type without operations
    # 4.1, 4.2: device and constant memory
    "struct S { int n; int f(int n) { constant int m = sizeof(S); constant int a[] = {S().n, m}; return m; } int g() { return n; } };".replace("S().n", "2"),
    body("device float *p = x, &r = x[1]; constant float t[2] = {1, 2}; const device float *const q = p + 1; p[i] = t[i % 2] + r + *q;"),
    "kernel void k(constant float *x, device float *device *y) { constant float *p = x; constant float &r = x[1]; constant auto *q = p; *y[0] = r + *q; }",
    "constant int w = 3; int f(int w) { return w; }" + body("static constant int n = w + 1; constexpr constant int m = 2; x[i] = n + m;"),
    "typedef device float *place; template <class T> void f(device T *p) { device T *q = p; place r = nullptr; *q = T(1); }",
    # 5.2.1, 5.2.3.6, 5.8.1: attributes
    "constant bool b [[function_constant(0)]]; constant bool c = is_function_constant_defined(b) ? b : true; " + body("x[i] = c;"),
    "[[max_total_threads_per_threadgroup(1)]] " + body("x[i] = 1;"),
    "kernel void k(device float *x, uint i [[thread_position_in_grid]], uint j [[thread_position_in_threadgroup]]) { x[i] = j; }",
    # 2.4, 6.7, 6.9: matrices and functions of SIMD-groups
    *(body(f"{kind} y = {kind}(x[i]); y = simd_broadcast(y, 0); y = quad_shuffle_xor(y, 1); y = simd_sum(y); x[i] = 1;") for kind in ("int", "half", "bfloat", "float3", "bool2")),
    *(body(f"simdgroup_matrix<{kind}, 8, 8> m; simdgroup_load(m, x); simdgroup_store(m, x);") for kind in ("float", "half", "bfloat")),
    "struct S { float a; }; S simd_broadcast(S s, ushort lane) { return {metal::simd_broadcast(s.a, lane)}; }"
    + body("S s = {x[i]}; x[i] = simd_broadcast(s, 0).a;"),
    # 4 Address Spaces
    *(arrays(call) for call in ("dev(d->a), dev(d[1].b[1])", "mine(l), mine(o.a), mine(o.b[0])", "shared(s), shared(t->a), shared(u.b[1])")),
    *(arrays(call) for call in ("x[0] = know(c.a) + whatever(d->a)", "both(d->a), both(u.a), both(s)", "put(d->a, 1.0f), put(x, o.a[1])")),
    arrays("device float *p = d->a; thread float *q = l; threadgroup float *r = u.a; q[0] = p[1] + r[2]; q = o.b[1]; M m(d->a); m.f(p); N n(x); n.f(d->b[0])"),
    "int f(constant char *text) { return text[0]; } template <class T> int g(constant T *p) { return p[0]; }" + body('x[i] = f("text") + g("text");'),
    "template <class T> T sum(const thread T *p) { return p[0]; } template <class T> T sum(const threadgroup T (&p)[4]) { return p[0]; }"
    + body("threadgroup float s[4]; float l[3]; x[i] = sum(l) + sum(s);"),
    # 2.2, 3.1: shifts of vectors by vectors of another integer type
    *(
        f"kernel void k(device {a}{n} *x, device {b}{n} *y, device packed_{b}{n} *p, device packed_{a}{n} *q) {{ x[0] = x[1] << y[0]; x[0] = x[1] >> p[0];"
        f"x[0] <<= y[0]; x[0] >>= p[0]; q[0] <<= y[0]; q[0] >>= p[0]; x[0] = x[1] << x[2]; x[0] <<= 1; x[0] = 1 >> x[0]; }}"
        for a, b, n in (("int", "uint", 2), ("char", "uchar", 3), ("short", "ushort", 4), ("long", "ulong", 3), ("uint", "int", 4), ("int", "uchar", 2))
    ),
    # 4: volatile vectors
    *(
        f"struct S {{ {kind} v; }}; kernel void k(volatile {space} {kind} *x, volatile {space} S &s, device float4 *y) {{ x[0] = float4(20.0); x[1] = x[0];"
        f"float4 z = x[1] * 2 + s.v; x[0] += z; s.v = 1.0f; s.v -= x[0]; x[1].y = x[0].z; x[2][1] = x[0][3]; y[0] = x[0]; y[1] = max(float4(x[0]), z); }}"
        for kind in ("float4", "packed_float4")
        for space in ("device", "threadgroup")
    ),
    "kernel void k(constant volatile float3 *c, device packed_float3 *y) { volatile float3 z = c[0]; y[0] = z; z[1] = c[1][2]; volatile thread float3 &w = z; w = c[1] + w; }",
    # 4.8: memory that is coherent
    "kernel void k(device coherent(device) uint *x, coherent(device) device float4 *y, device volatile coherent(device) int &z) { x[0] = 1; }",
    "struct S { coherent(device) device uint *x; }; void f(device coherent(device) uint *p) { coherent(device) device uint *q = p; *q = 1; }",
]  # fmt: skip

#: What a kernel decides, when it is asked for.
TAKEN_AS_KERNELS = [
    # 2.10: samplers that nobody uses
    body("constexpr sampler s(filter::linear, coord::normalized); x[i] = 1;"),
    "constexpr sampler out(filter::nearest); template <class T> T f(T x) { constexpr metal::sampler s, t(address::repeat); return x; }" + body("x[i] = f(x[i]);"),
    # 4.4: threadgroup memory with zeros, which nobody stores
    *("typedef float real; " + body(f"threadgroup {one}; x[i] = 1;") for one in ("float s = 0.0f", "uint s = 0u, t[2] = {0, 0}", "float4 s = float4(0)", "bool s{false}", "float4 s[3] = {(real)0.f}")),
    # 4: types of different address spaces
    body("static_assert(!is_same_v<device float *, thread float *> && is_same_v<device float *, device float *>); x[i] = metal::is_same_v<device int *, threadgroup int *>;"),
    "template <class T> constexpr constant bool differ = !is_same<device T *, const threadgroup T *>::value && !metal::is_same<device T &, thread T &>();"
    "static_assert(differ<float>, \"\"); typedef device float *there; static_assert(!is_same_v<there, thread float *>, \"\");" + body("x[i] = differ<int>;"),
    # 2.1: an overload for bfloat, where the library had none
    "using metal::max; bfloat max(bfloat a, bfloat b) { return a > b ? a : b; }" + body("x[i] = max(bfloat(x[i]), bfloat(1)) + max(x[i], 2.0f);"),
    # 2.13, 5.2: pointers in buffers
    *(
        "struct S { device float *x [[id(0)]]; constant uint &n [[id(1)]]; array<device int *, 3> a [[id(2)]]; const device half *b[2] [[id(5)]]; };"
        "struct T { S s[2]; device S *next; device T *self; ulong u; }; template <class V> struct W { device V *v; };"
        f"kernel void k({parameter}, device float *x, uint i [[thread_position_in_grid]]) {{ x[i] = {use}; }}"
        for parameter, use in (
            ("constant S &s", "s.x[i] + s.n + s.a[1][i] + s.b[1][i]"),
            ("device const T *t", "t->next->x[i] + t->self->s[1].x[i] + ((device float *)t->u)[i]"),
            ("device float *device *p", "p[1][i]"),
            ("const device float *constant *p", "p[1][i]"),
            ("device W<float> &w", "w.v[i]"),
        )
    ),
    # 5.2: pointers of structures that no buffer holds
    "struct S { threadgroup float *t; thread int *p; };" + body("threadgroup float t[4]; int n = 0; S s{t, &n}; x[i] = s.t[0] + *s.p;"),
    # 5: kernels beside functions of their name
    "float k(float a) { return a; }" + body("x[i] = k(x[i]);"),
    "template <class T> T k(T a) { return a; } int k(int a, int b) { return a + b; }" + body("x[i] = k(x[i]) + k(1, 2);"),
    "float k(device float *x) { return x[0]; } kernel void k(device float *x, constant const uint &n, constant float (&m)[4], device atomic_int *a) { x[0] = k(x); }",
]  # fmt: skip


def opened(source):
    """Ask for each kernel: the insides of a template are read then."""
    library = msl.open_library(source)
    for kernel in library.functions:
        library.compile(kernel, {})


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.some(8)
def test_what_metal_refuses_is_refused_by_its_line(what):
    refused, words = REFUSED[what]
    line = refused.replace("@", "")
    with pytest.raises(msl.SourceError) as caught:
        opened(HEAD + line)
    first, shown, *_ = str(caught.value).splitlines()
    assert re.match(r"program_source:3:\d+: error: ", first), first
    assert words in first and "softmetal" not in str(caught.value)
    assert (shown, int(first.split(":")[2])) == (line, refused.index("@") + 1)


@pytest.mark.parametrize(
    ("read", "rows"), [(msl.open_library, TAKEN), (opened, TAKEN_AS_KERNELS)], ids=["sources", "kernels"]
)
def test_what_metal_has_is_taken(read, rows):
    try:
        read(HEAD + "\n".join(f"namespace row_{nth} {{ {text}\n}}" for nth, text in enumerate(rows)))
    except msl.SourceError as error:
        pytest.fail(str(error))


#: What an address space would choose if no condition took one away: refused where it is called.
CONDITIONS = [
    "template <class T> enable_if_t<is_integral_v<T>, int> f(device T *x) { return 1; } template <class T> enable_if_t<is_integral_v<T>, int> f(thread T *x) { return 2; }",
    "template <class T> enable_if_t<is_integral_v<T>, int> f(device T *x) { return 1; } template <class U> enable_if_t<is_integral_v<U>, int> f(const thread U *x) { return 2; }",
    "template <class T> enable_if_t<sizeof(T) == 4, int> f(device T *x) { return 1; } int f(thread const int *x) { return 2; }",
    "template <class T> enable_if_t<true, int> f(device T &x) { return 1; } template <class T> int f(thread T *const &x) { return 2; }",
]  # fmt: skip


@pytest.mark.parametrize("source", CONDITIONS)
def test_a_choice_that_a_condition_may_take_away_is_refused_where_it_is_called(source):
    msl.open_library(HEAD + source)
    with pytest.raises(msl.SourceError, match=r"^program_source:4:31: error: '.*' is unavailable: .*address space"):
        msl.open_library(f"{HEAD}{source}\nint g(thread int *x) {{ return f(x); }}")
