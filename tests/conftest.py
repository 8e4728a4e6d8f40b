"""Markers, fixtures and the hypothesis profile: made once, for every test file."""

import gc
import os
import platform
import sys
import warnings
from collections import Counter
from importlib.metadata import entry_points

# Before the extension is imported: the software Metal reads its environment once.
os.environ.setdefault("SOFTMETAL_VALIDATION", "1")
os.environ.setdefault("SOFTMETAL_KERNEL_CHECK", "0")  # kernels run as they do outside of tests, unless one asks
os.environ.setdefault("JAX_PLATFORMS", "cpu")

if os.environ.get("METAL_DLPACK_SANITIZE"):
    # Not built with the sanitizer: their allocators and threads make reports of their own.
    sys.modules.update(dict.fromkeys(("torch", "jax", "mlx")))

import hypothesis
import pytest
from machine import HAS_SOFTMETAL, SANITIZER, has_kernels, has_metal, has_mlx_metal, has_module, has_mps

import metal_dlpack as md
import softmetal
from metal_dlpack.asking import trials
from softmetal.msl import cache

if SANITIZER:
    trials.ask_child = lambda _consumer, _names: {}  # a child would import what is left out above
    # This process is looked at for leaks; its children, compilers among them, are not.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"

if not entry_points(group="pytest11", name="metal_dlpack"):
    pytest_plugins = ["_metal_dlpack_pytest"]  # it is built, and not installed

hypothesis.settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    max_examples=50,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("house")


#: Marker: (what it needs, how to find out).  Asked once, and only if a test carries the marker.
MARKERS = {
    "needs_metal": ("Apple's Metal", has_metal),
    "needs_softmetal": ("the software Metal", lambda: HAS_SOFTMETAL),
    "needs_kernels": ("Metal, or a compiler for kernels", has_kernels),
    "needs_numpy": ("NumPy", lambda: has_module("numpy")),
    "needs_ml_dtypes": ("ml_dtypes", lambda: has_module("ml_dtypes")),
    "needs_torch": ("PyTorch", lambda: has_module("torch")),
    "needs_expecttest": ("expecttest", lambda: has_module("expecttest")),
    "needs_torchvision": ("torchvision", lambda: has_module("torchvision")),
    "needs_transformers": ("transformers", lambda: has_module("transformers")),
    "needs_mps": ("PyTorch with MPS", has_mps),
    "needs_tvm": ("apache-tvm-ffi", lambda: has_module("tvm_ffi")),
    "needs_jax": ("JAX", lambda: has_module("jax")),
    "needs_mlx": ("MLX", lambda: has_module("mlx")),
    "needs_ray": ("Ray", lambda: has_module("ray")),
    "needs_tinygrad": ("tinygrad", lambda: has_module("tinygrad")),
    "needs_ipykernel": ("ipykernel", lambda: has_module("ipykernel")),
    "needs_pyobjc": ("PyObjC with Metal", lambda: has_module("objc") and has_module("Metal")),
    "needs_mlx_metal": ("MLX with Metal", has_mlx_metal),
    "needs_nanobind": ("nanobind", lambda: has_module("nanobind")),
    "needs_cython": ("Cython", lambda: has_module("Cython")),
    "needs_cmake": ("CMake and ninja", lambda: has_module("cmake") and has_module("ninja")),
    "needs_pkgconf": ("pkgconf", lambda: has_module("pkgconf")),
    "needs_scikit_build_core": ("scikit-build-core", lambda: has_module("scikit_build_core")),
    "needs_cuda_core": ("cuda-core", lambda: has_module("cuda.core")),
    "needs_container": ("a system that `make action` makes", lambda: "METAL_DLPACK_CONTAINER" in os.environ),
    "needs_no_sanitizer": ("a build without a sanitizer", lambda: not SANITIZER),
    # ThreadSanitizer has ended when exit handlers run, and instrumented code needs it.
    "needs_no_tsan": ("a build without ThreadSanitizer", lambda: "thread" not in SANITIZER),
    "needs_glibc": ("glibc", lambda: platform.libc_ver()[0] == "glibc"),
}
answers: dict[str, bool] = {}


def pytest_configure(config):
    if HAS_SOFTMETAL:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            folder = cache.folder()
        if told:  # once for all tests and their children: it would be an error in each
            os.environ["SOFTMETAL_CACHE"] = str(folder)
    config.addinivalue_line(
        "markers", "rule(*ids, peers=()): holds these rules of protocol_rules.md; see docs/inside/protocol.md"
    )
    config.addinivalue_line("markers", "mac: asks what only a Mac can show; tools/on_a_mac.py sends the answers")
    config.addinivalue_line(
        "markers", "some(n): of a parametrised test that takes long, all but the first n cases that are not are long"
    )
    config.addinivalue_line("markers", "long: takes long; `make test-all` runs it, `make test` does not")
    for name, (what, _) in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: needs {what}")


#: What takes a worker longest is begun first, so that all workers end together.
FIRST = (
    "package",
    "torch_mps",
    "report",
    "kernels",
    "mlx_kernels",
    "hostile",
    "msl",
    "exchange",
    "house",
    "array",
    "module",
    "softmetal",
)


@pytest.hookimpl(tryfirst=True)  # before -m looks
def pytest_collection_modifyitems(items):
    cases = Counter()
    for item in items:
        some = item.get_closest_marker("some")
        if some is not None and item.get_closest_marker("long") is None:
            cases[item.path, item.originalname] += 1
            if cases[item.path, item.originalname] > some.args[0]:
                item.add_marker("long")
        if "torch" in getattr(item, "fixturenames", ()):
            item.add_marker("needs_torch")
    rank = {folder: place for place, folder in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores: tests wait for children, for threads and for work on the GPU."""
    return (os.cpu_count() or 1) + 1


#: By whoever runs pytest: tools/mutant_server.py imports torch once for all runs.
LOADED_BEFORE = set(sys.modules)


def pytest_collection_finish():
    """Every worker collects every file: what takes seconds to import is imported by the test that needs it."""
    slow = {"torch", "jax", "mlx", "tvm_ffi", "scipy", "pandas", "matplotlib", "sphinx", "distributed", "IPython"}
    if imported := sorted(name for name in slow - LOADED_BEFORE if sys.modules.get(name)):
        raise pytest.UsageError(
            f"a test file imports {', '.join(imported)} when it is collected: import it in the tests."
        )


def pytest_terminal_summary(terminalreporter, config):
    """Workers do not tell how many tests they left out."""
    if "not long" in config.option.markexpr:
        terminalreporter.line("Left out: the tests marked long. `make test-all` runs them.")


def pytest_runtest_setup(item):
    if item.get_closest_marker("mac") and "MTL_DEBUG_LAYER" in os.environ:
        pytest.skip("tools/on_a_mac.py asks it, without Metal's validation: some do what that forbids")
    for name, (what, ask) in MARKERS.items():
        if item.get_closest_marker(name) is None:
            continue
        if name not in answers:
            answers[name] = bool(ask())
        if not answers[name]:
            pytest.skip(f"needs {what}")


def pytest_report_header():
    metal = "software" if HAS_SOFTMETAL else "Apple's"
    return f"metal_dlpack {md.__version__}: {metal} Metal{', ' + SANITIZER if SANITIZER else ''}"


@pytest.fixture
def live_buffers(metal_buffers):
    gc.freeze()  # for the run: later collections look at what is younger, and not at the frameworks' million objects
    return metal_buffers


@pytest.fixture
def settings(metal_settings):
    return metal_settings


@pytest.fixture
def slow(settings):
    """Every command buffer takes 0.2 seconds; so many are given."""
    settings(latency_us=200_000)
    return 0.2


# ---- frameworks: imported by the first test that asks, as it takes seconds ----


@pytest.fixture
def torch():
    """Its mps device computes, on Metal or on the software Metal.  Children have a torch as it is installed."""
    torch = pytest.importorskip("torch")
    if HAS_SOFTMETAL:
        softmetal.torch_mps()
    return torch


@pytest.fixture
def mx():
    return pytest.importorskip("mlx.core")


@pytest.fixture
def jnp():
    return pytest.importorskip("jax.numpy")


# ---- Metal objects that others own ----


@pytest.fixture
def shared_event():
    """The handle of somebody else's MTLSharedEvent, at 0.  At the end whatever still waits for it goes on."""
    from objc_messages import pool, send

    with pool():
        event = send(md.default_device().handle, "newSharedEvent")
    yield event
    send(event, "setSignaledValue:", 1000, result=None)
    md.default_device().synchronize()
    send(event, "release", result=None)


@pytest.fixture
def foreign_queue():
    """The handle of somebody else's MTLCommandQueue."""
    from objc_messages import pool, send

    with pool():
        queue = send(md.default_device().handle, "newCommandQueue")
    yield queue
    send(queue, "release", result=None)


@pytest.fixture(scope="module")
def browser():
    """`make notebooks` has one."""
    playwright = pytest.importorskip("playwright.sync_api")
    import notebooks

    if notebooks.chromium() is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=notebooks.chromium(), args=["--no-sandbox"])
