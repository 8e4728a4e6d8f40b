"""The recipes of docs/how_to/apple.md, with Apple's frameworks."""

import numpy as np
import pytest
from machine import has_module
from recipes import recipe

import metal_dlpack as md

pytestmark = [pytest.mark.mac, pytest.mark.needs_pyobjc]
PAGE = "how_to/apple.md"


def run(mark, *modules):
    """The names of the first block behind these words, where its frameworks are installed."""
    for module in modules:
        if not has_module(module):
            pytest.skip(f"pyobjc-framework-{module} is not installed")
    names = {"md": md, "np": np}
    exec(recipe(PAGE, mark), names)
    return names


def test_core_ml_s_array_lies_in_an_array():
    multi_array = run("## Core ML\n", "CoreML")["multi_array"]
    for dtype in ("float16", "float32", "float64", "int32"):
        a = md.asarray(np.arange(6).reshape(2, 3), dtype=dtype)
        x = multi_array(a)
        assert [float(x.objectAtIndexedSubscript_(i)) for i in range(6)] == [0, 1, 2, 3, 4, 5]
        a[1, 2] = 9
        assert float(x.objectAtIndexedSubscript_(5)) == 9
    with pytest.raises(BufferError):
        multi_array(md.zeros((4, 6))[:, ::2])


def test_core_ml_writes_an_output_into_an_array(tmp_path):
    """Whether it does is printed: Core ML may decline."""
    if not has_module("coremltools"):
        pytest.skip("coremltools is not installed")
    import coremltools
    from coremltools.converters import mil

    @mil.Builder.program(input_specs=[mil.Builder.TensorSpec(shape=(2, 3))])
    def twice(x):
        return mil.Builder.add(x=x, y=x, name="y")

    names = run("## Core ML\n", "CoreML")
    exec(recipe(PAGE, "Give Core ML the memory for an output"), names)
    package = tmp_path / "twice.mlpackage"
    coremltools.convert(twice, compute_precision=coremltools.precision.FLOAT32).save(str(package))
    core_ml = names["CoreML"]
    compiled, error = core_ml.MLModel.compileModelAtURL_error_(core_ml.NSURL.fileURLWithPath_(str(package)), None)
    assert compiled is not None, error
    model, error = core_ml.MLModel.modelWithContentsOfURL_error_(compiled, None)
    assert model is not None, error
    a, y = md.asarray(np.arange(6, dtype="float32").reshape(2, 3)), md.zeros((2, 3))
    found = names["predict"](model, {"x": a}, {"y": y})
    print(f"outputs that lie in the Arrays: {found or 'none'}")
    assert y.tolist() == ([[0, 2, 4], [6, 8, 10]] if found else [[0] * 3] * 2)


def test_mpsgraph_reads_and_writes_arrays():
    run("## MPSGraph\n", "MetalPerformanceShaders", "MetalPerformanceShadersGraph")


def test_a_frame_is_an_array():
    names = run("## Frames of a video\n", "Quartz")
    quartz = names["Quartz"]
    wanted = {quartz.kCVPixelBufferIOSurfacePropertiesKey: {}}
    code, pixels = quartz.CVPixelBufferCreate(None, 61, 47, quartz.kCVPixelFormatType_32BGRA, wanted, None)
    assert code == 0
    frame = names["frame"](pixels)
    assert frame.shape == (47, 61, 4)
    frame.fill(7)
    surface = quartz.CVPixelBufferGetIOSurface(pixels)
    del pixels
    assert md.Buffer.from_iosurface(surface).array((4,), "uint8").tolist() == [7] * 4


def test_numpy_calls_accelerate():
    """Printed, for a person to judge: which library a NumPy calls is its build's matter."""
    print(np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"])
