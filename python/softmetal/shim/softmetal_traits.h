/* softmetal_traits.h: metal_type_traits and metal_utility.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: everything here is a type.
 */
#ifndef SOFTMETAL_TRAITS_H
#define SOFTMETAL_TRAITS_H

struct bfloat;

namespace std {
/* What `{1, 2}` is to a function that takes a list. */
template <class T> class initializer_list {
    const T *first = nullptr;
    size_t number = 0;

  public:
    SOFTMETAL_INLINE constexpr size_t size() const { return number; }
    SOFTMETAL_INLINE constexpr const T *begin() const { return first; }
    SOFTMETAL_INLINE constexpr const T *end() const { return first + number; }
};
} // namespace std

namespace metal {
using ::bfloat;
using std::initializer_list;
template <class T, int N> struct vec;

template <class T, T v> struct integral_constant {
    static constexpr T value = v;
    typedef T value_type;
    typedef integral_constant type;
    SOFTMETAL_INLINE constexpr operator T() const { return v; }
    SOFTMETAL_INLINE constexpr T operator()() const { return v; }
};
template <bool b> using bool_constant = integral_constant<bool, b>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <class T> struct type_identity {
    typedef T type;
};

template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> : type_identity<T> {};
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;

template <bool B, class X, class Y> struct conditional : type_identity<X> {};
template <class X, class Y> struct conditional<false, X, Y> : type_identity<Y> {};
template <bool B, class X, class Y> using conditional_t = typename conditional<B, X, Y>::type;

/* A type that is made of another: `name<T>::type` and `name_t<T>`. */
#define SOFTMETAL_TRANSFORM(name, from, to)                                                    \
    template <class T> struct name : type_identity<T> {};                                      \
    template <class T> struct name<from> : type_identity<to> {};                               \
    template <class T> using name##_t = typename name<T>::type;
SOFTMETAL_TRANSFORM(remove_const, const T, T)
SOFTMETAL_TRANSFORM(remove_volatile, volatile T, T)
SOFTMETAL_TRANSFORM(remove_pointer, T *, T)
SOFTMETAL_TRANSFORM(remove_reference, T &, T)
SOFTMETAL_TRANSFORM(remove_extent, T[], T)
#undef SOFTMETAL_TRANSFORM
template <class T> struct remove_reference<T &&> : type_identity<T> {};
template <class T, size_t N> struct remove_extent<T[N]> : type_identity<T> {};
/* The same without an exception. */
#define SOFTMETAL_MAKE(name, ...)                                                              \
    template <class T> using name##_t = __VA_ARGS__;                                           \
    template <class T> struct name : type_identity<name##_t<T>> {};
SOFTMETAL_MAKE(remove_cv, remove_const_t<remove_volatile_t<T>>)
SOFTMETAL_MAKE(add_const, const T)
SOFTMETAL_MAKE(add_lvalue_reference, T &)
SOFTMETAL_MAKE(add_pointer, remove_reference_t<T> *)
SOFTMETAL_MAKE(decay, __decay(T))
SOFTMETAL_MAKE(remove_addrspace, T) /* the translator erases them: nothing is left to remove */
SOFTMETAL_MAKE(make_signed, __make_signed(T))
SOFTMETAL_MAKE(make_unsigned, __make_unsigned(T))
SOFTMETAL_MAKE(underlying_type, __underlying_type(T))
#undef SOFTMETAL_MAKE

} // namespace metal

namespace softmetal {
/* One number, no vector. */
template <class T> inline constexpr bool is_floating = __is_floating_point(T) ||
                                                       __is_same(metal::remove_cv_t<T>, half) ||
                                                       __is_same(metal::remove_cv_t<T>, bfloat);
} // namespace softmetal

namespace metal {
/* A question about one type: `name<T>::value` and `name_v<T>`. */
#define SOFTMETAL_TRAIT(name, ...)                                                             \
    template <class T> inline constexpr bool name##_v = __VA_ARGS__;                           \
    template <class T> struct name : bool_constant<name##_v<T>> {};
SOFTMETAL_TRAIT(is_integral, __is_integral(T))
SOFTMETAL_TRAIT(is_floating_point, softmetal::is_floating<T>)
/* And of vectors: PyTorch's kernels of float2 are chosen by it, SPIRV-Cross's sign of an int4, and
 * Apple's compiler takes them. */
template <class T, int N> inline constexpr bool is_integral_v<vec<T, N>> = __is_integral(T);
template <class T, int N> inline constexpr bool is_integral_v<const vec<T, N>> =
    __is_integral(T);
template <class T, int N> inline constexpr bool is_floating_point_v<vec<T, N>> =
    softmetal::is_floating<T>;
template <class T, int N> inline constexpr bool is_floating_point_v<const vec<T, N>> =
    softmetal::is_floating<T>;
SOFTMETAL_TRAIT(is_arithmetic, __is_integral(T) || softmetal::is_floating<T>)
SOFTMETAL_TRAIT(is_enum, __is_enum(T))
SOFTMETAL_TRAIT(is_pointer, __is_pointer(T))
SOFTMETAL_TRAIT(is_scalar, is_arithmetic_v<T> || __is_enum(T) || __is_pointer(T))
SOFTMETAL_TRAIT(is_signed, softmetal::is_floating<T> || __is_signed(T))
SOFTMETAL_TRAIT(is_unsigned, __is_unsigned(T))
SOFTMETAL_TRAIT(is_void, __is_void(T))
SOFTMETAL_TRAIT(is_const, __is_const(T))
SOFTMETAL_TRAIT(is_volatile, __is_volatile(T))
SOFTMETAL_TRAIT(is_array, __is_array(T))
SOFTMETAL_TRAIT(is_class, __is_class(T))
SOFTMETAL_TRAIT(is_union, __is_union(T))
SOFTMETAL_TRAIT(is_function, __is_function(T))
SOFTMETAL_TRAIT(is_reference, __is_reference(T))
SOFTMETAL_TRAIT(is_lvalue_reference, __is_lvalue_reference(T))
SOFTMETAL_TRAIT(is_rvalue_reference, __is_rvalue_reference(T))
SOFTMETAL_TRAIT(is_polymorphic, __is_polymorphic(T))
SOFTMETAL_TRAIT(is_abstract, __is_abstract(T))
SOFTMETAL_TRAIT(is_final, __is_final(T))
SOFTMETAL_TRAIT(is_pod, __is_pod(T))
SOFTMETAL_TRAIT(is_trivial, __is_trivial(T))
SOFTMETAL_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
SOFTMETAL_TRAIT(is_standard_layout, __is_standard_layout(T))
SOFTMETAL_TRAIT(is_literal_type, __is_literal_type(T))
SOFTMETAL_TRAIT(is_default_constructible, __is_constructible(T))
SOFTMETAL_TRAIT(is_copy_constructible, __is_constructible(T, const T &))
SOFTMETAL_TRAIT(is_move_constructible, __is_constructible(T, T &&))
SOFTMETAL_TRAIT(is_copy_assignable, __is_assignable(T &, const T &))
SOFTMETAL_TRAIT(is_trivially_destructible, __is_trivially_destructible(T))
SOFTMETAL_TRAIT(is_fundamental, is_arithmetic_v<T> || __is_void(T))
SOFTMETAL_TRAIT(is_object, __is_object(T))
#undef SOFTMETAL_TRAIT

/* A question about two types. */
#define SOFTMETAL_RELATION(name, answer)                                                       \
    template <class A, class B> inline constexpr bool name##_v = answer;                       \
    template <class A, class B> struct name : bool_constant<name##_v<A, B>> {};
SOFTMETAL_RELATION(is_same, __is_same(A, B))
SOFTMETAL_RELATION(is_convertible, __is_convertible(A, B))
SOFTMETAL_RELATION(is_base_of, __is_base_of(A, B))
SOFTMETAL_RELATION(is_assignable, __is_assignable(A, B))
#undef SOFTMETAL_RELATION

template <class T, class... A> inline constexpr bool is_constructible_v =
    __is_constructible(T, A...);
template <class T, class... A> struct is_constructible
    : bool_constant<is_constructible_v<T, A...>> {};

template <class... B> inline constexpr bool conjunction_v = (bool(B::value) && ...);
template <class... B> inline constexpr bool disjunction_v = (bool(B::value) || ...);
template <class B> inline constexpr bool negation_v = !bool(B::value);
template <class... B> struct conjunction : bool_constant<conjunction_v<B...>> {};
template <class... B> struct disjunction : bool_constant<disjunction_v<B...>> {};
template <class B> struct negation : bool_constant<negation_v<B>> {};
/* Apple's own spellings, which real libraries use. */
template <class... B> using _conjunction = conjunction<B...>;
template <class... B> using _disjunction = disjunction<B...>;
template <class B> using _negation = negation<B>;

template <class T> T &&declval() noexcept;
template <class T> SOFTMETAL_INLINE constexpr remove_reference_t<T> &&move(T &&x) {
    return static_cast<remove_reference_t<T> &&>(x);
}
template <class T> SOFTMETAL_INLINE constexpr void swap(T &a, T &b) {
    T kept = a;
    a = b;
    b = kept;
}
template <class T> SOFTMETAL_INLINE constexpr T *addressof(T &x) {
    return __builtin_addressof(x);
}
template <class F, class... A> using invoke_result_t = decltype(declval<F>()(declval<A>()...));
template <class F, class... A> struct invoke_result : type_identity<invoke_result_t<F, A...>> {
};

template <class T, T... I> struct integer_sequence {
    static constexpr size_t size() { return sizeof...(I); }
};
template <size_t... I> using index_sequence = integer_sequence<size_t, I...>;
template <class T, T N> using make_integer_sequence =
    __make_integer_seq<integer_sequence, T, N>;
template <size_t N> using make_index_sequence = make_integer_sequence<size_t, N>;

/* A value that is the same in all threads; for a CPU it is just a value. */
template <class T> using uniform = T;
template <class T> SOFTMETAL_INLINE constexpr T make_uniform(T x) { return x; }
} // namespace metal

#endif /* SOFTMETAL_TRAITS_H */
