"""The order of a call's arguments: the signature's, whatever Metal's reflection lists, and in whatever order."""

import itertools

import pytest

from metal_dlpack.language import diagnostics, signatures

BUFFERS = {"out": 1, "x": 0, "n": 2}
PLAIN = (
    "kernel void f(device float *out [[buffer(1)]], device float *x [[buffer(0)]], constant uint &n [[buffer(2)]]) {}"
)


def listed(names=BUFFERS, **threadgroup):
    """What Metal says of buffers and threadgroup memory."""
    return [(name, "buffer", index) for name, index in dict(names).items()] + [
        (name, "threadgroup", index) for name, index in threadgroup.items()
    ]


def names_of(text, bindings, kernel="f"):
    return " ".join(place.name + "?" * (place.listed < 0) for place in signatures.order(text, (kernel, bindings)))


#: How the signature of one kernel may be written; the order is the same, or that of the indices.
SPELLINGS = {
    "plain": PLAIN,
    "as an attribute": PLAIN.replace("kernel void", "[[kernel]] void"),
    "with a size": PLAIN.replace("kernel void", "[[kernel, max_total_threads_per_threadgroup(64)]] void"),
    "an attribute of GNU's": PLAIN.replace("kernel void", "kernel __attribute__((annotate(\"a(b\"))) void"),
    "in a namespace": f"namespace a {{ namespace b {{ {PLAIN} }} }}",
    "with comments": PLAIN.replace(", ", ", // device int *out, (\n /* kernel void f(device int *n) */ "),
    "a template": f"template <typename T, int N = (3 > 2)> {PLAIN}",
    "after its prototype": f"kernel void f(device float *, device float *, constant uint &);\n{PLAIN}",
    "in the body of a macro": "#define MAKE(T) \\\n" + PLAIN.replace("float", "T") + "\nMAKE(float)",
    "with a condition": PLAIN.replace(", device", "\n#ifdef A\n, device int *more [[buffer(5)]]\n#endif\n, device", 1),
    "two under conditions": f"#if A\n{PLAIN}\n#else\n{PLAIN}\n#endif",
    "with the thread's own": PLAIN.replace(") {}", ", uint i [[thread_position_in_grid]]) {}"),
    "coherent memory": PLAIN.replace("device float *x", "volatile coherent(system) device float *x"),
    "references and arrays": PLAIN.replace("*x", "(&x)[4]").replace("*out", "out[2][3]"),
    "indices by names": "constant int OUT = 1;\n" + PLAIN.replace("buffer(1)", "buffer(OUT)"),
    "among others": PLAIN.replace(" f(", " other(").replace("out", "in") + "\n" + PLAIN,
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_order_is_that_of_the_signature(spelling):
    for bindings in itertools.permutations(listed()):
        assert names_of(SPELLINGS[spelling], bindings) == "out x n"


def test_a_host_name_leads_to_the_function():
    swapped = PLAIN.replace("f(", "g(").replace(
        "*out [[buffer(1)]], device float *x [[buffer(0)]]", "*x, device float *out"
    )
    text = f'{PLAIN}\n{swapped}\ntemplate [[host_name("one")]] [[kernel]] decltype(f<float>) f<float>;\n'
    text += (
        'template [[host_name("two")]] [[max_total_threads_per_threadgroup(4)]] kernel void g<float>(device float *);'
    )
    bindings = [("n", "buffer", 2), ("out", "buffer", 1), ("x", "buffer", 0)]
    assert names_of(text, bindings, "one") == "out x n"
    assert names_of(text, bindings, "two") == "x out n"
    assert names_of(text, bindings, "three") == "x out n"  # made by a macro: two orders fit, so the indices decide


def test_a_parameter_of_a_macro_hides_what_it_stands_for():
    """`space float *x` seems to have the type `space`: no word of the two systems' disagreement, the indices decide."""
    text = "#define MAKE(space) \\\n" + PLAIN.replace("device float *x", "space float *x") + "\nMAKE(device)"
    assert names_of(text, listed()) == "x out n"


def test_what_metal_does_not_list_takes_its_place_in_a_call():
    """... if it is there for certain: not what a constant or a condition takes away, and nothing of the thread's."""
    assert names_of(PLAIN, listed({"n": 2})) == "out? x? n"
    assert names_of(PLAIN, []) == "out? x? n?"
    absent = PLAIN.replace("[[buffer(0)]]", "[[buffer(0), function_constant(has_x)]]")
    assert names_of(absent, listed({"n": 2})) == "out? n"
    condition = SPELLINGS["with a condition"]
    assert names_of(condition, listed()) == "out x n"
    assert names_of(condition, listed({"out": 1})) == "out x? n?"
    assert names_of(condition, listed({**BUFFERS, "more": 5})) == "out more x n"
    room = PLAIN.replace(
        ") {}", ", threadgroup float *room [[threadgroup(0)]], uint i [[thread_index_in_simdgroup]]) {}"
    )
    assert names_of(room, listed(room=0)) == "out x n room"
    found = signatures.order(room, ("f", listed()))
    assert [(one.name, one.listed, one.is_threadgroup) for one in found][-1] == ("room", -1, True)


@pytest.mark.parametrize(
    ("bindings", "words"),
    [
        (listed({**BUFFERS, "more": 3}), "lists buffer 3 of 'f' as 'more'"),
        (listed({**BUFFERS, "x": 7}), "lists buffer 7 of 'f' as 'x'"),
        (listed({"out": 1, "n": 2}, x=0), "lists threadgroup 0 of 'f' as 'x'"),
    ],
)
def test_where_source_and_metal_disagree_the_kernel_is_refused_by_name(bindings, words):
    with pytest.raises(TypeError, match=rf"Library.kernel: Metal {words}, which the source's signature \(out, x, n\)"):
        signatures.order(PLAIN, ("f", bindings))


def test_textures_and_samplers_have_their_place_in_the_order():
    text = (
        "kernel void f(sampler s [[sampler(0)]], device float *out, array<texture2d<float, access::read>, 4> many [[texture(2)]],"
        "const depthcube<float> d, metal::texture_buffer<uint> b [[texture(0)]]) {}"
    )
    bindings = [
        ("b", "texture", 0),
        ("d", "texture", 1),
        ("many", "texture", 2),
        ("out", "buffer", 0),
        ("s", "sampler", 0),
    ]
    assert names_of(text, bindings) == "s out many d b"
    assert not any(place.is_threadgroup for place in signatures.order(text, ("f", bindings)))
    with pytest.raises(TypeError, match="lists texture 3 of 'f' as 'many'"):
        signatures.order(text, ("f", [("many", "texture", 3)]))


@pytest.mark.parametrize(
    "text",
    [
        "",  # a library that has no source
        "#define SIGNATURE device float *out, device float *x, constant uint &n\nkernel void f(SIGNATURE) {}",
        "#define NAME out\nkernel void f(device float *NAME, device float *x, constant uint &n) {}",
        PLAIN.replace(" f(", " g(").replace("out", "y"),
        PLAIN.replace(")", ""),  # brackets that a condition leaves open
    ],
)
def test_where_the_text_does_not_show_the_signature_the_indices_order(text):
    assert names_of(text, listed()) == "x out n"
    assert names_of(text, [*listed(), ("picture", "", 0)]).split()[-2:] == ["out", "n"]


def test_a_texture_is_no_disagreement():
    """The maker of the kernel refuses it, by what it is."""
    text = PLAIN.replace(") {}", ", texture2d<float> picture [[texture(0)]]) {}")
    assert names_of(text, [("picture", "", 0), *listed()]) == "out x n picture"


def test_lines_keep_their_numbers_without_comments():
    text = 'a // b\n/* c\n d */ e "//f" \'"\' R"(/*)" \\\ng\n#line 7 "other"\nh'
    plain = signatures.without_comments(text)
    assert [len(line) for line in plain.split("\n")] == [len(line) for line in text.split("\n")]
    assert plain.split("\n")[3:] == ["g", '#line 7 "other"', "h"]
    lines = [(file, number, line) for file, number, line, is_it in diagnostics.numbered(plain, "mine") if not is_it]
    assert lines[-2:] == [("mine", 4, "g"), ("other", 7, "h")]
    assert '"//f" \'"\' R"(/*)"' in plain and "b" not in plain and "c" not in plain
