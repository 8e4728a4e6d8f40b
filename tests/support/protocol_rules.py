"""The rules of the exchange: id, source, sentence.

A test says `@pytest.mark.rule(id, ...)`, the function that keeps a rule has `SPEC id` in the comment above it, and
tools/protocol.py makes docs/inside/protocol.md of all three.  "peers" are facts about the frameworks, found by running them.
"""

#: Part: {id: (source, what holds)}.
RULES = {
    "What our arrays hand out": {
        "export-legacy": (
            "array API 2025.12, `__dlpack__` max_version",
            "Without `max_version`, or below 1.0, the capsule is a legacy `dltensor`.",
        ),
        "export-versioned": (
            "array API 2025.12, `__dlpack__` max_version",
            "From `max_version` (1, 0) on the capsule is a `dltensor_versioned`, stamped 1.3 whatever minor or later major is asked.",
        ),
        "export-keywords": (
            "array API 2025.12, `__dlpack__`; NumPy, torch, MLX, JAX each pass others",
            "All keywords are optional and keyword-only; an unknown one, and nothing else that a peer passes, is a TypeError: torch, NumPy and we ask again with fewer on it.",
        ),
        "export-device": (
            "array API 2025.12, `__dlpack__` dl_device",
            "`dl_device` None is Metal, (8, 0); the CPU, (1, 0), is always to be had; any other is a BufferError.",
        ),
        "export-device-pair": (
            "peers: torch passes IntEnum members",
            "`dl_device` and `max_version` may be any sequence of two whose items have `__index__`.",
        ),
        "export-copy-true": ("array API 2025.12, `__dlpack__` copy", "`copy=True` always copies and sets IS_COPIED."),
        "export-copy-false": (
            "array API 2025.12, `__dlpack__` copy",
            "`copy=False` never copies: where a copy is needed it is a CopyRequiredError, a BufferError and a ValueError, as the standard names both.",
        ),
        "export-copy-none": (
            "array API 2025.12, `__dlpack__` copy",
            "`copy=None` copies only where the memory cannot be handed out: negative strides, packed items that lie apart, private storage for the CPU, an offset within an item for Metal.",
        ),
        "export-stream-none": (
            "array API 2025.12, `__dlpack__` stream; issue array-api#829",
            "`stream=None`: our pending work on the buffer is complete on return.",
        ),
        "export-stream-other": (
            "array API 2025.12, `__dlpack__` stream",
            "`stream=-1` waits for nothing; a Stream or its queue's handle waits on the GPU; another int is a BufferError, another type a TypeError.",
        ),
        "export-cpu-waits": (
            "array API 2025.12, `__dlpack__` dl_device",
            "A CPU export waits for pending work, whatever `stream` says.",
        ),
        "export-metal-data": (
            "dlpack#186; torch, MLX, TVM, safetensors",
            "On Metal `data` is the id<MTLBuffer> and `byte_offset` the true offset of item 0.",
        ),
        "export-torch": (
            "pytorch#190373, in no release up to 2.15",
            "A torch that takes `data` for an address is found out once, before the first export to it, and refused.",
        ),
        "export-cpu-data": (
            "peers: MLX adds byte_offset twice on the CPU",
            "On the CPU the offset is folded into `data`, and `byte_offset` is 0.",
        ),
        "export-offset-item": (
            "peers: torch refuses other offsets",
            "On Metal `byte_offset` is a multiple of the itemsize, else a copy is handed out.",
        ),
        "export-alignment": (
            "dlpack.h 1.3, DLTensor.data; TVM wants 64",
            "Fresh arrays begin at offset 0 of a buffer aligned to 256 bytes or more.",
        ),
        "export-device-id": ('peers: torch makes "mps:1" of another', "`device_id` is 0."),
        "export-strides": (
            "dlpack.h 1.3, DLTensor.strides, from 1.2 on",
            "Strides are never NULL, for 0 dimensions neither: torch reads a 0-d tensor with an offset only so.",
        ),
        "export-strides-as-they-are": (
            "numpy#20336, pytorch#163274, Paddle PR77052",
            "The strides of axes of extent 1 go out as they are: consumers were broken by normalising them.",
        ),
        "export-empty": ("dlpack.h 1.3, DLTensor.data", "A tensor without items has NULL for data and offset 0."),
        "export-negative": (
            "peers: torch ends the process, MLX refuses",
            "Negative strides never go out: a copy does.",
        ),
        "export-readonly": (
            "dlpack.h 1.3, DLPACK_FLAG_BITMASK_READ_ONLY",
            "A read-only array's versioned tensor has READ_ONLY; its copies have not.",
        ),
        "export-readonly-legacy": (
            "NumPy's rule",
            "A legacy capsule of a read-only array is refused: it cannot say so.",
        ),
        "export-subbyte": (
            "dlpack.h 1.3, IS_SUBBYTE_TYPE_PADDED",
            "Packed sub-byte items go out compact; padded ones with their flag, or packed by a copy where a legacy capsule cannot say it.",
        ),
        "export-dtypes": (
            "dlpack.h 1.3, DLDataTypeCode",
            "Every element type goes out as it is, those that Metal or a peer cannot compute with too.",
        ),
        "export-private": (
            "peers: TVM's buffers are private",
            "Private storage goes to Metal as it is and to the CPU as a copy.",
        ),
        "export-dropped": (
            "python_spec, capsule destructor",
            "A capsule that nobody takes frees its tensor; a taken one is left to its taker.",
        ),
        "export-deleter": ("python_spec, deleter", "The deleter runs on any thread, without the GIL, and never waits."),
        "export-deleter-late": (
            "python_spec, after finalisation",
            "After the interpreter's end a deleter frees the buffer and leaves Python owners alone.",
        ),
        "export-host-view": (
            "peers: JAX looks at `__dlpack_device__` alone",
            "`Array.host` is the same memory as (1, 0).",
        ),
        "refusal-kept": (
            "peers: MLX hides the producer's reason",
            "`last_refusal()` gives the last error of our producer, per thread.",
        ),
    },
    "The exchange API": {
        "exchange-table": (
            "dlpack.h 1.3, DLPackExchangeAPI",
            "The type has `__dlpack_c_exchange_api__`, a capsule of that table, version 1.3, all five members set.",
        ),
        "exchange-owned": (
            "dlpack.h 1.3, managed_tensor_from_py_object_no_sync",
            "The owning call gives a tensor with its flags; where `__dlpack__` would copy, it copies; errors are BufferErrors, on which tvm-ffi falls back.",
        ),
        "exchange-borrowed": (
            "dlpack.h 1.3, dltensor_from_py_object_no_sync",
            "The borrowed tensor is the array's own and allocates nothing; what needs a copy or a flag is refused.",
        ),
        "exchange-steals": (
            "dlpack.h 1.3, managed_tensor_to_py_object_no_sync",
            "The tensor is stolen: deleted once, also where it is refused.",
        ),
        "exchange-allocator": (
            "dlpack.h 1.3, managed_tensor_allocator",
            "The allocator makes what the prototype says and reports errors through the caller's function, if there is one.",
        ),
        "exchange-stream": (
            "dlpack.h 1.3, current_work_stream; torch and tvm-ffi do so",
            "There is no work stream on Metal: 0 and NULL.",
        ),
        "exchange-foreign": (
            "peers: torch's borrowed call is broken on MPS slices",
            "Of a foreign table only the owning call is used.",
        ),
        "exchange-versions": (
            "dlpack.h 1.3, DLPackExchangeAPIHeader.prev_api",
            "A table of another major version is left for the one before it, `prev_api`; if none fits or one lacks a function, `__dlpack__` is called.",
        ),
        "exchange-as-method": (
            "torch's table exports what its `__dlpack__` refuses",
            "What a framework's `__dlpack__` refuses (gradients, conjugates) its table must not hand over; what its table refuses, `__dlpack__` is asked for, and gives its reason.",
        ),
        "exchange-to": (
            "dlpack.h 1.3, managed_tensor_to_py_object_no_sync",
            "`Array.to(type)` hands over by the type's table; a hand-over that fails leaks nothing.",
        ),
    },
    "What is taken": {
        "import-flavours": ("python_spec", "Legacy and versioned capsules are taken, from objects and by themselves."),
        "import-major": (
            "dlpack.h 1.3, DLManagedTensorVersioned",
            "Of another major version only the deleter is called.",
        ),
        "import-minor": ("dlpack.h 1.3, DLPackVersion", "A later minor version is taken."),
        "import-once": ("python_spec, used_dltensor", "A capsule is taken once, by its name; a second use is refused."),
        "import-untouched": ("python_spec", "A refused capsule stays its producer's: not renamed, not deleted."),
        "import-deleted-once": (
            "python_spec, deleter",
            "A taken tensor is deleted exactly once, for every shape, and not one byte of it is touched afterwards.",
        ),
        "import-null-deleter": ("dlpack.h 1.3, DLManagedTensor.deleter", "A NULL deleter is legal and not called."),
        "import-deleter-exception": (
            "numpy#32697, pytorch#84056",
            "A deleter meets no exception in flight and leaves none behind.",
        ),
        "import-deleter-thread": (
            "python_spec, deleter",
            "A foreign deleter is called with the GIL of the interpreter that imported the tensor, whatever thread lets go last.",
        ),
        "import-null-strides": ("dlpack.h 1.3, DLTensor.strides", "NULL strides are C order, with an offset too."),
        "import-0d": ("dlpack.h 1.3, DLTensor.shape", "Without dimensions shape and strides may be NULL."),
        "import-size-1-strides": (
            "numpy#20336, pytorch#163274, Paddle PR77052",
            "Strides of axes of extent 1, and of tensors without items, are kept and not judged.",
        ),
        "import-empty": (
            "dlpack.h 1.3, DLTensor.data",
            "Without items `data`, offset and strides are not looked at, and the tensor is deleted at once.",
        ),
        "import-negative-strides": ("peers: NumPy and MLX export them", "Negative and zero strides are taken."),
        "import-shape": (
            "dlpack.h 1.3, DLTensor.ndim, shape",
            "ndim outside 0 to 64, a NULL shape, arrays where no int64 may lie, a negative extent are refused.",
        ),
        "import-overflow": (
            "MatX PR1204, tensorflow PR116201, arrow PR51122",
            "No product or sum of extents, strides, itemsize and offset may pass 64 bits, nor data and offset the address space.",
        ),
        "import-dtype": (
            "dlpack.h 1.3, DLDataTypeCode",
            "A code or a number of bits that DLPack 1.3 has not, opaque handles and 0 lanes are refused.",
        ),
        "import-lanes": ("dlpack.h 1.3, DLDataType.lanes", "Lanes are part of the element: torch's fp4 comes in two."),
        "import-subbyte": (
            "dlpack.h 1.3, DLDataType",
            "Item i of a packed tensor is `(D >> (i * bits)) & mask`; a padded one has a byte; lanes cannot be padded.",
        ),
        "import-offset": (
            "dlpack.h 1.3, DLTensor.byte_offset",
            "byte_offset is honoured everywhere, and on Metal a multiple of the element's alignment.",
        ),
        "import-bounds": ("easy_as checks so", "A Metal tensor lies within `[0, [buffer length])`."),
        "import-handle": (
            "peers: quadrants gives host pointers",
            "What is not an id<MTLBuffer> is named and not messaged; a host pointer is never guessed to be one.",
        ),
        "import-device-id": (
            "peers: TVM counts all devices, torch and MLX say 0",
            "`device_id` is 0 or the index of the buffer's own device.",
        ),
        "import-other-device": (
            "array API 2025.12, `from_dlpack`",
            "Memory of another device is refused by name, before the capsule is asked for.",
        ),
        "import-readonly": (
            "dlpack.h 1.3, READ_ONLY",
            "Read-only stays read-only through views and exports, and when memory that was given away comes back without the flag; "
            "any other legacy tensor counts as writable.",
        ),
        "import-negated": (
            "peers: torch hands out the memory of `z.conj().imag` as it is",
            "A torch tensor whose memory is minus its value is refused by name; a capsule does not say so, to nobody.",
        ),
        "import-copy-true": (
            "array API 2025.12, `from_dlpack` copy",
            "`copy=True` gives memory of its own, also from producers that ignore or do not know `copy`; IS_COPIED is believed, its absence never.",
        ),
        "import-copy-false": (
            "array API 2025.12, `from_dlpack` copy",
            "`copy=False` shares or raises CopyRequiredError.",
        ),
        "import-device": (
            "array API 2025.12, `from_dlpack` device",
            "`device` is None, a Device, 'metal', 'metal:0', or 'cpu', which gives the host view.",
        ),
        "import-old-producers": (
            "array API 2025.12, `from_dlpack`, the pattern for consumers",
            "Producers are asked with max_version and copy, and after TypeError with fewer keywords.",
        ),
        "import-errors": ("array API 2025.12, `from_dlpack`", "What a producer raises comes through."),
        "import-no-dlpack": (
            "array API 2025.12, `from_dlpack`",
            "An object without `__dlpack__` or `__dlpack_device__` is an AttributeError.",
        ),
        "import-sync": (
            "peers: nobody reads stream on Metal",
            "A framework's own synchronisation runs before its Metal tensor is read, if the framework is imported.",
        ),
        "import-keeps": (
            "peers: torch and MLX recycle, TVM empties a deleted buffer",
            "The producer's tensor, and not only the MTLBuffer, is kept until the last view and export is gone.",
        ),
        "import-failing-half": (
            "pytorch#56789, cuda-python#1291",
            "An import or export that fails half-way leaves every count as it was.",
        ),
    },
    "Lives and ends, and what can be asked": {
        "interpreters": (
            "numpy#24755, pytorch#102517",
            "Each sub-interpreter has a module of its own; tensors cross, and are deleted by whoever comes last.",
        ),
        "fork": ("pytorch PR178037", "In a forked child deletions are silent and calls to Metal raise."),
        "module-ends": (
            "torch-mojo-backend PR307",
            "A module that is dropped with capsules alive is collected later, and its owners let go.",
        ),
        "explain-true": (
            "the knowledge is one table of data",
            "What `explain` says of us and of each installed consumer is what happens.",
        ),
        "shares-memory": ("exact for strided views", "`shares_memory` is exact, takes nothing and keeps nothing."),
        "soak": (
            "mxnet#13658, cuda-python#1043: leaks seen elsewhere",
            "A million exchanges by each route leave the process as it was.",
        ),
    },
}
