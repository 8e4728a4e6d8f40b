"""Anything at all, in any order, beside NumPy: a hypothesis state machine over the public surface.

    python tests/support/model.py [STEPS] [SEED] [--each] [--shrink]     make model STEPS=100000

Every Array has a NumPy array of the same items beside it, made by the same indexing of the same memory: what one step
does to a buffer is seen through all of its views, or it is not, on both sides alike.  What a step may leave undone when
it returns (work on a stream) is waited for by whoever looks; what it may not is compared at once, through whatever else
sees the memory.

Threads do the same to parts of one buffer that share no item, with latency, and to the same items, where each item must
be one that somebody wrote.
"""

import gc
import os
import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("SOFTMETAL_VALIDATION", "1")
os.environ.setdefault("SOFTMETAL_DEVICES", "unified,unified")
os.environ.setdefault("SOFTMETAL_POISON", "1")
if os.environ.get("METAL_DLPACK_SANITIZE"):
    sys.modules.update(dict.fromkeys(("torch", "jax", "mlx")))

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import metal_dlpack as md
import softmetal

try:
    import torch
except ImportError:
    torch = None
try:
    import tvm_ffi
except ImportError:
    tvm_ffi = None

gc.freeze()  # frameworks have a million objects, and each collection below would look at them

STORAGES = ("shared", "managed", "private")
IN_TORCH = ["bool", "int8", "int16", "int32", "int64", "uint8"]
IN_TORCH += ["float16", "float32", "float64", "complex64", "bfloat16"]
PLAIN = [*IN_TORCH, "uint16", "uint32", "uint64", "complex128", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"]
PLAIN += ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
NARROW = ["int2", "int4", "uint2", "uint4", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
MOST_PAIRS = 14
IS_WATCHED = "thread" in os.environ.get("METAL_DLPACK_SANITIZE", "")  # ThreadSanitizer reports races made on purpose
SMALL = np.arange(8)  # numbers that every type has, or rounds the same way on both sides


def numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def numbers(draw: random.Random, shape, dtype: np.dtype) -> np.ndarray:
    chosen = np.array([draw.choice((1, 2, 4)) for _ in range(int(np.prod(shape)))]).reshape(shape)
    few = np.asarray(chosen % 2 if dtype.name in ("int2", "bool") else chosen)  # arithmetic on no axes gives a scalar
    return few.astype(dtype)


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


class Pair:
    """An Array and its model.  `owners`: foreign memory underneath, which shows what the call has done."""

    def __init__(self, array, model, *, readonly=False, block=None):
        self.array, self.model, self.readonly = array, model, readonly
        self.block = block if block is not None else Block()

    def derive(self, array, model, *, readonly=None):
        return Pair(array, model, readonly=self.readonly if readonly is None else readonly, block=self.block)

    def can_be_written(self):
        """Not through what was broadcast: an item would be written several times."""
        return not self.readonly and self.model.flags.writeable

    def come_back(self, array):
        """From a consumer that may drop DLPack's flag: what the memory is remains."""
        assert array.readonly or not self.block.is_readonly
        return self.derive(array, self.model, readonly=array.readonly)

    def check(self):
        assert self.array.readonly == self.readonly
        assert tuple(self.array.shape) == self.model.shape
        assert equal(np.array(self.array, copy=True), self.model), (self.array, self.model)


class Block:
    """What pairs of one memory share: whether work may be in flight, and who else looks at the memory."""

    def __init__(self):
        self.is_busy = False  # a stream may still write it
        self.is_readonly = False  # the memory is, whatever a tensor over it says
        self.is_foreign = False  # the memory is not ours: taken again, it becomes a second MTLBuffer
        self.watchers = []  # (what sees the memory, its model)

    def check(self):
        for seen, model in self.watchers:
            assert equal(np.asarray(seen), model), (seen, model)


class World(RuleBasedStateMachine):
    @initialize(
        latency=st.sampled_from([0, 0, 30, 300]),
        order=st.sampled_from([0, 1, 7, "last"]),
        jitter=st.sampled_from([0, 50]),
    )
    def begin(self, latency, order, jitter):
        softmetal.configure(latency_us=latency, seed=order, jitter_us=jitter)
        self.draw = random.Random(1)
        self.pairs = []
        self.streams = {device: [md.Stream(device) for _ in range(2)] for device in md.devices()}
        self.reports = softmetal.reports()
        self.make(dtype="float32", shape=(12,), storage="managed", device=0)

    # ---- helpers ----

    def add(self, pair):
        if len(self.pairs) >= MOST_PAIRS:
            del self.pairs[self.draw.randrange(len(self.pairs))]
        self.pairs.append(pair)

    def pick(self, number, *, writable=False, wanted=lambda pair: True) -> Pair:
        fit = [p for p in self.pairs if (p.can_be_written() or not writable) and wanted(p)]
        if not fit:
            self.make(dtype="float32", shape=(12,), storage=STORAGES[number % 3], device=0)
            fit = self.pairs[-1:]
            if not wanted(fit[0]):
                return None
        return fit[number % len(fit)]

    def stream_of(self, pair, number):
        return None if number == 0 else self.streams[pair.array.device][number - 1]

    def wrote(self, pair, stream):
        """Without a stream the call is done, and everybody sees it."""
        if stream is None:
            self.waited(pair)
            if not pair.block.is_busy:
                pair.block.check()
        else:
            pair.block.is_busy = True

    def waited(self, pair):
        """For what is in flight over the memory; what concerns no items waits for nothing."""
        pair.block.is_busy &= not pair.model.size

    def settle(self, pair):
        pair.array.device.synchronize()
        pair.block.is_busy = False

    # ---- making ----

    @rule(
        dtype=st.sampled_from(PLAIN + NARROW),
        shape=st.sampled_from([(), (1,), (7,), (12,), (3, 4), (2, 3, 2), (0,), (4, 0), (64, 80), (5000,)]),
        storage=st.sampled_from(STORAGES),
        device=st.integers(0, 1),
    )
    def make(self, dtype, shape, storage, device):
        model = numbers(self.draw, shape, numpy_type(dtype))
        array = md.empty(shape, dtype, storage=storage, device=md.devices()[device])
        array.copy_from(model) if dtype in PLAIN else array.__setitem__(..., model)
        self.add(Pair(array, model))

    @rule(
        dtype=st.sampled_from(PLAIN),
        readonly=st.booleans(),
        by=st.sampled_from([md.from_dlpack, md.asarray]),
        goes=st.sampled_from(["nowhere", "to torch", "by handle", "by address"]),
    )
    def share_numpy_memory(self, dtype, readonly, by, goes):
        memory = numbers(self.draw, (24,), numpy_type(dtype))
        model = memory.copy()
        if memory.dtype.isbuiltin != 1:
            by = md.asarray  # NumPy exports no types of ml_dtypes
        if readonly:
            memory.flags.writeable = False
        array = by(memory)
        assert md.shares_memory(array, memory)
        pair = Pair(array, model, readonly=readonly)
        pair.block.is_readonly, pair.block.is_foreign = readonly, True
        pair.block.watchers.append((memory, model))
        self.add(pair)
        if goes == "to torch" and torch is not None and dtype in IN_TORCH:
            self.add(pair.come_back(md.from_dlpack(torch.from_dlpack(array))))
        elif goes == "by handle":
            buffer = md.Buffer.from_handle(array.buffer.handle, owner=array)
            self.add(pair.come_back(buffer.array((24,), dtype, array.byte_offset)))
        elif goes == "by address" and memory.dtype.isbuiltin == 1:  # not kept: docs/memory.md, "Taken twice"
            pair.come_back(md.asarray(np.asarray(array))).check()

    # ---- views ----

    @rule(number=st.integers(0, 99), data=st.data())
    def index(self, number, data):
        pair = self.pick(number)
        key = []
        for extent in pair.model.shape[: data.draw(st.integers(0, pair.model.ndim))]:
            if extent and data.draw(st.booleans()):
                key.append(data.draw(st.integers(-extent, extent - 1)))
            else:
                start, stop = sorted(data.draw(st.integers(0, extent)) for _ in range(2))
                key.append(slice(start, stop, data.draw(st.sampled_from([1, 1, 2, 3]))))
        key = (*key, ...)
        try:
            array = pair.array[key]
        except md.CopyRequiredError:
            assert pair.model.dtype.name in NARROW  # packed items that begin within a byte
            return
        self.add(pair.derive(array, pair.model[key]))

    @rule(number=st.integers(0, 99), how=st.sampled_from(["T", "reverse", "expand", "flat", "readonly", "broadcast"]))
    def look_differently(self, number, how):
        pair = self.pick(number)
        array, model, readonly = pair.array, pair.model, pair.readonly
        if how == "T":
            array, model = array.permute(*reversed(range(array.ndim))) if array.ndim else array, model.T
        elif how == "reverse" and model.ndim and model.dtype.name not in NARROW:
            array, model = array[::-1], model[::-1]
        elif how == "expand":
            array, model = array.expand_dims(0), model[None]
        elif how == "flat" and model.flags.c_contiguous and model.size:
            array, model = array.reshape(-1), model.reshape(-1)
        elif how == "readonly":
            array, readonly = array.as_readonly(), True
        elif how == "broadcast" and model.size < 100:
            shape = (2, *model.shape)
            array, model, readonly = array.broadcast_to(shape), np.broadcast_to(model, shape), True
        self.add(pair.derive(array, model, readonly=readonly))

    # ---- writing ----

    @rule(number=st.integers(0, 99), on=st.integers(0, 2))
    def fill(self, number, on):
        pair = self.pick(number, writable=True)
        stream = self.stream_of(pair, on)
        value = self.draw.choice((0, 1))
        pair.array.fill(value, stream=stream) if stream else pair.array.fill(value)
        pair.model[...] = value
        self.wrote(pair, stream)

    @rule(one=st.integers(0, 99), other=st.integers(0, 99), on=st.integers(0, 2), back=st.booleans())
    def copy_between(self, one, other, on, back):
        """Also where both are one, or overlap."""
        dst = self.pick(one, writable=True)
        src = self.pick(other, wanted=lambda p: p.model.dtype == dst.model.dtype and p.model.shape == dst.model.shape)
        if src is None:
            return
        stream = self.stream_of(dst, on)
        taken = src.model.copy()
        src.array.copy_to(dst.array, stream=stream) if back else dst.array.copy_from(src.array, stream=stream)
        dst.model[...] = taken
        self.wrote(dst, stream)

    @rule(number=st.integers(0, 99), on=st.integers(0, 2))
    def upload(self, number, on):
        """CPU memory, which is the caller's again at the return."""
        pair = self.pick(number, writable=True, wanted=lambda p: p.model.dtype.name not in NARROW)
        stream = self.stream_of(pair, on)
        memory = numbers(self.draw, pair.model.shape, pair.model.dtype)
        pair.model[...] = memory
        pair.array.copy_from(memory, stream=stream)
        memory[...] = np.zeros((), memory.dtype)
        self.wrote(pair, stream)

    @rule(number=st.integers(0, 99))
    def convert(self, number):
        pair = self.pick(number, writable=True)
        memory = numbers(self.draw, pair.model.shape, np.dtype("int64"))
        pair.array[...] = memory
        pair.model[...] = memory.astype(pair.model.dtype)
        self.wrote(pair, None)

    @rule(number=st.integers(0, 99))
    def write_one_item(self, number):
        pair = self.pick(number, writable=True, wanted=lambda p: p.model.size)
        where = tuple(self.draw.randrange(extent) for extent in pair.model.shape)
        pair.array[where if where else ...] = 1
        pair.model[where if where else ...] = 1
        self.wrote(pair, None)

    @rule(number=st.integers(0, 99), on=st.integers(0, 2), storage=st.sampled_from(STORAGES))
    def copy(self, number, on, storage):
        pair = self.pick(number)
        array = pair.array.copy(storage=storage, stream=self.stream_of(pair, on))
        fresh = Pair(array, pair.model.copy())
        fresh.block.is_busy = on != 0
        self.add(fresh)

    @rule(number=st.integers(0, 99))
    def refuse_to_write(self, number):
        pair = self.pick(number)
        if not pair.readonly:
            return
        for write in (
            lambda: pair.array.fill(0),
            lambda: pair.array.__setitem__(..., 0),
            lambda: pair.array.copy_from(pair.array),
            lambda: pair.array.fill(0, stream=self.stream_of(pair, 1)),
        ):
            try:
                write()
            except ValueError:
                continue
            raise AssertionError(f"{pair.array!r} was written")
        if not pair.block.is_busy:
            pair.block.check()

    # ---- other eyes ----

    @rule(
        number=st.integers(0, 99),
        how=st.sampled_from(["fill", "upload", "copy", "copy from private", "assign"]),
        busy=st.sampled_from(["no", "read", "written"]),
    )
    def write_under_other_eyes(self, number, how, busy):
        """Whatever is in flight: a call without a stream is done when it returns."""
        fit = [p for p in self.pairs if p.block.watchers and p.can_be_written() and p.model.dtype.name not in NARROW]
        if not fit:
            return
        pair = fit[number % len(fit)]
        array, shape, kind = pair.array, pair.model.shape, pair.model.dtype
        value = numbers(self.draw, shape, kind)
        if busy == "read":
            array.copy(stream=self.stream_of(pair, 1))
        elif busy == "written":
            array.fill(0, stream=self.stream_of(pair, 1))
        if how == "fill":
            array.fill(1)
            value[...] = 1
        elif how == "upload":
            array.copy_from(value)
        elif how == "assign":
            array[...] = value
        else:
            storage = "private" if how == "copy from private" else "shared"
            other = md.empty(shape, array.dtype, storage=storage, device=array.device)
            other.copy_from(value)
            array.copy_from(other)
        pair.model[...] = value
        self.wrote(pair, None)

    @rule(
        number=st.integers(0, 99),
        make=st.sampled_from([np.asarray, memoryview, lambda a: np.from_dlpack(a.host)]),
        readonly=st.booleans(),
    )
    def keep_a_view_of_the_host(self, number, make, readonly):
        """Writable or read-only, it is brought up to date."""
        pair = self.pick(number, wanted=lambda p: p.model.dtype.isbuiltin == 1 and p.array.storage != "private")
        if pair is None:
            return
        if any(step < 0 for step in pair.array.strides):
            make = np.asarray  # DLPack's is a copy
        view = np.asarray(make(pair.array.as_readonly() if readonly else pair.array))
        assert equal(view, pair.model)
        self.waited(pair)
        if len(pair.block.watchers) < 3 and pair.model.size:
            pair.block.watchers.append((view, pair.model))

    @rule(number=st.integers(0, 99))
    def write_through_a_view_of_the_host(self, number):
        """After the work in flight, as docs/synchronisation.md asks."""
        fit = [p for p in self.pairs if p.block.watchers]
        if not fit:
            return
        pair = fit[number % len(fit)]
        self.settle(pair)
        pair.block.check()
        seen, model = pair.block.watchers[-1]
        if seen.flags.writeable and seen.size:
            value = numbers(self.draw, seen.shape, seen.dtype)
            seen[...] = value
            model[...] = value
            pair.block.check()

    @rule(number=st.integers(0, 99))
    def let_views_of_the_host_go(self, number):
        self.pick(number).block.watchers.clear()

    @precondition(lambda self: torch is not None)
    @rule(number=st.integers(0, 99), to_host=st.booleans())
    def there_and_back_by_torch(self, number, to_host):
        pair = self.pick(
            number,
            wanted=lambda p: (
                p.model.dtype.name in IN_TORCH
                and p.array.device is md.devices()[0]
                and all(s > 0 for s in p.array.strides)
            ),
        )
        if pair is None or (to_host and (pair.array.storage != "shared" or pair.block.is_foreign)):
            return
        tensor = torch.from_dlpack(pair.array.host if to_host else pair.array)
        self.waited(pair)
        self.add(pair.come_back(md.from_dlpack(tensor)))

    @precondition(lambda self: tvm_ffi is not None)
    @rule(number=st.integers(0, 99))
    def there_and_back_by_tvm(self, number):
        pair = self.pick(number, wanted=lambda p: p.model.dtype.name in IN_TORCH and p.model.size)
        if pair is None:
            return
        back = md.from_dlpack(tvm_ffi.from_dlpack(pair.array))
        self.waited(pair)
        if md.shares_memory(back, pair.array):
            self.add(pair.come_back(back))
        else:  # tvm-ffi copies what goes backwards
            self.add(Pair(back, pair.model.copy(), readonly=back.readonly))

    @rule(number=st.integers(0, 99), on=st.integers(0, 2))
    def import_again(self, number, on):
        pair = self.pick(number)
        stream = self.stream_of(pair, on)
        self.add(pair.derive(md.from_dlpack(pair.array, stream=stream), pair.model))

    @rule(number=st.integers(0, 99))
    def by_handle(self, number):
        """The bytes of the same MTLBuffer, by its address alone."""
        pair = self.pick(number, wanted=lambda p: p.model.size and p.model.dtype.name not in NARROW)
        if pair is None or not pair.model.flags.c_contiguous:
            return
        buffer = md.Buffer.from_handle(pair.array.buffer.handle, owner=pair.array)
        offset = pair.array.byte_offset - buffer.offset
        array = buffer.array(pair.model.shape, pair.array.dtype, offset)
        self.waited(pair)
        self.add(pair.come_back(array))

    @rule(number=st.integers(0, 99), protocol=st.sampled_from([2, 4, 5]), out_of_band=st.booleans())
    def pickle_it(self, number, protocol, out_of_band):
        pair = self.pick(number)
        frames = []
        callback = frames.append if out_of_band and protocol == 5 else None
        text = pickle.dumps(pair.array, protocol, buffer_callback=callback)
        if frames:
            frames = [bytearray(frame.raw()) for frame in frames]
        again = pickle.loads(text, buffers=frames) if frames else pickle.loads(text)
        self.add(Pair(again, pair.model.copy(), readonly=again.readonly))

    # ---- letting go ----

    @rule(number=st.integers(0, 99))
    def forget(self, number):
        del self.pairs[number % len(self.pairs)]
        if not self.pairs:
            self.make(dtype="int32", shape=(12,), storage="shared", device=0)

    @rule()
    def tidy(self):
        gc.collect()
        md.empty_cache()

    @rule(number=st.integers(0, 99))
    def close_a_buffer_in_use(self, number):
        pair = self.pick(number)
        try:
            pair.array.buffer.close()
        except BufferError:
            return
        raise AssertionError("a Buffer was closed under its Array")

    # ---- threads ----

    @rule(
        storage=st.sampled_from(STORAGES),
        cut=st.sampled_from(["rows", "between"]),
        with_streams=st.booleans(),
        choice=st.integers(0, 2**32),
    )
    def threads_on_parts(self, storage, cut, with_streams, choice):
        """Three threads, each at items of its own; whatever each has waited for it must see."""
        array, model = md.zeros(1200, "int32", storage=storage), np.zeros(1200, "int32")
        parts = [slice(k * 400, k * 400 + 400) if cut == "rows" else slice(k, None, 3) for k in range(3)]

        def work(number):
            draw = random.Random(choice + number)
            mine, wanted = array[parts[number]], model[parts[number]]
            stream = md.Stream() if with_streams else None
            for step in range(12):
                value = number * 100 + step + 1
                first = draw.randrange(0, 390)
                rows = slice(first, first + draw.choice((2, 4, 10)))
                how = draw.randrange(5)
                if how == 0:
                    mine[rows].fill(value, stream=stream)
                elif how == 1:
                    mine[rows].copy_from(np.full(wanted[rows].shape, value, "int32"))
                elif how == 2:
                    mine[rows] = np.full(wanted[rows].shape, value, "int64")
                elif how == 3:
                    mine[rows].copy_from(md.full(wanted[rows].shape, value, "int32"), stream=stream)
                else:
                    mine[first] = value
                    rows = slice(first, first + 1)
                wanted[rows] = value
                if draw.random() < 0.3 and stream is not None:
                    stream.synchronize()
                if draw.random() < 0.5:
                    assert mine.tolist() == wanted.tolist(), (number, step, how)
            if stream is not None:
                stream.synchronize()
            assert mine.tolist() == wanted.tolist(), (number, "at the end")

        self.run_on_threads(work)
        assert array.tolist() == model.tolist()

    @precondition(lambda self: not IS_WATCHED)
    @rule(storage=st.sampled_from(STORAGES), choice=st.integers(0, 2**32))
    def threads_on_the_same_items(self, storage, choice):
        """Nobody says who comes first, but each item is one that somebody wrote."""
        array = md.zeros(600, "int32", storage=storage)

        def work(number):
            draw = random.Random(choice + number)
            stream = md.Stream()
            for _ in range(6):
                array.fill(number + 1, stream=stream if draw.random() < 0.5 else None)
                np.array(array)
            stream.synchronize()

        self.run_on_threads(work)
        assert set(array.tolist()) <= {1, 2, 3}

    def run_on_threads(self, work):
        """On three, without the detector of races, which counts in spans of bytes: what is in flight when it is turned
        is lost to it."""
        self.synchronize()
        softmetal.configure(races=False)
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, range(3)))
        sys.setswitchinterval(before)
        self.synchronize()
        softmetal.configure(races=None)

    def synchronize(self):
        for device in md.devices():
            device.synchronize()
        softmetal.wait_idle(2)

    # ---- comparing ----

    @rule(number=st.integers(0, 99))
    def compare(self, number):
        pair = self.pick(number)
        pair.check()
        self.waited(pair)

    def teardown(self):
        if not hasattr(self, "pairs"):
            return
        for pair in self.pairs:  # what others see, before a read of ours brings it up to date
            self.settle(pair)
            pair.block.check()
        for pair in self.pairs:
            pair.check()
        assert softmetal.reports() == self.reports, softmetal.last_report()
        self.pairs.clear()
        self.streams.clear()
        softmetal.configure(latency_us=None, seed=None, jitter_us=None)


class WorldThatLooks(World):
    """Finds the step of a difference; what only waiting hides is not found with it."""

    @invariant()
    def compare_all(self):
        for pair in getattr(self, "pairs", []):
            pair.check()


STEPS_OF_A_RUN = 50
#: Hypothesis remembers what it has tried: its time grows with the square of the steps.
STEPS_OF_A_PART = 5000


def run(steps: int, number: int) -> None:
    """In parts, the first of this seed."""
    for begin in range(0, steps, STEPS_OF_A_PART):
        part = min(STEPS_OF_A_PART, steps - begin)
        try:
            run_part(part, number + begin)
        except BaseException as error:
            error.add_note(f"The same again: {sys.argv[0]} {part} {number + begin}")
            raise


def run_part(steps: int, number: int) -> None:
    one = settings(
        max_examples=max(1, steps // STEPS_OF_A_RUN),
        stateful_step_count=STEPS_OF_A_RUN,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if "--shrink" in sys.argv else [Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    world = WorldThatLooks if "--each" in sys.argv else World
    run_state_machine_as_test(seed(number)(world), settings=one)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    steps = int(words[0]) if words else 3000
    number = int(words[1]) if len(words) > 1 else 0
    run(steps, number)
    before = softmetal.live_objects("MTLBuffer")
    gc.collect()
    softmetal.wait_idle(2)
    md.empty_cache()
    left = softmetal.live_objects("MTLBuffer")
    assert left == 0, f"{left} of {before} MTLBuffers are left"
    print(f"{steps} steps of seed {number}: as NumPy says")
