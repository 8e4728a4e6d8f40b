"""What Array, Device and Stream say of a name that others have and they have not.

array_absent.c lists the names, and calls this when somebody asks for one.
"""

from __future__ import annotations

#: What NumPy and torch compute by methods of one name; by a function, and by a method.
_METHODS = """
    all any argmax argmin argsort clip cumprod cumsum diagonal dot max mean min nonzero prod repeat round sort std sum
    take trace var
"""
_FUNCTIONS = """
    add allclose ceil cos diag divide equal exp flip floor greater less log multiply outer roll sign sin sqrt square
    subtract tanh tril triu unique where
"""
#: What NumPy alone has.  What is nowhere here is a method of torch's tensors.
_OF_NUMPY = """
    argpartition byteswap choose compress conj conjugate dump dumps getfield imag partition put real searchsorted
    setfield tofile
"""

_NO_GRADIENTS = "an Array has no gradients"
#: What to write instead.
_INSTEAD = {
    "abs": "abs(np.asarray(a)), or a.to(torch.Tensor).abs()",
    "backward": f"a.to(torch.Tensor); {_NO_GRADIENTS}",
    "base": "a.buffer, which every view of it has",
    "bfloat16": "a.astype('bfloat16')",
    "bool": "a.astype('bool')",
    "byte": "a.astype('uint8')",
    "clone": "a.copy()",
    "contiguous": "a.copy(), which is contiguous",
    "copy_": "a.copy_from(src), or a[...] = src, which converts",
    "cpu": "np.asarray(a) or a.host, the same memory on the CPU",
    "cuda": "a.to(torch); an Array lies on Metal",
    "data_ptr": "a.buffer.handle for the MTLBuffer and a.byte_offset in it, or a.buffer.address",
    "detach": f"a itself; {_NO_GRADIENTS}",
    "dim": "a.ndim",
    "double": "a.astype('float64')",
    "element_size": "a.itemsize",
    "expand": "a.broadcast_to(shape)",
    "expand_as": "a.broadcast_to(b.shape)",
    "fill_": "a.fill(value)",
    "flat": "a.reshape(-1)",
    "float": "a.astype('float32')",
    "get": "np.asarray(a), which shares the memory",
    "grad": f"a.to(torch.Tensor); {_NO_GRADIENTS}",
    "half": "a.astype('float16')",
    "int": "a.astype('int32')",
    "is_contiguous": "a.layout.is_contiguous_c",
    "is_cuda": "a.device; an Array lies on Metal",
    "is_mps": "a.device; an Array lies on Metal",
    "long": "a.astype('int64')",
    "matmul": "np.asarray(a) @ b, or a.to(torch.Tensor) @ b",
    "movedim": "a.moveaxis(source, destination)",
    "mps": "a.to(torch.Tensor); an Array lies on Metal already",
    "narrow": "a[start:start + length], or such a slice of another axis",
    "ndimension": "a.ndim",
    "nelement": "a.size",
    "new_empty": "metal_dlpack.empty(shape, a.dtype)",
    "new_full": "metal_dlpack.full(shape, value, a.dtype)",
    "new_ones": "metal_dlpack.ones(shape, a.dtype)",
    "new_zeros": "metal_dlpack.zeros(shape, a.dtype)",
    "numel": "a.size",
    "numpy": "np.asarray(a), which shares the memory",
    "ptr": "a.buffer.address + a.byte_offset",
    "requires_grad": f"a.to(torch.Tensor); {_NO_GRADIENTS}",
    "requires_grad_": f"a.to(torch.Tensor); {_NO_GRADIENTS}",
    "reshape_as": "a.reshape(b.shape)",
    "resize": "a.reshape(shape), a view of as many items, or metal_dlpack.zeros(shape)",
    "resize_": "a.reshape(shape), a view of as many items, or metal_dlpack.zeros(shape)",
    "select": "a[index], or such an index of another axis",
    "setflags": "a.as_readonly(), or a.copy() to write",
    "squeeze_": "a.squeeze(axis), which is a view",
    "storage_offset": "a.byte_offset, in bytes of a.buffer",
    "stride": "a.strides",
    "swapdims": "a.swapaxes(axis1, axis2)",
    "t": "a.T",
    "t_": "a.T, which is a view",
    "torch": "a.to(torch)",
    "transpose_": "a.swapaxes(axis1, axis2), which is a view",
    "type": "a.astype(dtype), or a.dtype",
    "type_as": "a.astype(b.dtype)",
    "unbind": "list(a), views along the first axis",
    "unsqueeze": "a.expand_dims(axis)",
    "unsqueeze_": "a.expand_dims(axis), which is a view",
    "untyped_storage": "a.buffer",
    "view_as": "a.reshape(b.shape)",
    "zero_": "a.fill(0)",
    "Device.type": "str(device), 'metal:0', and device.index",
    "Stream.cuda_stream": "stream.handle",
    "Stream.done": "stream.query()",
    "Stream.record_event": "stream.record()",
    "Stream.use": "`with stream:`",
    "Stream.wait_event": "stream.wait(event)",
    "Stream.wait_stream": "stream.wait(other)",
}


def text_of(owner: str, name: str) -> str:
    """The text of the AttributeError; `owner` is the name of the type."""
    instead = _INSTEAD.get(name if owner == "Array" else f"{owner}.{name}")
    if instead is not None:
        text = f"; write {instead}"
    elif name in _METHODS.split():
        text = f": it does no arithmetic; call np.asarray(a).{name}() or a.to(torch.Tensor).{name}(), "
        text += "which share its memory"
    elif name in _FUNCTIONS.split():
        text = f": it does no arithmetic; call np.{name}(a) or a.to(torch.Tensor).{name}()"
    elif name in _OF_NUMPY.split():
        text = f"; write np.asarray(a).{name}, which shares its memory"
    else:
        text = f"; call a.to(torch.Tensor).{name}(), which shares its memory"
    return f"{owner} has no attribute {name!r}{text}."
