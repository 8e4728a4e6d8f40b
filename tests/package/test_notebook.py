"""What notebooks show: well-formed, escaped, short and quick HTML, legible on light and dark grounds."""

import json
import re
import timeit
from xml.etree import ElementTree

import pytest
from held_work import held
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_dlpack as md
from metal_dlpack.notebook import cards
from metal_dlpack.notebook.lane_drawing import MAX_ROWS, Row, draw_rows
from metal_dlpack.notebook.thumbnail import thumbnail
from metal_dlpack.pages import style
from metal_dlpack.pages.markup import element, shortened
from metal_dlpack.sharing import draw

HOSTILE = "</title><script>alert(1)</script>&\"'\x00\x1b\ud800" + "x" * 5000
#: No output is longer.
MAX_LENGTH = 40_000
SVG = "{http://www.w3.org/2000/svg}"


def timed():
    array, stream = md.zeros(1000), md.Stream(label="</title><script>&\"'")
    with md.timeline() as seen:
        array.fill(1, stream=stream)
        array.copy()
    assert len(seen.events) > 1  # and from here on the timeline keeps no ring
    return seen


def examples():
    array, closed = md.asarray([[float(i) for i in range(40)]] * 30, dtype="float32"), md.Buffer(10)
    closed.close()
    yield "scalar", md.full((), 3.5)
    yield "array", array
    yield "view", array[3:9, ::2]
    yield "transposed", array.T
    yield "empty", md.zeros((0, 3))
    yield "packed", md.zeros((3, 5), "int4")
    yield "private", md.zeros((4, 4), storage="private").as_readonly()
    yield "axes", md.zeros((1,) * 60 + (2,) * 4)
    yield "large", md.zeros((1, 1)).broadcast_to((10**9, 10**9))
    yield "buffer", md.Buffer(100, label="weights")
    yield "closed buffer", closed
    yield "buffer of the host", md.Buffer.from_host(bytearray(100))
    yield "device", md.default_device()
    yield "stream", md.Stream(label="uploads")
    yield "layout", array[3:9, ::2].layout
    yield "implicit layout", md.StridedLayout((2, 3), None, 4)
    yield "empty layout", md.StridedLayout.dense((2, 0), 4)
    yield "timeline", timed()
    yield "picture", draw(array=array, view=array[::2], **{"no array": "text"})
    yield "many lanes", draw(*[array[i % 30] for i in range(500)])


EXAMPLES = dict(examples())


def parsed(html):
    root = ElementTree.fromstring(html)
    assert root.tag == "div"
    return root


def test_an_output_is_short_well_formed_and_the_same_each_time(subtests):
    for name, shown in EXAMPLES.items():
        with subtests.test(name):
            html = shown._repr_html_()
            root = parsed(html)
            assert len(html) < MAX_LENGTH
            assert html == shown._repr_html_()
            tags = {node.tag.removeprefix(SVG) for node in root.iter()}
            assert tags <= {"div", "b", "pre", "style", "svg", "title", "g", "text", "rect", "path"}
            assert not any(
                "id" in node.attrib or any(key.startswith("on") for key in node.attrib) for node in root.iter()
            )
            for svg in root.iter(SVG + "svg"):
                assert svg.attrib["role"] == "img"
                assert svg.attrib["aria-label"]
                size = f"{svg.attrib['width']} {svg.attrib['height']}"
                assert svg.attrib["viewBox"] == f"0 0 {size}"  # it shrinks as a whole


def quickest(call):
    return min(timeit.repeat(call, number=1, repeat=7))


@pytest.mark.needs_no_sanitizer
def test_an_output_is_quick(subtests):
    for name, shown in EXAMPLES.items():
        with subtests.test(name):
            assert quickest(shown._repr_html_) < 0.01


def test_an_array_shows_facts_items_and_lanes():
    array = md.full((30, 40), 1.5)
    view = array[3:9, ::2]
    root = parsed(view._repr_html_())
    said = "".join(root.itertext())
    facts = ("(6, 20) float32", "480 bytes", "shared", "metal:0", "idle", "1 other view", f"{array.buffer.handle:#x}")
    assert [fact for fact in facts if fact not in said] == []
    assert "[1.5, 1.5, 1.5" in root.find("pre").text
    titles = [title.text for title in root.iter(SVG + "title")]
    assert any("bytes 480 to 1,436, with gaps\nstrides (40, 2) items" in title for title in titles)


def test_a_row_of_float32_is_one_line():
    array = md.asarray([[-1.2345678 - i / 8191 for i in range(40)] for _ in range(40)])
    lines = parsed(array._repr_html_()).find("pre").text.splitlines()
    assert len(lines) == 7
    assert max(map(len, lines)) > 75  # which repr() breaks


def test_wrapped_memory_names_its_owner_and_calls_no_bytes_before_it_usable():
    array = md.Buffer.from_host(memoryview(bytearray(40_000))[100:164]).array((64,), "uint8", None)
    assert "(64 bytes usable)" in array._repr_html_()
    memory = type("Nowhere", (bytearray,), {"__module__": None})(64 * 1024)
    array = md.Buffer.from_host(memory).array((8,), "uint8")
    assert "None.Nowhere" in array._repr_html_()
    assert "MTLBuffer" in str(draw(array))


def test_a_scalar_needs_two_lines_and_its_value():
    root = parsed(md.full((), 3.5)._repr_html_())
    assert root.find("pre").text == "3.5"
    assert not list(root.iter(SVG + "svg"))


@pytest.mark.needs_softmetal
def test_work_in_flight_and_who_holds_a_buffer_is_said():
    array, stream = md.zeros(3), md.Stream()
    export = array.__dlpack__()
    assert "idle · 1 export" in array._repr_html_()
    with held(stream):
        array.fill(1, stream=stream)
        html = array._repr_html_()
        assert "GPU writes in flight" in html
        assert "&lt;GPU work in flight&gt;" in html
        assert "2 of 2 pieces of work in flight" in stream._repr_html_()
    stream.synchronize()
    assert "idle" in stream._repr_html_()
    del export


def test_hostile_names_are_escaped_and_shortened():
    label = HOSTILE.replace("\ud800", "").replace("\x00", "")
    owner = type(label, (bytearray,), {"__module__": "<script>"})
    owned = md.Buffer.from_host(owner(64))
    picture = draw(
        **{HOSTILE: md.zeros(3), "other": HOSTILE, HOSTILE + "2": "x"}, owned=owned.array(64, "uint8", owned.offset)
    )
    for shown in (owned, md.Buffer(10, label=label), picture):
        html = shown._repr_html_()
        root = parsed(html)
        html.encode()
        assert len(html) < MAX_LENGTH
        assert not list(root.iter("script"))
        assert "\x00" not in html


@given(st.text(st.characters(), max_size=40))
def test_any_text_is_written_as_it_is_or_replaced(text):
    html = element("b", text, title=text)
    root = ElementTree.fromstring(html.encode())
    expected = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)
    assert (root.text or "") == expected.replace("\r\n", "\n").replace("\r", "\n")


def test_a_long_name_keeps_its_ends():
    assert shortened("model.layers.0.self_attn.q_proj.weight", 21) == "model.laye…roj.weight"
    assert shortened("short", 21) == "short"


# ---- drawings ----


@settings(max_examples=200)
@given(st.lists(st.integers(0, 2**40), max_size=64).map(tuple), st.booleans())
def test_a_thumbnail_is_small_whatever_the_shape(shape, is_reversed):
    strides = range(1, len(shape) + 1) if is_reversed else None
    drawn = thumbnail(shape, strides)
    if not shape or 0 in shape:
        assert drawn is None
        return
    root = ElementTree.fromstring(drawn)
    assert float(root.attrib["width"]) < 460
    assert float(root.attrib["height"]) < 160
    assert len(drawn) < 5000


def test_the_grain_runs_as_memory_does():
    def grain(*arguments):
        return [d for d in re.findall(r'd="(M[^"]*)"', thumbnail(*arguments)) if not d.endswith("z")]

    assert "h" in grain((4, 6))[0]
    assert "h" in grain((4, 6), (6, 1))[0]
    assert "v" in grain((4, 6), (1, 4))[0]
    assert "v" in grain((4, 6), (1, -4))[0]
    assert grain((3, 4, 6), (1, 3, 12)) == []


def test_rows_lie_inside_their_track():
    drawn = draw_rows([Row("a", [(0.0, 0.0001)]), Row("b", [(0.9999, 1.0)]), Row("c", [])], "label", 10)
    root = ElementTree.fromstring(drawn)
    track, *_ = [node for node in root.iter(SVG + "rect") if node.attrib.get("class") == "mdl-track"]
    left, width = float(track.attrib["x"]), float(track.attrib["width"])
    filled = [node for node in root.iter(SVG + "rect") if "class" not in node.attrib]
    assert len(filled) == 2
    for node in filled:
        assert left <= float(node.attrib["x"])
        assert float(node.attrib["x"]) + float(node.attrib["width"]) <= left + width + 0.01
    assert "and 7 more" in drawn


def test_many_lanes_memories_and_long_refusals_are_shown_in_short():
    assert f"and {500 - MAX_ROWS} more" in EXAMPLES["many lanes"]._repr_html_()

    class Refusing:
        def __dlpack_device__(self):
            raise BufferError("why " * 10_000)

    html = draw(*[md.zeros(1) for _ in range(100)], *[Refusing()] * 100)._repr_html_()
    parsed(html)
    assert len(html) < MAX_LENGTH
    left = 100 - cards.MAX_GROUPS
    assert f"and {left} more memories · and {left} more that could not be placed" in html


# ---- colours ----


def luminance(colour):
    def linear(part):
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_text_is_legible(subtests):
    for theme in [style.LIGHT, style.DARK]:
        with subtests.test(str(theme)):
            ground = theme["ground"]
            assert min(contrast(theme["text"], ground), contrast(theme["quiet"], ground)) >= 4.5
            assert min(contrast(colour, ground) for colour in style.ACCENTS) >= 3  # WCAG 1.4.11, what is no text
            assert all(colour in style.STYLE_SHEET for colour in theme.values())


def test_a_card_of_each_type_is_reached():
    from metal_dlpack.notebook import CARDS

    assert {card.__name__ for card in CARDS.values()} == {name for name in vars(cards) if name.endswith("_card")}
    elsewhere = {"SingleFile", "ShardedFile", "Kernel", "Library"}
    assert {type(shown).__name__ for shown in EXAMPLES.values()} | elsewhere == set(CARDS)


# ---- kernels ----

KERNELS = """
#include <metal_stdlib>
using namespace metal;

struct Point { float4 place; int colour; };

kernel void shade(device const float *x, device float4 *y, constant Point &point, threadgroup float *parts,
                  uint i [[thread_position_in_grid]])
{
    threadgroup float own[8];
    own[0] = parts[0] = x[i];
    y[i] = own[0] * point.place;
}

[[host_name("</b><script>&")]] kernel void none() {}
"""


@pytest.fixture(scope="module")
def library():
    return md.Library(KERNELS, name="</title><script>&" + "x" * 5000)


@pytest.mark.needs_kernels
def test_a_kernel_shows_how_to_call_it(library):
    kernel = library["shade"]
    html = kernel._repr_html_()
    root = parsed(html)
    said = "".join(root.itertext())
    for fact in ("Kernel shade", "metal:0", "SIMD-groups of 32 threads", f"{kernel.max_total_threads:,} threads in a"):
        assert fact in said
    assert "32 bytes of threadgroup memory" in said
    assert root.find("pre").text.splitlines() == [
        "x      float32    read",
        "y      float32x4  read and written",
        "point  32 bytes   read",
        "parts             threadgroup_memory={'parts': nbytes}",
    ]
    assert len(html) < MAX_LENGTH
    assert quickest(kernel._repr_html_) < 0.01


@pytest.mark.needs_kernels
def test_a_library_lists_its_kernels(library):
    root = parsed(library._repr_html_())
    assert not list(root.iter("script"))
    assert "2 kernels · metal:0" in "".join(root.itertext())
    assert set(root.find("pre").text.splitlines()) == set(library.kernels)
    assert "Kernel </b><script>&" in "".join(parsed(library["</b><script>&"]._repr_html_()).itertext())
    assert "no kernels" in md.Library("#include <metal_stdlib>")._repr_html_()


@pytest.mark.needs_kernels
def test_many_kernels_are_counted_and_long_names_cut():
    names = [f"k{'x' * 200}{i}" for i in range(25)]
    library = md.Library("\n".join(f"kernel void {name}(device float *{name}) {{}}" for name in names))
    html = library._repr_html_()
    assert f"and {25 - cards.MAX_KERNELS} more" in html
    for shown in (html, library[names[0]]._repr_html_()):
        assert max(map(len, parsed(shown).find("pre").text.splitlines())) < 100


# ---- files ----


def test_a_file_of_many_tensors_is_shown_in_short(tmp_path):
    np = pytest.importorskip("numpy")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    path = tmp_path / "model.safetensors"
    save_file({f"layer.{i}<b>": np.zeros(2, np.float32) for i in range(20_000)}, path)
    with md.open(path) as file:
        html = file._repr_html_()
        root = parsed(html)
        assert len(html) < MAX_LENGTH
        assert "20,000 tensors" in html
        assert f"and {20_000 - cards.MAX_TENSORS:,} more" in html
        assert "from byte" in "".join(root.itertext())
        assert quickest(file._repr_html_) < 0.01
    assert "closed" in "".join(parsed(file._repr_html_()).itertext())
    assert file.nbytes == path.stat().st_size


def test_a_model_in_several_files_shows_its_files_and_opens_none(tmp_path):
    (tmp_path / "one.safetensors").write_bytes(b"x" * 3000)  # no sound file: opening it would raise
    index = {"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}}
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    with md.open(path) as file:
        assert (file.shards, file.nbytes) == ({"one.safetensors": 3000, "two.safetensors": None}, 3000)
        words = " ".join(parsed(file._repr_html_()).itertext())
    assert "3 tensors" in words and "2 files" in words
    assert "two.safetensors" in words and "not there" in words
    assert "closed" in file._repr_html_()
