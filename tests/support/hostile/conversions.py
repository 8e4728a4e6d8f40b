"""Run in a child: arguments whose conversion takes away what the call is about.  `python -m hostile.conversions PART`

    doors    each parameter of each public call is given objects that are converted by code of their own: it closes the
             Buffer, lets go of the Array, Event or Stream that it speaks for, or clears the list or dict that it is in
    threads  each call of fault_calls.py that uses a Buffer, while another thread closes it and work is in flight

The memory is foreign, so that its record is freed with the last reference; whoever has only borrowed it dies, or the
software Metal reports it.  Each case is announced before it is tried, and the last line is `DONE count strikes`.
"""

import contextlib
import ctypes
import functools
import gc
import itertools
import sys
import threading
import time

import fault_calls
from dlpack_structs import Producer
from doors import doors, signature_of, through
from objc_messages import SHARED, pool, send

import metal_dlpack as md
import softmetal

#: What a call may raise that loses what it is about; anything else would be our own fault.
ALLOWED = (
    TypeError,
    ValueError,
    BufferError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    NotImplementedError,
    FileNotFoundError,
    md.MetalError,
)

# ---- what is taken away ----


def foreign_array():
    return md.asarray(bytearray(64), copy=False).reshape(8, 8)


class Foreign:
    """A Metal object that the package does not know, and that goes with this one."""

    def __init__(self, *message):
        with pool():
            self.handle = send(fault_calls.device.handle, *message)

    def __del__(self):
        send(self.handle, "release", result=None)


class Victims:
    """A Buffer that nothing holds open, and what else a door needs; `strike` takes away what can be."""

    def __init__(self, make):
        self.buffer = make()
        self.foreign = {
            "Buffer": Foreign("newBufferWithLength:options:", 64, SHARED),
            "Event": Foreign("newSharedEvent"),
        }
        self.containers = [self.foreign]
        self.strikes = 0
        stream = md.Stream()
        event = stream.record()
        array = foreign_array()
        self.things = array, array.host, array.layout, self.buffer, stream, event

    def strike(self):
        self.strikes += 1
        with contextlib.suppress(BufferError):  # held: that is what is wanted
            self.buffer.close()
        for container in self.containers:
            container.clear()
        md.empty_cache()


def wrapped_buffer():
    return md.Buffer.from_host(bytearray(64))


def plain_buffer():
    return md.Buffer(64)


# ---- objects that are converted by code of their own ----


class Striking:
    """Its code, wherever it is called, strikes at the victims."""

    def __init__(self, victims):
        self.victims = victims


class Number(Striking):
    def convert(self):
        self.victims.strike()
        return 4

    __index__ = __int__ = __len__ = __hash__ = convert

    def __float__(self):
        return float(self.convert())

    def __complex__(self):
        return complex(self.convert())

    def __bool__(self):
        return self.convert() == 4

    def __eq__(self, other):
        return self.convert() == other

    def __repr__(self):
        return f"number {self.convert()}"


class Sequence(Striking):
    def __len__(self):
        self.victims.strike()
        return 2

    def __getitem__(self, index):
        self.victims.strike()
        return [1, 4][index]


class Path(Striking):
    def __fspath__(self):
        self.victims.strike()
        return "a.npy"


class Tensor:
    """Gives what is its own, and lets go of it; its type has another name afterwards."""

    made = 0

    def __init__(self, victims, array=None):
        self.victims = victims
        self.array = foreign_array() if array is None else array
        type(self).__name__ = "Tensor" * (self.made % 9 + 100)  # of its own, and malloc's
        Tensor.made += 1

    def let_go(self, what):
        self.victims.strike()
        type(self).__name__ = "T"
        self.array = None
        return what

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        if self.array is None:
            raise BufferError("it is gone")
        return self.let_go(self.array.host.__dlpack__(**keywords))


class Refused(Tensor):
    """Its tensor is of an element type that there is not."""

    def __dlpack__(self, **_keywords):
        return self.let_go(REFUSED.capsule())


REFUSED = Producer(data=1 << 12, dtype=(99, 1, 1))


class Interface:
    def __init__(self, victims):
        self.victims, self.array = victims, foreign_array()

    @property
    def __array_interface__(self):
        self.victims.strike()
        return {"version": 3, "shape": (4,), "typestr": "|u1", "data": memoryview(bytearray(4))}


class Like(Striking):
    """An array of another library, as far as its shape and dtype go."""

    @property
    def shape(self):
        self.victims.strike()
        return (2, 3)

    @property
    def dtype(self):
        self.victims.strike()
        return "float32"


class Handle(Striking):
    """An object of PyObjC whose buffer goes when it is asked for the address."""

    def __init__(self, victims):
        super().__init__(victims)
        with contextlib.suppress(ValueError):  # closed already
            self.address = victims.buffer.handle

    def __c_void_p__(self):
        self.victims.strike()
        return ctypes.c_void_p(self.address)


class Answer(tuple):
    """Keeps what its numbers are the addresses of, and nothing else does."""


class Moment(Striking):
    def __metal_stream__(self):
        self.victims.strike()
        event = Foreign("newSharedEvent")
        answer = Answer((1, 0, event.handle, 0))
        answer.event = event
        return answer


KINDS = [Number, Sequence, Path, Tensor, Refused, Interface, Like, Handle, Moment]


def in_containers(victims, thing):
    """It alone; and in lists and dicts that it clears, beside Arrays that only they have."""
    lists = [thing, foreign_array()], [foreign_array(), thing], [[thing, 1], [2, 3]]
    table = {"STEP": thing, "room": thing, "a": thing}
    victims.containers[1:] = [*lists, lists[2][0], table]
    return [thing, *lists, table]


# ---- every parameter of every public call ----


def kernel_doors():
    """Return the doors that need a compiler, which doors.py leaves out; fault_calls.py has a compiled Library."""
    kernel, library, room = fault_calls.kernel, fault_calls.library, {"room": 16}
    given = {"x": foreign_array().view("float32"), "by": (1, 2), "n": 4, "threadgroup_memory": room}
    found = {
        f"Kernel({name})": functools.partial(lambda name, x: kernel(**{**given, name: x}), name)
        for name in ("x", "by", "n", "stream", "threadgroup_memory", "strides")
    }
    found |= {
        f"Kernel({name})": functools.partial(
            lambda name, x: kernel(given["x"], (1, 2), threadgroup_memory=room, **({"group": 1} | {name: x})), name
        )
        for name in ("threads", "groups", "group")
    }
    found["Kernel(buffer)"] = lambda x: kernel(fault_calls.buffer, x, n=4, threadgroup_memory=room)
    signature = signature_of("Library.kernel", library.kernel)
    for name, parameter in signature.parameters.items():
        found[f"Library.kernel({name})"] = through(library.kernel, signature, {"name": "skip"}, parameter)
    return found


def doors_of(victims):
    fault_calls.buffer = victims.buffer
    event, buffer = (victims.foreign[name].handle for name in ("Event", "Buffer"))
    return doors(victims.things) | {
        "Event.from_handle(foreign, value)": lambda x: md.Event.from_handle(event, x),
        "Buffer.from_handle(foreign, size)": lambda x: md.Buffer.from_handle(buffer, x),
        "Buffer.from_handle(foreign, owner)": lambda x: md.Buffer.from_handle(buffer, owner=x),
        "asarray(buffer, dtype)": lambda x: md.asarray(victims.buffer, dtype=x),
        "asarray(buffer, device)": lambda x: md.asarray(victims.buffer, device=x),
        "shares_memory(buffer, b)": lambda x: md.shares_memory(victims.buffer, x),
        "shares_memory(a, buffer)": lambda x: md.shares_memory(x, victims.buffer),
        **kernel_doors(),
    }


def try_door(name, victims, call, kind, place):
    """Did it strike?  `place` is one of in_containers."""
    print(f"{name}: {kind.__name__} {place}", flush=True)
    thing = in_containers(victims, kind(victims)).pop(place)
    try:
        call(thing)
    except ALLOWED as error:
        assert "\ufffd" not in str(error), f"a name that is gone: {error}"
    return victims.strikes > 0


def run_doors(part, parts):
    count, struck = 0, set()
    for make in (wrapped_buffer, plain_buffer):
        victims = Victims(make)
        calls = doors_of(victims)
        for name, kind, place in itertools.product(sorted(calls)[part::parts], KINDS, range(5)):
            if try_door(name, victims, calls[name], kind, place):
                struck.add(name)
                victims = Victims(make)
                calls = doors_of(victims)
            count += 1
    return count, len(struck)


# ---- every call that uses a Buffer, while another thread closes it ----


def with_buffer(call, old, new):
    """The call with `new` in the place of `old`; None: it uses no Buffer of its caller's."""
    if isinstance(call, functools.partial) and any(given is old for given in call.args):
        return functools.partial(call.func, *[new if given is old else given for given in call.args], **call.keywords)
    code = getattr(call, "__code__", None)
    return call if code is not None and "buffer" in code.co_names else None


def calls_of_a_buffer(old, new):
    for name, calls in fault_calls.CALLS.items():
        for index, call in enumerate(calls):
            found = with_buffer(call, old, new)
            if found is not None:
                yield f"{name} {index}", found


class Closer(threading.Thread):
    """Closes a Buffer as soon as it may."""

    def __init__(self, buffer):
        super().__init__()
        self.buffer, self.ends = buffer, False

    def run(self):
        while not (self.buffer.is_closed or self.ends):
            with contextlib.suppress(BufferError):
                self.buffer.close()
            md.empty_cache()
            time.sleep(0)


def keep_busy(stream, buffer):
    """Work in flight on a Buffer."""
    buffer.array(buffer.size - buffer.offset, "uint8").fill(1, stream=stream)


def try_call(make, choose, stream):
    """One call beside a thread that closes its Buffer; `choose` takes it from those that use the Buffer."""
    first, victim = INSTANCE, make()
    name, call = choose(calls_of_a_buffer(first, victim))
    print(f"{name} {make.__name__}", flush=True)
    argument = md.Buffer.from_host(bytearray(64))
    fault_calls.buffer, fault_calls.memory = victim, argument.array(64, "uint8", argument.offset)
    keep_busy(stream, victim)
    keep_busy(stream, argument)
    closer = Closer(victim)
    closer.start()
    with contextlib.suppress(ValueError, BufferError):
        call()
    closer.ends = True
    closer.join()
    gc.collect()
    victim.close()  # no call has kept it open
    assert victim.is_closed, name


INSTANCE = fault_calls.INSTANCES["Buffer"]


def foreign_buffer():
    owner = md.Buffer(64)
    return md.Buffer.from_handle(owner.handle, owner=owner)


def private_buffer():
    return md.Buffer(64, storage="private")


def run_threads():
    stream, count = md.Stream(), 0
    total = sum(1 for _ in calls_of_a_buffer(INSTANCE, INSTANCE))
    softmetal.configure(latency_us=3000)
    for make in (wrapped_buffer, plain_buffer, foreign_buffer, private_buffer):
        for index in range(total):
            with contextlib.suppress(md.CopyRequiredError):
                try_call(make, lambda found, index=index: list(found)[index], stream)
            count += 1
    softmetal.configure(latency_us=None)
    stream.synchronize()
    return count, total


def main(part, *arguments):
    count, strikes = {"doors": run_doors, "threads": run_threads}[part](*map(int, arguments))
    gc.collect()
    assert softmetal.reports() == 0, softmetal.last_report()
    print(f"DONE {count} {strikes}")


if __name__ == "__main__":
    main(*sys.argv[1:])
