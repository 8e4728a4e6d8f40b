"""Doors: every parameter of every public call, found by looking, with what else the call needs given."""

import inspect

import metal_dlpack as md

#: What cannot be called, needs a compiler, prints, or changes the process.
LEFT_OUT = {
    "Argument",
    "Array",
    "Kernel",
    "Library",
    "Sampler",
    "Texture",
    "kernel",
    "show",
    "numpy_memory",
    "share_mps_tensors",
}
LEFT_OUT |= {"register_sync", "set_memory_limit", "set_num_threads", "CompileError", "CopyRequiredError", "MetalError"}
SLOTS = ("__array__", "__dlpack__", "__getitem__", "__setitem__")


def instances():
    array, stream = md.zeros((2, 3)), md.Stream()
    event = stream.record()
    event.wait()
    return array, array.host, array.layout, array.buffer, stream, event


def calls(things):
    """(name, what is called) of the functions, the types that can be made, and what these things can do."""
    functions = {name: getattr(md, name) for name in dir(md) if not name.startswith("_") and name not in LEFT_OUT}
    members = {
        f"{type(thing).__name__}.{name}": getattr(thing, name)
        for thing in things
        for name in vars(type(thing))
        if not name.startswith("_") or name in SLOTS
    }
    return [(name, call) for name, call in (functions | members).items() if callable(call)]


#: By name: reading one takes longer than most calls.
SIGNATURES: dict[str, inspect.Signature] = {}


def signature_of(name, call):
    if name not in SIGNATURES:
        SIGNATURES[name] = inspect.signature(call)
    return SIGNATURES[name]


def through(call, signature, given, parameter):
    if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:  # alone: what follows as *shape changes what it means
        given = {
            name: value
            for name, value in given.items()
            if signature.parameters[name].kind is not parameter.VAR_POSITIONAL
        }

    def pass_there(x):
        value = (x,) if parameter.kind is parameter.VAR_POSITIONAL else x
        bound = inspect.BoundArguments(signature, {**given, parameter.name: value})
        return call(*bound.args, **bound.kwargs)

    return pass_there


def doors(things=None):
    """{"call(parameter)": a function that passes its argument there}; `things` as `instances` has them."""
    array, _, layout, buffer, stream, event = things = things or instances()
    right = dict.fromkeys(("a", "array", "b", "x", "src", "dst"), array) | {
        "event": event,
        "other": layout,
        "path": "a.npy",
    }
    right |= {"shape": (2, 3), "strides": None, "itemsize": 4, "size": 16, "value": 1, "layout_or_shape": 3, "key": 0}
    handles = {"Buffer": buffer.handle, "Stream": stream.handle, "Event": event.handle}
    found = {}
    for name, call in calls(things):
        signature = signature_of(name, call)
        needed = [parameter.name for parameter in signature.parameters.values() if parameter.default is parameter.empty]
        given = {**right, "handle": handles.get(name.partition(".")[0])}
        given = {parameter: given[parameter] for parameter in needed if parameter in given}
        for parameter in signature.parameters.values():
            found[f"{name}({parameter.name})"] = through(call, signature, given, parameter)
    return found
