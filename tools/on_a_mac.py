"""What only a Mac can show, asked in one go: writes every answer into one text file.

    python tools/on_a_mac.py                  about ten minutes; writes on_a_mac.txt
    python tools/on_a_mac.py --quick          without the test suite
    python tools/on_a_mac.py --only handles   the questions whose name holds the word

Each question runs in a process of its own, so that a crash is an answer too.  Elsewhere than on a Mac the script runs
as well, and says what it leaves out and why.  docs/inside/on_a_mac.md says what each answer should be.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORT = str(ROOT / "tests" / "support")
IS_MAC = sys.platform == "darwin"
SECONDS = 900


@dataclass
class Answer:
    verdict: str  # "as expected", "DIFFERS", "look" (a person judges), "skipped"
    text: str


@dataclass
class Question:
    name: str
    expected: str
    ask: Callable[[], Answer]
    needs_mac: bool = True
    is_long: bool = False


QUESTIONS: list[Question] = []


def question(name, expected, **options):
    def add(ask):
        QUESTIONS.append(Question(name, expected, ask, **options))
        return ask

    return add


# ---- running things ----


@dataclass
class Done:
    code: int
    out: str
    seconds: float

    def tail(self, lines=30) -> str:
        return "\n".join(self.out.strip().splitlines()[-lines:])


def run(command, **environment) -> Done:
    started = time.monotonic()
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "support"), *sys.path]),
                **environment,
            },
            check=False,
        )
    except FileNotFoundError:
        return Done(127, f"{command[0]} is not there", 0)
    except subprocess.TimeoutExpired as late:
        return Done(124, f"{late.stdout or ''}\nhangs: stopped after {SECONDS} s", SECONDS)
    return Done(done.returncode, done.stdout, time.monotonic() - started)


def python(code: str, **environment) -> Done:
    return run([sys.executable, "-X", "faulthandler", "-c", PRELUDE + textwrap.dedent(code)], **environment)


def judged(done: Done, good: bool | None = None) -> Answer:
    good = done.code == 0 if good is None else good
    return Answer("as expected" if good else "DIFFERS", f"{done.tail()}\n(exit {done.code}, {done.seconds:.1f} s)")


PRELUDE = textwrap.dedent("""
    import ctypes, gc, mmap, os, sys, tempfile, time
    import metal_dlpack as md
    try:
        import numpy as np
    except ImportError:
        np = None

    def attempt(label, call):
        try:
            print(f"{label}: {call()}", flush=True)
        except Exception as error:
            print(f"{label}: {type(error).__name__}: {error}", flush=True)
""")


# ---- the machine ----


@question("machine", "macOS 14 or later; the page size is 16384 on Apple silicon, 4096 on Intel", needs_mac=False)
def machine():
    lines = [platform.platform(), f"python {sys.version.split()[0]} {platform.machine()}"]
    lines.append(f"page size {os.sysconf('SC_PAGE_SIZE')}")
    if IS_MAC:
        for command in (["sw_vers"], ["sysctl", "-n", "machdep.cpu.brand_string", "hw.memsize"]):
            lines.append(run(command).tail())
        lines.append(run(["system_profiler", "SPDisplaysDataType", "-detailLevel", "mini"]).tail(40))
    return Answer("look", "\n".join(lines))


@question("module", "links Metal, Foundation, CoreGraphics, CoreVideo and IOSurface; exports _PyInit__core alone")
def module():
    done = python("import metal_dlpack._core as core; print(core.__file__)")
    path = done.tail(1)
    used, exported = run(["otool", "-L", path]), run(["nm", "-gUj", path])
    named = ("Metal", "Foundation", "CoreGraphics", "CoreVideo", "IOSurface")
    good = all(f"{name}.framework" in used.out for name in named)
    good = good and exported.out.split() == ["_PyInit__core"]
    return Answer("as expected" if good else "DIFFERS", used.tail() + "\n" + exported.tail())


@question("devices", "the default device is first, and is Apple's", needs_mac=False)
def devices():
    return judged(
        python("""
            for device in md.devices():
                print(device.name, hex(device.registry_id), "unified" if device.has_unified_memory else "discrete",
                      device.max_buffer_length, "software" if device.is_software else "Apple's")
            assert md.devices()[0] == md.default_device()
            assert md.default_device().is_software == (sys.platform != "darwin")
            from objc_messages import pool, send
            near = md.Buffer(64)
            with pool():
                print("a buffer's device is the object of the list:",
                      send(near.handle, "device") == md.default_device().handle)
        """)
    )


@question("doctor", "no row is marked as unexpected", needs_mac=False)
def doctor():
    done = run([sys.executable, "-m", "metal_dlpack"])
    return Answer("look" if done.code == 0 else "DIFFERS", f"{done.tail(80)}\n(exit {done.code}, {done.seconds:.1f} s)")


# ---- the test suite ----


def tests(**environment) -> Done:
    return run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], **environment)


@question(
    "tests under Metal's validation", "all pass; no line begins with -[MTL or says 'failed assertion'", is_long=True
)
def validation():
    done = tests(MTL_DEBUG_LAYER="1", MTL_DEBUG_LAYER_ERROR_MODE="assert", MTL_DEBUG_LAYER_WARNING_MODE="nslog")
    words = ("failed assertion", "validation error", "-[MTLDebug")
    said = [line for line in done.out.splitlines() if any(word in line for word in words)]
    return Answer("as expected" if done.code == 0 and not said else "DIFFERS", "\n".join([done.tail(), *said[:20]]))


@question("missing pools", "no 'MISSING POOLS' line from our calls")
def pools():
    done = python(
        """
        import threading
        def work():
            for mode in ("shared", "managed", "private"):
                buffer = md.Buffer(4096, storage=mode, label="pools")
                buffer.fill(1); buffer.label; buffer.copy_from(b"x" * 4096)
                md.Buffer.from_handle(buffer.handle)
        for _ in range(50):
            thread = threading.Thread(target=work); thread.start(); thread.join()
        """,
        OBJC_DEBUG_MISSING_POOLS="YES",
    )
    return judged(done, done.code == 0 and "MISSING POOLS" not in done.out)


@question("leaks", "0 leaks that name an MTL, IOGPU, AGX or NS class; the footprint stays flat")
def leaks():
    if shutil.which("leaks") is None:
        return Answer("skipped", "leaks is part of Xcode's tools: xcode-select --install")
    code = """
        import metal_dlpack as md, resource
        def trip():
            for mode in ("shared", "managed", "private"):
                buffer = md.Buffer(65536, storage=mode, label="leaks"); buffer.fill(1)
        for _ in range(200): trip()
        first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(5000): trip()
        print("grown by", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first, "bytes")
    """
    command = ["leaks", "--quiet", "--atExit", "--", sys.executable, "-c", textwrap.dedent(code)]
    done = run(command, MallocStackLogging="1")
    return Answer("look", done.tail(60))


# ---- handles ----


@question("handles", "True for each real buffer, ValueError for all else, no crash", needs_mac=False)
def handles():
    return judged(
        python("""
            from objc_messages import libobjc, pool, send
            for mode in ("shared", "managed", "private"):
                buffer = md.Buffer(64, storage=mode)
                assert md.Buffer.from_handle(buffer.handle).handle == buffer.handle, mode
                print(mode, "buffer: taken")
            near = md.Buffer(64)
            with pool():
                device = send(near.handle, "device")
                queue = send(device, "newCommandQueue")
                text = send(libobjc.objc_getClass(b"NSString"), "stringWithUTF8String:",
                            ctypes.c_char_p(b"a text that is long enough to be no tagged pointer"))
                short = send(libobjc.objc_getClass(b"NSString"), "stringWithUTF8String:", ctypes.c_char_p(b"tag"))
            host = np.zeros(1 << 20, "uint8")
            noise = np.frombuffer(os.urandom(1 << 16), "uint64")
            word = ctypes.c_uint64(libobjc.objc_getClass(b"NSString"))
            odd = {
                "a device": device, "a queue": queue, "a tagged or short text": short,
                "a class": word.value, "a word that is a class": ctypes.addressof(word),
                "zeros": host.ctypes.data, "inside zeros": host.ctypes.data + 4096, "text": id("x"), "an int": id(7),
                "inside a buffer object": near.handle + 8, "a buffer's bytes": near.address,
                "unaligned": near.handle + 1, "page zero": 8, "the top": 2**64 - 8,
                "kernel": 0xFFFF_FFF0_0000_0000, "a tag bit": 0x8000_0000_0000_0000,
                "code": ctypes.cast(libobjc.objc_getClass, ctypes.c_void_p).value,
            }
            odd |= {f"noise {i}": noise.ctypes.data + 8 * i for i in range(0, 4096, 64)}
            for name, address in odd.items():
                try:
                    md.Buffer.from_handle(address)
                except ValueError:
                    continue
                raise SystemExit(f"{name} ({address:#x}) was taken for a buffer")
            print(len(odd), "other addresses: refused")
            started = time.perf_counter()
            for _ in range(10000):
                md.Buffer.from_handle(near.handle)
            print(f"from_handle: {(time.perf_counter() - started) * 100:.2f} us")
            started = time.perf_counter()
            for _ in range(20):
                try: md.Buffer.from_handle(device)
                except ValueError: pass
            print(f"a refusal: {(time.perf_counter() - started) * 50:.2f} ms")
        """)
    )


# ---- storage ----


@question("storage modes", "each mode as asked, and the same bytes back", needs_mac=False)
def storage():
    return judged(
        python("""
            from objc_messages import gpu_fill
            for mode in ("shared", "managed", "private"):
                buffer = md.Buffer(4100, storage=mode)
                assert buffer.storage == mode, (buffer.storage, mode)
                buffer.copy_from(bytes(range(100)) * 41)
                assert bytes(np.array(buffer.array(4100, "uint8"))) == bytes(range(100)) * 41
                gpu_fill(buffer.handle, 9, 4096)
                assert bytes(np.array(buffer.array(4100, "uint8")))[:4096] == bytes([9]) * 4096, "what the GPU wrote"
                print(mode, "ok", "address", hex(buffer.address or 0))
        """)
    )


@question("reuse", "a buffer that a command buffer retains is not reused, one that nobody holds is", needs_mac=False)
def reuse():
    return judged(
        python("""
            from objc_messages import Range, gpu_fill, pool, send
            for mode in ("shared", "managed", "private"):
                a = md.zeros(1 << 20, storage=mode)
                handle = a.buffer.handle
                print(mode, "retainCount", send(handle, "retainCount", result=ctypes.c_ulong))
                with pool():
                    queue = send(send(handle, "device"), "newCommandQueue")
                    commands = send(queue, "commandBuffer")
                    encoder = send(commands, "blitCommandEncoder")
                    whole = Range(0, 1 << 22), ctypes.c_uint8(7)
                    send(encoder, "fillBuffer:range:value:", handle, *whole, result=None)
                    send(encoder, "endEncoding", result=None)
                    print("encoded: retainCount", send(handle, "retainCount", result=ctypes.c_ulong))
                    cached = md.memory_stats()["cached_buffers"]
                    del a
                    assert md.memory_stats()["cached_buffers"] == cached, "reused while work on it is encoded"
                    send(commands, "commit", result=None)
                    send(commands, "waitUntilCompleted", result=None)
                    send(queue, "release", result=None)
                a = md.zeros(1 << 20, storage=mode)
                gpu_fill(a.buffer.handle, 7, 64)
                del a
                print("after work that is over:", md.memory_stats()["cached_buffers"] - cached, "reused")
        """)
    )


@question(
    "memory without a copy",
    "anonymous and read-only pages and malloc's blocks: shared or refused, never a crash",
    needs_mac=False,
)
def no_copy():
    done = python("""
        page = os.sysconf("SC_PAGE_SIZE")
        def shared(view):
            array = md.asarray(view, copy=False)
            source = np.asarray(view)
            if not source.flags.writeable:
                same = np.array(array).tobytes() == source.tobytes()
                return f"shared, read-only, bytes {'equal' if same else 'DIFFER'}"
            source.reshape(-1)[-1] = 77
            return "shared" if np.array(array).reshape(-1)[-1] == 77 else "NOT THE SAME MEMORY"
        attempt("anonymous mmap", lambda: shared(np.frombuffer(mmap.mmap(-1, 4 * page), "uint8")))
        attempt("anonymous mmap, inside", lambda: shared(np.frombuffer(mmap.mmap(-1, 4 * page), "uint8")[100:page]))
        with tempfile.TemporaryFile() as file:
            file.write(b"m" * 4 * page); file.flush()
            for label, access in (("read-only", mmap.ACCESS_READ), ("private", mmap.ACCESS_COPY)):
                pages = np.frombuffer(mmap.mmap(file.fileno(), 4 * page, access=access), "uint8")
                attempt(f"{label} file mmap", lambda: shared(pages))
        for size in (64, 5000, page, 100_000, 1 << 20, 1 << 26):
            attempt(f"malloc, {size} bytes", lambda: shared(np.zeros(size, "uint8")))
            attempt(f"malloc, {size} bytes, full", lambda: shared(np.ones(size, "uint8")))
        attempt("bytes (read-only)", lambda: shared(np.frombuffer(b"r" * 100_000, "uint8")))
    """)
    bad = any(word in done.out for word in ("NOT THE SAME", "DIFFER"))
    return Answer("DIFFERS" if done.code or bad else "look", f"{done.tail(40)}\n(exit {done.code})")


@question(
    "host memory in use",
    "the GPU's work keeps it, whoever committed it, and the deallocator lets it go afterwards",
    needs_mac=False,
)
def in_use():
    return judged(
        python("""
            import weakref
            from objc_messages import gpu_fill, pool, send
            with pool():
                queue = send(send(md.Buffer(4).handle, "device"), "newCommandQueue")
            def trip():
                pages = mmap.mmap(-1, 1 << 26)
                class Owner(np.ndarray): pass
                owner = np.frombuffer(pages, "uint8").view(Owner)
                array = md.asarray(owner, copy=False)
                gone = []
                weakref.finalize(owner, gone.append, time.perf_counter())
                for value in range(20):
                    gpu_fill(array.buffer.handle, value, 1 << 26, queue=queue, waits=False)
                del owner, array
                gc.collect()
                was_there = not gone
                deadline = time.monotonic() + 20
                while not gone and time.monotonic() < deadline:
                    time.sleep(0.001)
                assert gone, "it was never let go"
                return was_there, pages[0], pages[-1]
            for _ in range(5):
                was_there, first, last = trip()
                print("kept while the GPU worked:", was_there, "written:", first, last)
                assert first == last == 19, "let go before the GPU was done"
            send(queue, "release", result=None)
        """)
    )


@question("mapped files", "each mode is shared, and the GPU's copy of it is bit-equal", needs_mac=False)
def files():
    return judged(
        python("""
            path = os.path.join(tempfile.mkdtemp(), "model.npy")
            data = np.random.default_rng(1).integers(0, 255, 1 << 26, dtype="u1")
            np.save(path, data)
            for mode in ("r", "c", "r+"):
                with md.open(path, mode=mode) as file:
                    array = file["arr_0"]
                    print(mode, "mapped" if file.is_mapped else "read", "shared" if array.buffer.owner else "COPIED")
                    copy = array.copy(storage="private")
                    assert bytes(memoryview(copy.copy(storage="shared"))) == data.tobytes()
        """)
    )


@question("IOSurface", "base address and length in whole pages, the same address locked or not, the GPU reads it")
def iosurface():
    return judged(
        python("""
            import surfaces
            io = surfaces.load("IOSurface")
            for size in ((64, 64), (256, 128), (1000, 333), (4096, 2160)):
                surface = surfaces.make_surface(*size)
                before = io.IOSurfaceGetBaseAddress(surface)
                io.IOSurfaceLock(surface, 0, None)
                address, nbytes = io.IOSurfaceGetBaseAddress(surface), io.IOSurfaceGetAllocSize(surface)
                page = mmap.PAGESIZE
                print(size, "before the lock", before == address, "past pages", address % page, nbytes, nbytes % page)
                buffer = md.Buffer.from_iosurface(surface)
                assert (buffer.address, buffer.size) == (address, nbytes)
                ctypes.memset(address, 0x5A, nbytes)
                io.IOSurfaceUnlock(surface, 0, None)
                copy = buffer.array(nbytes, "uint8").copy(storage="private").copy(storage="shared")
                assert set(bytes(memoryview(copy))) == {0x5A}
            pixels = surfaces.make_pixel_buffer(64, 64, in_surface=True)
            print("pixel buffer:", md.Buffer.from_iosurface(pixels))
            attempt("pixel buffer without a surface", lambda: md.Buffer.from_iosurface(
                surfaces.make_pixel_buffer(64, 64, in_surface=False)))
            attempt("an MTLDevice", lambda: md.Buffer.from_iosurface(md.default_device().handle))
        """)
    )


@question(
    "an odd private buffer",
    "a Buffer refuses its last bytes, an Array has them; what Metal itself does with them is below",
)
def odd():
    ours = python("""
        from objc_messages import PRIVATE, foreign_buffer
        with foreign_buffer(11, PRIVATE) as handle:
            buffer = md.Buffer.from_handle(handle)
            attempt("the first 8", lambda: bytes(np.array(buffer.array(8, "uint8"))))
            attempt("the last 3", lambda: bytes(np.array(buffer.array(3, "uint8", 8))))
    """)
    theirs = python("""
        from objc_messages import PRIVATE, foreign_buffer, gpu_fill
        with foreign_buffer(11, PRIVATE) as handle:
            attempt("a fill of 11 bytes", lambda: gpu_fill(handle, 5, 11))
    """)
    return Answer("look", f"{ours.tail()}\n{theirs.tail()}\n(exit {theirs.code})")


@question("too large and empty", "an empty buffer without Metal; MemoryError above maxBufferLength", needs_mac=False)
def limits():
    return judged(
        python("""
            assert md.Buffer(0).size == 0
            most = md.default_device().max_buffer_length
            for size in (most + 1, most * 4, 2**62):
                try: md.Buffer(size)
                except MemoryError as error: print(error)
                else: raise SystemExit(f"{size} bytes were given")
        """)
    )


# ---- others ----


@question("kernels", "Metal compiles the text; each unit size copies as NumPy does", needs_mac=False)
def kernels():
    return judged(
        python("""
            import re
            from objc_messages import libobjc, pool, send
            def text(words):
                words = ctypes.c_char_p(words.encode())
                return send(libobjc.objc_getClass(b"NSString"), "stringWithUTF8String:", words)
            def said(error):
                made = error.value and send(error.value, "localizedDescription")
                return send(made, "UTF8String", result=ctypes.c_char_p).decode() if made else "nothing"
            head = re.findall(r'^    "(.+)\\\\n"$', open("src/metal/copy_kernel.c").read(), re.M)
            body = open("src/metal/copy_kernel.h").read()
            body = body[body.index("COPY_KERNEL_TEXT(\\n") + 17 : body.rindex(")\\n/* clang-format on")]
            names = re.findall(r"copy_units_[0-9]+", body)
            x = md.asarray(np.zeros((4, 6), "uint8")).copy(storage="private")
            x.copy_from(x[::-1, ::-1].copy())  # the software Metal hears of the kernels
            with pool():
                device = send(x.buffer.handle, "device")
                error = ctypes.c_void_p()
                library = send(device, "newLibraryWithSource:options:error:", text("\\n".join(head) + body),
                               ctypes.c_void_p(), ctypes.addressof(error))
                print("the compiler says:", said(error))
                assert library, "it does not compile"
                for name in names:
                    function = send(library, "newFunctionWithName:", text(name))
                    made = send(device, "newComputePipelineStateWithFunction:error:", function, ctypes.addressof(error))
                    assert made, (name, said(error))
                    print(name, send(made, "maxTotalThreadsPerThreadgroup", result=ctypes.c_ulong), "threads at most")
            for dtype in ("uint8", "int16", "float32", "int64", "complex128"):
                a = (np.arange(7 * 300 * 50) % 251).reshape(7, 300, 50).astype(dtype)
                p = md.asarray(a).copy(storage="private")
                got = np.array(p.permute(2, 0, 1)[::-2, :, 3:].copy(storage="private"))
                assert got.tobytes() == np.ascontiguousarray(a.transpose(2, 0, 1)[::-2, :, 3:]).tobytes(), dtype
                print(dtype, "equal")
        """)
    )


@question("streams", "events reach queues and the CPU, the handler runs, both directions of stream=", needs_mac=False)
def streams():
    return judged(
        python("""
            from objc_messages import gpu_fill, pool, send
            one, two = md.Stream(label="one"), md.Stream()
            assert md.Stream.from_handle(one.handle) == one
            a, b, c = (md.zeros(1 << 20, storage=mode) for mode in ("shared", "private", "managed"))
            started = time.perf_counter()
            for value in range(20):
                a.fill(value + 0.5, stream=one)
                b.copy_from(a, stream=two)
                c.copy_from(b, stream=one)
            print(f"60 pieces of work submitted in {(time.perf_counter() - started) * 1e3:.1f} ms")
            assert np.asarray(c)[-1] == 19.5
            print(f"... and done after {(time.perf_counter() - started) * 1e3:.1f} ms")
            _, queue, event, value = c.__metal_stream__()
            assert md.Event.from_handle(event, value).wait(10)
            with pool():
                queue = send(md.default_device().handle, "newCommandQueue")
                shared = send(md.default_device().handle, "newSharedEvent")
            stream = md.Stream.from_handle(queue)
            held = md.Event.from_handle(shared, 5)
            stream.wait(held)
            after = stream.record()
            assert not after.wait(0.05), "the queue did not wait for the event"
            send(shared, "setSignaledValue:", 5, result=None)
            assert after.wait(10), "the event that the CPU raised did not reach the queue"
            send(shared, "setSignaledValue:", 3, result=None)
            print("a value set lower reads as", send(shared, "signaledValue", result=ctypes.c_uint64))
            gpu_fill(a.buffer.handle, 7, 64, queue=queue, waits=False)
            stream.synchronize()
            assert np.asarray(a).view("uint8")[0] == 7
        """)
    )


@question("torch on MPS", "the same memory, both ways; private memory refused or copied, with a reason")
def torch_mps():
    done = python("""
        try:
            import torch
        except ImportError:
            print("skipped: torch is not installed"); raise SystemExit
        print("torch", torch.__version__, torch.backends.mps.is_available())
        a = md.zeros((4, 4), "float32")
        t = torch.from_dlpack(a)
        t += 3; torch.mps.synchronize()
        assert t.device.type == "mps" and a.tolist() == [[3.0] * 4] * 4, a.tolist()
        u = torch.arange(16., device="mps"); torch.mps.synchronize()
        attempt("from torch", lambda: md.from_dlpack(u).tolist())
        attempt("storage of torch's tensor", lambda: md.from_dlpack(u).storage)
        v = torch.arange(16., device="mps")[3:]
        attempt("a view with an offset", lambda: md.from_dlpack(v).tolist())
        from metal_dlpack import _core, sync
        print("torch's queue found:", _core._torch_open(sync.torch_library(torch)))
        stream = md.Stream()
        for n in range(200):
            w = u * n
            back = (md.from_dlpack(w, stream=stream).copy(stream=stream)).to(torch.Tensor)
            assert (back + 1).tolist() == [x * n + 1.0 for x in range(16)], n
        print("200 hand-overs between torch's queue and a stream")
        for n in range(20000):
            torch.from_dlpack(md.zeros(16, "float32"))
        print("20000 round trips")
    """)
    return judged(done)


@question("MLX on the GPU", "the same memory where MLX exports Metal memory")
def mlx_gpu():
    done = python("""
        try:
            import mlx.core as mx
        except ImportError:
            print("skipped: mlx is not installed"); raise SystemExit
        x = mx.arange(16, dtype=mx.float32); mx.eval(x)
        attempt("from MLX", lambda: md.from_dlpack(x).tolist())
        attempt("to MLX", lambda: mx.array(md.full(4, 2.0, "float32")))
    """)
    return judged(done)


@question("fork", "the child is refused with a sentence, and ends quietly", needs_mac=False)
def fork():
    return judged(
        python("""
            a = md.full(8, 3, "int32"); p = md.full(8, 3, "int32", storage="private")
            child = os.fork()
            if child == 0:
                ok = True
                try: md.zeros(4); ok = False
                except md.MetalError as error: print(error, flush=True)
                try: np.array(p); ok = False
                except md.MetalError as error: print(error, flush=True)
                del a, p; gc.collect()
                os._exit(0 if ok else 1)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print("child:", code); assert code == 0
            assert md.zeros(4).tolist() == [0] * 4
        """)
    )


@question("memory in a forked child", "shared memory is read; a signal: it is not mapped there", needs_mac=False)
def forked_memory():
    done = python("""
        shared, host = md.full(8, 3, "int32"), md.asarray(np.full(8, 3, "int32"), copy=False)
        for label, array in (("of Metal", shared), ("of NumPy", host)):
            child = os.fork()
            if child == 0:
                os._exit(0 if np.asarray(array).tolist() == [3] * 8 else 1)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(label, "read" if code == 0 else f"not read, exit {code}")
    """)
    return Answer("look" if IS_MAC and done.code == 0 else judged(done).verdict, done.tail())


@question("threads", "no crash, no lost byte", needs_mac=False)
def threads():
    return judged(
        python("""
            import threading
            def work(seed):
                for i in range(200):
                    a = md.full(1000, (seed + i) % 100, "uint8", storage="private")
                    assert bytes(np.array(a)) == bytes([(seed + i) % 100]) * 1000
            ts = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            [t.start() for t in ts]; [t.join() for t in ts]
        """)
    )


# ---- the report ----


def answer(item: Question, arguments) -> Answer:
    if item.needs_mac and not IS_MAC:
        return Answer("skipped", f"needs a Mac; this is {platform.system()}")
    if item.is_long and arguments.quick:
        return Answer("skipped", "--quick")
    try:
        return item.ask()
    except Exception as error:  # the script must come to its end
        return Answer("DIFFERS", f"the question itself failed: {type(error).__name__}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the test suite")
    parser.add_argument("--only", default="", help="questions whose name holds this word")
    parser.add_argument("--output", default="on_a_mac.txt")
    arguments = parser.parse_args()
    parts, differs = [], 0
    for item in QUESTIONS:
        if arguments.only not in item.name:
            continue
        got = answer(item, arguments)
        differs += got.verdict == "DIFFERS"
        print(f"{got.verdict:12} {item.name}", flush=True)
        body = textwrap.indent(got.text.strip(), "    ")
        parts.append(f"== {item.name}: {got.verdict}\n    expected: {item.expected}\n{body}\n")
        Path(arguments.output).write_text("\n".join(parts))
    print(f"{len(parts)} answers in {arguments.output}; {differs} differ")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
