"""last_refusal: what our producer said, also where a framework hides it."""

import gc
import sys
import weakref

import pytest
from own_threads import in_threads

import metal_dlpack as md


def refuse(array, **keywords):
    with pytest.raises(BufferError) as caught:
        array.__dlpack__(**keywords)
    return caught.value


@pytest.mark.rule("refusal-kept")
def test_it_is_the_last_error_with_its_class_and_text():
    array = md.zeros(4)
    for asked, keywords in ((array, {"stream": 1}), (array, {"dl_device": (2, 0)}), (array.as_readonly(), {})):
        refused = refuse(asked, **keywords)
        assert (type(md.last_refusal()), str(md.last_refusal())) == (type(refused), str(refused))
    assert "read-only" in str(md.last_refusal())
    raised = refuse(array[::-1], copy=False)
    noted = md.last_refusal()
    assert (type(noted), noted.args) == (md.CopyRequiredError, raised.args)
    array.__dlpack__()
    assert md.last_refusal() is noted, "it stays until the next"
    with pytest.raises(TypeError):
        array.__dlpack__(unknown=1)
    assert isinstance(md.last_refusal(), TypeError)


def test_it_holds_no_frames_and_so_no_arrays():
    class Watched:
        pass

    def fail():
        watched = Watched()
        array = md.zeros(4)
        try:
            array.__dlpack__(stream=5)
        except BufferError:
            return weakref.ref(watched)

    seen = fail()
    gc.collect()
    assert md.last_refusal().__traceback__ is None
    assert seen() is None


@pytest.mark.rule("refusal-kept")
def test_each_thread_has_its_own():
    refuse(md.zeros(4), stream=7)
    mine = md.last_refusal()

    def work(_):
        assert md.last_refusal() is None
        refuse(md.zeros(4), dl_device=(3, 0))
        assert "(3, 0)" in str(md.last_refusal())

    in_threads(1, work)
    assert md.last_refusal() is mine


def test_the_host_view_is_a_producer_too():
    refuse(md.zeros(4).host, stream=9)
    assert "(9)" in str(md.last_refusal())


def test_references_are_counted_exactly():
    array = md.zeros(4)
    refuse(array, stream=1)
    noted = md.last_refusal()
    before = sys.getrefcount(noted)
    for _ in range(100):
        md.last_refusal()
    assert sys.getrefcount(noted) == before
    refuse(array, stream=1)
    assert sys.getrefcount(noted) == before - 1


@pytest.mark.rule("refusal-kept")
def test_what_mlx_hides_can_be_read(mx):
    class Refusing:
        """MLX asks twice, with and without a version; neither is answered."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **_):
            return self.array.__dlpack__(dl_device=(5, 5))

    with pytest.raises(TypeError) as caught:
        mx.from_dlpack(Refusing(md.zeros(4)))
    assert "(5, 5)" not in str(caught.value)
    assert "(5, 5)" in str(md.last_refusal())


def test_the_exchange_api_is_a_producer_too():
    from dlpack_structs import borrow, table_of

    with pytest.raises(BufferError, match="read-only"):
        borrow(table_of(md.Array), md.zeros(4).as_readonly())
    assert "borrowed" in str(md.last_refusal())
