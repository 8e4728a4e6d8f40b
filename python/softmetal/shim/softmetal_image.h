/* softmetal_image.h: SOFTMETAL_IMAGE, which makes an image of a kernel and its binders.
 *
 * Owns:    softmetal_image.
 * Calls:   the kernel, and the run time for threadgroup memory.
 * Threads: run_thread and run_rows are called by whichever OS thread runs the threadgroup.
 *
 * The translator names a binder for each parameter, from its attribute; the parameter's type
 * comes from the function itself.
 */
#ifndef SOFTMETAL_IMAGE_H
#define SOFTMETAL_IMAGE_H

#include "softmetal_atomics.h"
#include "softmetal_matrices.h"
#include "softmetal_names.h"
#include "softmetal_runtime.h"
#include "softmetal_textures.h"
#include "softmetal_vectors.h"

/* ---- the MTLDataType of a C++ type ---- */

namespace softmetal {
/* The numbers of MTLDataType.  A scalar's vectors follow it. */
enum : soft_u32 { data_type_struct = 1, data_type_array = 2 };

template <soft_u32 number> using data_type_of = metal::integral_constant<soft_u32, number>;

template <class T> struct data_type
    : data_type_of<__is_class(T) || __is_union(T) ? data_type_struct : 0> {};
#define SOFTMETAL_DATA_TYPE(T, number)                                                         \
    template <> struct data_type<T> : data_type_of<number> {};
SOFTMETAL_DATA_TYPE(float, 3)
SOFTMETAL_DATA_TYPE(half, 16)
SOFTMETAL_DATA_TYPE(int, 29)
SOFTMETAL_DATA_TYPE(uint, 33)
SOFTMETAL_DATA_TYPE(short, 37)
SOFTMETAL_DATA_TYPE(ushort, 41)
SOFTMETAL_DATA_TYPE(char, 45)
SOFTMETAL_DATA_TYPE(int8_t, 45)
SOFTMETAL_DATA_TYPE(uchar, 49)
SOFTMETAL_DATA_TYPE(bool, 53)
SOFTMETAL_DATA_TYPE(long, 81)
SOFTMETAL_DATA_TYPE(long long, 81)
SOFTMETAL_DATA_TYPE(ulong, 85)
SOFTMETAL_DATA_TYPE(unsigned long long, 85)
SOFTMETAL_DATA_TYPE(bfloat, 121)
#undef SOFTMETAL_DATA_TYPE
template <class T, int N> struct data_type<vec<T, N>>
    : data_type_of<data_type<T>::value + N - 1> {};
template <class T, int N> struct data_type<packed_vec<T, N>> : data_type<vec<T, N>> {};
template <class T> struct data_type<metal::_atomic<T>> : data_type<T> {};
template <class T, size_t N> struct data_type<T[N]> : data_type_of<data_type_array> {};
/* float2x2 is 7, half2x2 is 20. */
template <class T, int C, int R> struct data_type<metal::matrix<T, C, R>>
    : data_type_of<data_type<T>::value + 4 + 3 * (C - 2) + (R - 2)> {};

/* Nothing is known about void and incomplete types. */
template <class T, class = void> inline constexpr size_t size_of = 0;
template <class T> inline constexpr size_t size_of<T, always_void<int[sizeof(T)]>> = sizeof(T);
template <class T, class = void> inline constexpr size_t alignment_of = 1;
template <class T> inline constexpr size_t alignment_of<T, always_void<int[sizeof(T)]>> =
    alignof(T);
} // namespace softmetal

/* ---- the image ---- */

/* The translator puts the kernel's text between these two.  All of its functions are inlined,
 * as on a GPU: lanes that call one function from two branches wait at two places. */
#define SOFTMETAL_TEXT_BEGIN                                                                   \
    _Pragma("clang attribute push(__attribute__((always_inline)), apply_to = function)")
#define SOFTMETAL_TEXT_END _Pragma("clang attribute pop")

/* The functions of an image have lines, for a kernel that is inlined needs a function with
 * lines.  Where an image is checked, the kernel is a function apart: what we touch is not the
 * kernel's. */
#if SOFTMETAL_IS_CHECKED
#define SOFTMETAL_RUNS __attribute__((no_sanitize("thread", "bounds")))
#define SOFTMETAL_ENTERS
#else
#define SOFTMETAL_RUNS
#define SOFTMETAL_ENTERS __attribute__((always_inline))
#endif

namespace softmetal {
using metal::remove_reference_t;

/* FACT(attribute, what it says of a thread t to a parameter of type P).
 * SPEC Metal Shading Language Specification 3.2, table 5.8: attributes for kernel function input
 * arguments.  The translator reads their names here. */
#define SOFTMETAL_THREAD_FACTS(FACT)                                                           \
    FACT(thread_position_in_grid, some<P>(t.position_in_grid))                                 \
    FACT(thread_position_in_threadgroup, some<P>(t.position_in_group))                         \
    FACT(threadgroup_position_in_grid, some<P>(t.group_position))                              \
    FACT(threads_per_threadgroup, some<P>(t.group_size))                                       \
    FACT(threads_per_grid, some<P>(t.launch->grid))                                            \
    FACT(grid_size, some<P>(t.launch->grid))                                                   \
    FACT(grid_origin, some<P>({0, 0, 0}))                                                      \
    FACT(threadgroups_per_grid, some<P>(t.launch->groups))                                     \
    FACT(dispatch_threads_per_threadgroup, some<P>(t.launch->group))                           \
    FACT(thread_index_in_threadgroup, P(t.index))                                              \
    FACT(thread_index_in_simdgroup, P(t.lane))                                                 \
    FACT(thread_index_in_quadgroup, P(t.lane % 4))                                             \
    FACT(simdgroup_index_in_threadgroup, P(t.simdgroup))                                       \
    FACT(quadgroup_index_in_threadgroup, P(t.index / 4))                                       \
    FACT(simdgroups_per_threadgroup, P(t.simdgroups))                                          \
    FACT(quadgroups_per_threadgroup, P(count(t.group_size, 4)))                                \
    FACT(dispatch_simdgroups_per_threadgroup, P(count(t.launch->group, SOFT_SIMD_WIDTH)))      \
    FACT(dispatch_quadgroups_per_threadgroup, P(count(t.launch->group, 4)))                    \
    FACT(threads_per_simdgroup, P(SOFT_SIMD_WIDTH))                                            \
    FACT(thread_execution_width, P(SOFT_SIMD_WIDTH))

#define SOFTMETAL_NAME(attribute, answer) attribute,
enum thread_fact { SOFTMETAL_THREAD_FACTS(SOFTMETAL_NAME) };
#undef SOFTMETAL_NAME

/* The facts of a parameter of type P. */
template <class P> SOFTMETAL_INLINE soft_argument_facts facts_of(const char *name,
                                                                 soft_argument_kind kind,
                                                                 int index) {
    typedef metal::remove_pointer_t<remove_reference_t<P>> pointee;
    typedef metal::remove_cv_t<pointee> T;
    return {name,
            soft_u8(kind),
            !__is_const(pointee),
            soft_u16(index),
            data_type<T>::value,
            soft_u32(size_of<T>),
            soft_u32(alignment_of<T>),
            0,
            0,
            0,
            1};
}

/* The parameter `P` of one thread.  What a row shares is fetched once, by prepare; take gives
 * it to a thread. */
struct no_argument {
    static constexpr bool is_argument = false, is_of_group = false;
    template <class P> SOFTMETAL_INLINE static soft_argument_facts facts(const char *) {
        return {};
    }
    template <class P> SOFTMETAL_INLINE static void *prepare(const soft_launch &) {
        return nullptr;
    }
};
template <class P> SOFTMETAL_INLINE P parameter_at(void *address) {
    if constexpr (__is_reference(P))
        return static_cast<P>(*static_cast<remove_reference_t<P> *>(address));
    else
        return static_cast<P>(address);
}

/* Nothing is bound: a function constant leaves the parameter out, or the kernel does not use it. */
struct absent : no_argument {
    template <class P> SOFTMETAL_INLINE static P take(void *, const soft_thread &) {
        if constexpr (__is_pointer(P) || __is_reference(P))
            return parameter_at<P>(nullptr);
        else
            return P();
    }
};

template <soft_argument_kind kind, int index> struct argument {
    static_assert(index >= 0 && index < SOFT_MOST_BUFFERS, "a buffer's index is 0 to 30");
    static constexpr bool is_argument = true, is_of_group = kind == SOFT_ARGUMENT_THREADGROUP;
    template <class P> SOFTMETAL_INLINE static soft_argument_facts facts(const char *name) {
        return facts_of<P>(name, kind, index);
    }
    template <class P> SOFTMETAL_INLINE static void *prepare(const soft_launch &launch) {
        if constexpr (kind == SOFT_ARGUMENT_THREADGROUP)
            return softmetal_image.runtime->threadgroup_argument(index);
        else
            return launch.buffers[index];
    }
    template <class P> SOFTMETAL_INLINE static P take(void *address, const soft_thread &) {
        return parameter_at<P>(address);
    }
};
template <int index> using buffer = argument<SOFT_ARGUMENT_BUFFER, index>;
template <int index> using threadgroup = argument<SOFT_ARGUMENT_THREADGROUP, index>;

/* Textures and samplers: values of 8 bytes, one or an array of them. */
template <class P> struct bound {
    typedef P item;
    static constexpr soft_u32 count = 1;
};
template <class T, size_t N> struct bound<metal::array<T, N>> {
    typedef T item;
    static constexpr soft_u32 count = N;
};
template <class P> using bound_of = bound<metal::remove_cv_t<remove_reference_t<P>>>;

template <soft_argument_kind kind, int index, int most> struct bound_argument {
    static_assert(index >= 0 && index < most,
                  "a texture's index is 0 to 127, a sampler's 0 to 15");
    static constexpr bool is_argument = true, is_of_group = false;
    template <class P> SOFTMETAL_INLINE static soft_argument_facts facts(const char *name) {
        typedef typename bound_of<P>::item item;
        soft_argument_facts facts = {name, kind, false, index, 0, 8, 8};
        facts.count = bound_of<P>::count;
        if constexpr (kind == SOFT_ARGUMENT_TEXTURE) {
            facts.is_written = item::softmetal_is_written;
            facts.is_read = item::softmetal_is_read;
            facts.is_depth = item::softmetal_is_depth;
            facts.texture_type = item::softmetal_type;
            facts.data_type = data_type<typename item::softmetal_item>::value;
        }
        return facts;
    }
    /* The first of the launch's. */
    template <class P> SOFTMETAL_INLINE static void *prepare(const soft_launch &launch) {
        static const soft_u64 none[most] = {};
        const void *all = kind == SOFT_ARGUMENT_TEXTURE
                              ? static_cast<const void *>(launch.textures)
                              : static_cast<const void *>(launch.samplers);
        all = all == nullptr ? none : all;
        return const_cast<char *>(static_cast<const char *>(all) + 8 * index);
    }
    template <class P> SOFTMETAL_INLINE static auto take(void *address, const soft_thread &) {
        static_assert(index + bound_of<P>::count <= most, "an array's last index is too large");
        return *static_cast<const metal::remove_cv_t<remove_reference_t<P>> *>(address);
    }
};
template <int index> using texture =
    bound_argument<SOFT_ARGUMENT_TEXTURE, index, SOFT_MOST_TEXTURES>;
template <int index> using sampler =
    bound_argument<SOFT_ARGUMENT_SAMPLER, index, SOFT_MOST_SAMPLERS>;

template <thread_fact fact> struct builtin : no_argument {
    static constexpr bool is_of_group =
        fact != thread_position_in_grid && fact != threads_per_grid && fact != grid_size;
    template <class P> SOFTMETAL_INLINE static auto take(void *, const soft_thread &thread) {
        return of<metal::remove_cv_t<remove_reference_t<P>>>(thread);
    }

  private:
    /* The first of three numbers, as many as the parameter has components. */
    template <class P> SOFTMETAL_INLINE static P some(const soft_u32 (&of)[3]) {
        typedef element_of<P> element;
        if constexpr (shape<P>::count == 1)
            return P(of[0]);
        else if constexpr (shape<P>::count == 2)
            return P(element(of[0]), element(of[1]));
        else
            return P(element(of[0]), element(of[1]), element(of[2]));
    }
    SOFTMETAL_INLINE static uint count(const soft_u32 (&size)[3], uint each) {
        return (size[0] * size[1] * size[2] + each - 1) / each;
    }
    template <class P> SOFTMETAL_INLINE static P of(const soft_thread &t) {
#define SOFTMETAL_ANSWER(attribute, answer)                                                    \
    if constexpr (fact == attribute) return answer;
        SOFTMETAL_THREAD_FACTS(SOFTMETAL_ANSWER)
#undef SOFTMETAL_ANSWER
    }
};

typedef void soft_one_thread(void *const *row, const soft_thread &thread);

/* A kernel and its binders. */
template <auto kernel, class... Binders> struct image {
    static_assert(sizeof...(Binders) < SOFT_MOST_PARAMETERS,
                  "a kernel has at most 127 parameters");
    /* A copy, number by number.  Read two at a time, numbers that were just written apart would wait until all that
     * was written before them, the last threadgroup's results, is in the cache. */
    SOFTMETAL_INLINE static soft_thread numbers_of(const soft_thread &t) {
        return {t.launch,
                {t.position_in_grid[0], t.position_in_grid[1], t.position_in_grid[2]},
                {t.position_in_group[0], t.position_in_group[1], t.position_in_group[2]},
                {t.group_position[0], t.group_position[1], t.group_position[2]},
                {t.group_size[0], t.group_size[1], t.group_size[2]},
                t.index,
                t.lane,
                t.simdgroup,
                t.simdgroups};
    }
    /* Rows of `count` threads along x.  One loop, along `axis`, is all that calls `one` for a thread, so that
     * the kernel is compiled once; the compiler turns it into vectors where the kernel lets it. */
    template <int axis, soft_one_thread one>
    __attribute__((noinline)) SOFTMETAL_RUNS static void
    run_rows(const soft_thread *first, soft_u32 count, soft_u32 rows) {
        void *row[sizeof...(Binders) + 1];
        prepare(first->launch, row);
        soft_thread thread = numbers_of(*first);
        const soft_u32 sides[] = {count, rows}, steps[] = {1, count}; /* of the index */
        for (soft_u32 line = 0; line < sides[1 - axis]; line++) {
            run_line<axis, one>(row, thread, sides[axis], steps[axis]);
            thread.position_in_grid[1 - axis] += 1;
            thread.position_in_group[1 - axis] += 1;
            thread.index += steps[1 - axis];
        }
    }
    template <int axis, soft_one_thread one>
    SOFTMETAL_RUNS static void run_thread(const soft_thread *thread) {
        run_rows<axis, one>(thread, 1, 1);
    }
    SOFTMETAL_RUNS SOFTMETAL_ENTERS static void run_one(void *const *row,
                                                        const soft_thread &thread) {
        run_given(kernel_type(), metal::make_index_sequence<sizeof...(Binders)>(), row, thread);
    }
    /* The same: where it is in the threadgroup, and where in the grid. */
    SOFTMETAL_ENTERS static void run_at(void *const *row, const soft_thread *origin,
                                        const soft_u32 (&in_group)[3], soft_u32 index,
                                        const soft_u32 (&in_grid)[3], soft_u32 lane,
                                        soft_u32 simdgroup) {
        soft_thread thread = *origin;
        for (int each = 0; each < 3; each++) {
            thread.position_in_group[each] = in_group[each];
            thread.position_in_grid[each] = in_grid[each];
        }
        thread.index = index;
        thread.lane = lane;
        thread.simdgroup = simdgroup;
        run_one(row, thread);
    }
    SOFTMETAL_RUNS static void prepare(const soft_launch *launch, void **row) {
        prepare_each(kernel_type(), *launch, row);
    }

    /* Fills what is known only once the image is loaded. */
    template <size_t N> SOFTMETAL_RUNS static void
    describe(soft_image &made, soft_argument_facts (&facts)[N], const char *const (&names)[N]) {
        made.arguments = facts;
        made.argument_count = describe_each(kernel_type(), facts, names);
        if (&softmetal_regions != nullptr) made.regions = &softmetal_regions;
        made.has_syncs = __start_softmetal_syncs != nullptr || made.regions != nullptr;
        made.threadgroup_nbytes = all_variables_nbytes();
        made.is_groupless = !(Binders::is_of_group || ... || false) &&
                            made.threadgroup_nbytes == 0 &&
                            (made.regions != nullptr ? made.regions->is_free : !made.has_syncs);
#if SOFTMETAL_IS_CHECKED
        softmetal_watch.sites = __start_softmetal_sites;
        softmetal_watch.sites_end = __stop_softmetal_sites;
        softmetal_watch.counted = __start_softmetal_counted;
        softmetal_watch.counted_end = __stop_softmetal_counted;
        softmetal_watch.executions = __start_softmetal_executions;
        softmetal_watch.executions_end = __stop_softmetal_executions;
        softmetal_watch.operations = __start_softmetal_operations;
        made.watch = &softmetal_watch;
#endif
    }

  private:
    typedef decltype(kernel)
        kernel_type; /* a null pointer of it carries the parameters' types */

    template <class... P> SOFTMETAL_ENTERS static void enter(P... given) {
        kernel(static_cast<P>(given)...);
    }
    template <int axis, soft_one_thread one> SOFTMETAL_RUNS static void
    run_line(void *const *row, const soft_thread &first, soft_u32 count, soft_u32 step) {
#pragma clang loop vectorize(enable)
        for (soft_u32 i = 0; i < count; i++) {
            soft_thread thread = first;
            thread.position_in_grid[axis] += i;
            thread.position_in_group[axis] += i;
            thread.index += i * step;
            /* Nothing wraps round, so the compiler may count in 64 bits. */
            __builtin_assume(thread.position_in_grid[axis] < ~0u);
            __builtin_assume(thread.position_in_group[axis] < ~0u);
            __builtin_assume(thread.index < ~0u);
            thread.lane = thread.index % SOFT_SIMD_WIDTH;
            thread.simdgroup = thread.index / SOFT_SIMD_WIDTH;
#if SOFTMETAL_IS_CHECKED
            softmetal_watch.thread = thread.index;
#endif
            one(row, thread);
        }
    }
    template <class... P, size_t... I> SOFTMETAL_RUNS SOFTMETAL_ENTERS static void
    run_given(void (*)(P...), metal::index_sequence<I...>, void *const *row,
              const soft_thread &thread) {
        enter<P...>(Binders::template take<P>(row[I], thread)...);
    }
    template <class... P> SOFTMETAL_RUNS static void
    prepare_each(void (*)(P...), const soft_launch &launch, void **row) {
        ((*row++ = Binders::template prepare<P>(launch)), ...);
    }
    template <class... P> SOFTMETAL_RUNS static soft_u32
    describe_each(void (*)(P...), soft_argument_facts *facts, const char *const *names) {
        soft_u32 count = 0;
        ((Binders::is_argument ? void(facts[count++] = Binders::template facts<P>(*names))
                               : void(),
          names++),
         ...);
        return count;
    }
};
} // namespace softmetal

/* SOFTMETAL_IMAGE((scale<float, 4>), softmetal::buffer<0>, ...): a binder for each parameter.
 * `softmetal_argument_names` has their names. */
#define SOFTMETAL_IMAGE(kernel, ...)                                                           \
    typedef softmetal::image<(kernel), ##__VA_ARGS__> softmetal_made;                          \
    SOFTMETAL_IMAGE_OF((softmetal_made::run_thread<0, softmetal_made::run_one>),               \
                       (softmetal_made::run_rows<0, softmetal_made::run_one>), nullptr)
/* The same of a kernel that may wait, or suit another loop than one along rows: what a thread does is a
 * function apart, which regions.py splits, or puts into the loop that it chooses. */
#if SOFTMETAL_IS_CHECKED
#define SOFTMETAL_WAITING_IMAGE SOFTMETAL_IMAGE
#else
#define SOFTMETAL_WAITING_IMAGE(kernel, ...)                                                   \
    typedef softmetal::image<(kernel), ##__VA_ARGS__> softmetal_made;                          \
    extern "C" {                                                                               \
    __attribute__((noinline, visibility("hidden"))) void                                       \
    softmetal_one_thread(void *const *row, const soft_thread *origin, soft_u32 x, soft_u32 y,  \
                         soft_u32 z, soft_u32 index, soft_u32 grid_x, soft_u32 grid_y,         \
                         soft_u32 grid_z, soft_u32 lane, soft_u32 simdgroup) {                 \
        softmetal_made::run_at(row, origin, {x, y, z}, index, {grid_x, grid_y, grid_z}, lane,  \
                               simdgroup);                                                     \
    }                                                                                          \
    SOFTMETAL_ENTERS static void softmetal_one(void *const *row, const soft_thread &t) {       \
        softmetal_one_thread(row, &t, t.position_in_group[0], t.position_in_group[1],          \
                             t.position_in_group[2], t.index, t.position_in_grid[0],           \
                             t.position_in_grid[1], t.position_in_grid[2], t.lane,             \
                             t.simdgroup);                                                     \
    }                                                                                          \
    SOFTMETAL_ROWS_ALONG(0, rows)                                                              \
    SOFTMETAL_ROWS_ALONG(1, columns)                                                           \
    __attribute__((visibility("hidden"))) void softmetal_run_thread(const soft_thread *t) {    \
        softmetal_run_rows(t, 1, 1);                                                           \
    }                                                                                          \
    }                                                                                          \
    SOFTMETAL_IMAGE_OF(softmetal_run_thread, softmetal_run_rows, softmetal_made::prepare)
#define SOFTMETAL_ROWS_ALONG(axis, name)                                                       \
    __attribute__((noinline, visibility("hidden"))) void softmetal_run_##name(                 \
        const soft_thread *first, soft_u32 count, soft_u32 rows) {                             \
        softmetal_made::run_rows<axis, softmetal_one>(first, count, rows);                     \
    }
#endif
#define SOFTMETAL_IMAGE_OF(run_thread, run_rows, prepare)                                      \
    soft_image softmetal_image = {                                                             \
        SOFT_KERNEL_ABI,                                                                       \
        0,                                                                                     \
        nullptr,                                                                               \
        0,                                                                                     \
        0,                                                                                     \
        SOFTMETAL_IS_CHECKED,                                                                  \
        SOFTMETAL_IS_COUNTING,                                                                 \
        0,                                                                                     \
        run_thread,                                                                            \
        run_rows,                                                                              \
        nullptr,                                                                               \
        nullptr,                                                                               \
        nullptr,                                                                               \
        prepare,                                                                               \
    };                                                                                         \
    __attribute__((constructor)) static void softmetal_describe() {                            \
        static soft_argument_facts                                                             \
            facts[sizeof softmetal_argument_names / sizeof *softmetal_argument_names];         \
        softmetal_made::describe(softmetal_image, facts, softmetal_argument_names);            \
    }

/* Behind it: the names of the kernel's variables in threadgroup memory, by their numbers. */
#define SOFTMETAL_VARIABLE_NAMES(...)                                                          \
    __attribute__((constructor)) static void softmetal_name_variables() {                      \
        static const char *const names[] = {__VA_ARGS__};                                      \
        softmetal_image.variable_names = names;                                                \
    }

/* A function constant that nobody has given a value yet. */
#define SOFTMETAL_CONSTANT(type, name, index) static const type name = type()

#endif /* SOFTMETAL_IMAGE_H */
