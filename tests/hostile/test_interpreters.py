"""Sub-interpreters: each has its own module, and tensors pass between them like between frameworks.

Run in child processes, with the interpreters that CPython itself makes.  NumPy cannot be imported there, so tensors
are looked at through ctypes alone.
"""

import textwrap

import pytest
from children import output_of

PRELUDE = """
    import sys, threading
    try:
        import _interpreters as interpreters            # 3.13
    except ImportError:
        import _xxsubinterpreters as interpreters

    def make():
        if sys.version_info[:2] == (3, 12):
            return interpreters.create(isolated=False)  # ctypes does not load beside a GIL of its own
        if sys.version_info >= (3, 13):
            return interpreters.create("isolated")      # a GIL of its own
        return interpreters.create()

    def run(interpreter, code, **shared):
        failed = interpreters.run_string(interpreter, CODE + code, {"paths": repr(sys.path), **shared})
        assert failed is None, failed

    CODE = '''
    import sys
    sys.path[:0] = eval(paths)
    import metal_dlpack as md
    '''
"""


def child(code):
    text = textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    return output_of(text, options=["-X", "faulthandler"], COVERAGE_PROCESS_START=None)  # it knows one interpreter


@pytest.mark.rule("interpreters")
def test_each_interpreter_has_a_module_of_its_own():
    out = child("""
        import metal_dlpack as md
        array = md.full(3, 1.0)
        for i in range(5):
            interpreter = make()
            run(interpreter, '''
        array = md.full(3, float(number))
        assert md.from_dlpack(array.__dlpack__()).tolist() == [float(number)] * 3
        assert isinstance(md.from_dlpack(array), md.Array)
        try:
            array.__dlpack__(dl_device=(2, 0))
        except BufferError:
            assert "(2, 0)" in str(md.last_refusal())
        import datetime
        try:
            md.from_dlpack(datetime.datetime_CAPI)
        except BufferError:
            pass
        else:
            raise AssertionError
        ''', number=str(i))
            assert md.last_refusal() is None
            interpreters.destroy(interpreter)
            assert array.tolist() == [1.0] * 3
        print("done")
    """)
    assert out == "done\n"


@pytest.mark.rule("interpreters")
def test_a_tensor_crosses_and_is_deleted_by_the_other_interpreter():
    """By its address, as a C library would hand it over."""
    out = child("""
        import gc, ctypes
        import metal_dlpack as md
        import softmetal
        from dlpack_structs import open_capsule
        before = softmetal.live_objects("MTLBuffer") if softmetal.is_present() else 0
        for owner in (False, True):
            array = md.full(4, 2.0)
            if owner:
                class Owner:
                    def __del__(self):
                        print("let go", interpreters.get_current() == interpreters.get_main(), flush=True)
                array = md.Buffer.from_handle(array.buffer.handle, owner=Owner()).array(4)
            opened = open_capsule(array.__dlpack__(max_version=(1, 0)))
            opened.take()
            del array
            interpreter = make()
            run(interpreter, '''
        import ctypes
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        name = b"dltensor_versioned"
        array = md.from_dlpack(new(int(address), name, None))
        assert array.shape == (4,)
        array.fill(5.0)
        again = md.from_dlpack(array.__dlpack__())
        del array
        assert again.tolist() == [5.0] * 4
        del again
        ''', address=str(opened.address))
            interpreters.destroy(interpreter)
            md.from_dlpack(md.zeros(1))
        gc.collect()
        md.empty_cache()
        if softmetal.is_present():
            assert softmetal.live_objects("MTLBuffer") == before, softmetal.live_objects("MTLBuffer") - before
            assert softmetal.reports() == 0, softmetal.last_report()
        print("done")
    """)
    assert out.splitlines()[-1] == "done"
    assert [line for line in out.splitlines() if line.startswith("let go")] == ["let go True"]


@pytest.mark.rule("interpreters")
def test_an_interpreter_ends_while_its_tensors_live():
    """What it exported is used and deleted after its end, by the main one."""
    out = child("""
        import ctypes, os
        import metal_dlpack as md
        from dlpack_structs import Versioned, new_capsule
        read, write = os.pipe()
        interpreter = make()
        run(interpreter, '''
        import os
        from dlpack_structs import open_capsule
        array = md.full(4, 3.0)
        owned = md.Buffer.from_handle(array.buffer.handle, owner=[1]).array(4)
        for one in (array, owned):
            opened = open_capsule(one.__dlpack__(max_version=(1, 0)))
            opened.take()
            os.write(int(write), f"{opened.address} ".encode())
        md.kept = [array, owned, array.__dlpack__(), memoryview(array)]
        ''', write=str(write))
        interpreters.destroy(interpreter)
        for address in os.read(read, 100).split():
            array = md.from_dlpack(new_capsule(int(address), b"dltensor_versioned", None))
            assert array.tolist() == [3.0] * 4
            del array
        print("done")
    """)
    assert out == "done\n"


@pytest.mark.rule("interpreters")
@pytest.mark.parametrize("call", ["md.from_dlpack(other)", "other.__dlpack__()", "md.shares_memory(other, other)"])
def test_what_another_interpreter_deleted_goes_with_the_next_exchange(call):
    """Python runs pending calls in the main one only."""
    out = child(f"""
        import os
        import metal_dlpack as md
        from dlpack_structs import delete
        read, write = os.pipe()
        interpreter = make()
        run(interpreter, '''
        import os
        from dlpack_structs import open_capsule
        class Owner:
            def __del__(self):
                print("let go", flush=True)
        other = md.zeros(4)
        opened = open_capsule(md.Buffer.from_handle(other.buffer.handle, owner=Owner()).array(4).__dlpack__(max_version=(1, 0)))
        opened.take()
        os.write(int(write), str(opened.address).encode())
        ''', write=str(write))
        delete(int(os.read(read, 100)))
        print("deleted", flush=True)
        run(interpreter, "{call}; print('called')")
        interpreters.destroy(interpreter)
    """)
    assert out.split("\n") == ["deleted", "let go", "called", ""]


@pytest.mark.rule("interpreters")
def test_many_interpreters_work_at_once():
    out = child("""
        import metal_dlpack as md
        array = md.full(64, 7.0)

        def work():
            interpreter = make()
            run(interpreter, '''
        for i in range(300):
            array = md.full((8, 8), float(i))
            view = md.from_dlpack(array[1:].__dlpack__(max_version=(1, 0)))
            assert view.copy()[0, 0].item() == i
        ''')
            interpreters.destroy(interpreter)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(array[3].item())
    """)
    assert out == "7.0\n"


@pytest.mark.rule("interpreters")
@pytest.mark.needs_kernels
def test_two_interpreters_sample_textures():
    """The GPU's work goes on when its interpreter ends."""
    out = child("""
        CODE += '''
        def doubled(x):
            kernel = md.kernel(
                "#include <metal_stdlib>\\\\nusing namespace metal; kernel void f(texture2d<float> t, sampler s, "
                "texture2d<float, access::write> u, uint2 i [[thread_position_in_grid]])"
                "{ u.write(2 * t.sample(s, (float2(i) + 0.5f) / 2, level(1)), i); }"
            )
            into = md.texture(md.zeros((2, 2)), copy=True, mip_levels=2)
            kernel(md.texture(md.full((4, 4), x), copy=True, mip_levels=3), md.sampler(mip_filter="linear"), into, threads=(2, 2))
            return into
        '''
        paths = "[]"
        exec(CODE)
        kept = doubled(1.0)
        for _ in range(3):
            interpreter = make()
            run(interpreter, '''
        assert doubled(3.0).array.tolist() == [[6.0] * 2] * 2
        md.kept = doubled(3.0)  # and nobody waits for it
        ''')
            interpreters.destroy(interpreter)
        assert kept.array.tolist() == doubled(1.0).array.tolist() == [[2.0] * 2] * 2
        del kept
        md.default_device().synchronize()
        import softmetal
        print("done", softmetal.live_objects("SoftMetalTexture") if softmetal.is_present() else 0)
    """)
    assert out == "done 0\n"


@pytest.mark.needs_softmetal
def test_a_timeline_s_lines_are_those_of_one_interpreter():
    """The first that has one gives them.  Its code goes with its last timeline; records stay without a line."""
    out = child("""
        import weakref
        import metal_dlpack as md

        def fills():
            md.zeros(10).fill(1, stream=md.default_device().default_stream)

        def lines(timeline):
            return [bool(work.place) for work in timeline.work]

        fills.__code__ = fills.__code__.replace()  # which nothing else keeps
        code = weakref.ref(fills.__code__)
        own = md.timeline()
        with own:
            fills()
            interpreter = make()
            run(interpreter, '''
        def fills():
            md.zeros(10).fill(1, stream=md.default_device().default_stream)

        def lines(timeline):
            return [bool(work.place) for work in timeline.work]

        long, short = md.timeline(), md.timeline()
        long.__enter__()
        with short:
            fills()
        print(lines(short), flush=True)
        ''')
            fills()
        print(lines(own))
        del own, fills
        print(code())
        run(interpreter, '''
        with md.timeline() as later:
            fills()
        fills()
        long.__exit__(None, None, None)
        print(lines(later), lines(long), flush=True)
        ''')
        interpreters.destroy(interpreter)
        with md.timeline() as own:
            md.zeros(10).fill(1, stream=md.default_device().default_stream)
        print(lines(own))
    """)
    assert out.splitlines() == [
        "[False]",
        "[True, False, True]",
        "None",
        "[True] [False, False, True, True]",
        "[True]",
    ]


@pytest.mark.needs_softmetal
def test_a_failure_of_gpu_work_is_nothing_to_an_interpreter_without_the_module():
    """It fails while no interpreter runs, or CPython would leave the call to the one that does: it may have the module."""
    out = child("""
        import time
        run(make(), '''
        import softmetal
        softmetal.configure(fail="commit@1=8", latency_us=200_000)
        md.Stream().record()
        ''')
        time.sleep(0.5)
        print(sum(range(1000)))  # the main interpreter makes the call that is pending
    """)
    assert out == "499500\n"


@pytest.mark.needs_softmetal
@pytest.mark.needs_torch
@pytest.mark.parametrize("first", ["", "softmetal.torch_mps(); import torch; t = torch.ones(3, device='mps')"])
@pytest.mark.some(1)
def test_torch_s_mps_is_switched_on_in_the_main_interpreter_alone(first):
    """Torch crashes or hangs where it is imported in another."""
    out = child(f"""
        import softmetal
        {first}
        interpreter = make()
        run(interpreter, '''
        import softmetal
        try:
            softmetal.torch_mps()
        except RuntimeError as error:
            print(error)
        assert "torch" not in sys.modules
        ''')
        interpreters.destroy(interpreter)
        softmetal.torch_mps()
        import torch
        print((torch.ones(3, device="mps") + 1).tolist())
    """)
    refusal, computed = out.splitlines()
    assert refusal.startswith("softmetal.torch_mps: torch works in the main interpreter of a process alone")
    assert computed == "[2.0, 2.0, 2.0]"


@pytest.mark.rule("module-ends")
@pytest.mark.parametrize("kept", ["None", "md.asarray(bytearray(8))[2:]"])
def test_a_module_that_nobody_has_any_more_is_collected(kept):
    """With its types, and what it keeps itself.  At an interpreter's end too: only then its owners are let go."""
    out = child(f"""
        import gc, weakref
        import metal_dlpack as md
        array = md.full(3, 1.0)
        md.default_device().default_stream, md.StridedLayout((2, 3), None, 4), md.asarray(bytearray(8))
        md._core.kept = {kept}
        core = weakref.ref(md._core)
        for name in [name for name in sys.modules if name.startswith("metal_dlpack")]:
            del sys.modules[name]
        del md, array
        gc.collect()
        kinds = [thing for thing in gc.get_objects() if isinstance(thing, type)]
        print(core(), [kind for kind in kinds if kind.__module__ == "metal_dlpack"])
    """)
    assert out == "None []\n"
