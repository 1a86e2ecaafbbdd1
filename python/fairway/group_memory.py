"""The memory of a collective's arguments, and what its elements are; fairway.Communicator uses it."""

import math
import sys

from . import errors
from ._fairway import _look_at

_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
_COMPLEX = {"complex64": "float32", "complex128": "float64"}
_OPS = ("sum", "product", "min", "max", "average", "premul_sum")
_REDUCING = ("all_reduce", "reduce", "reduce_scatter")


class _Memory:
    """An argument's memory, and what its elements are."""

    __slots__ = ("address", "nbytes", "type", "item", "shape", "keep")

    def __init__(self, array, name, written=False, stream=None):
        torch = sys.modules.get("torch")
        if isinstance(array, _Memory):
            for slot in self.__slots__:
                setattr(self, slot, getattr(array, slot))
        elif torch is not None and isinstance(array, torch.Tensor):
            self._tensor(array, name, torch, stream)
        else:
            self.address, self.nbytes, self.type, self.item, self.shape, self.keep = _look_at(array, name, written, stream is not None)

    def _tensor(self, tensor, name, torch, stream):
        if tensor.device.type != "cpu" and (stream is None or tensor.device.type != "cuda"):
            raise errors._of(
                "unsupported", f"{name} is on {tensor.device}: give stream=, once all ranks have called use_gpu(), or copy it to the host first, and back"
            )
        if tensor.layout != torch.strided or not tensor.is_contiguous():
            raise errors._of("invalid_argument", f"{name} is not contiguous: pass a copy that is (tensor.contiguous())")
        self.address, self.item, self.shape = tensor.data_ptr(), tensor.element_size(), list(tensor.shape)
        self.nbytes, self.type, self.keep = tensor.numel() * self.item, str(tensor.dtype)[6:], tensor

    def elsewhere(self, shape):
        """As an array of the same elements that is nowhere yet."""
        made = _Memory(self, "")
        made.address, made.shape, made.nbytes, made.keep = 0, list(shape), math.prod(shape) * self.item, None
        return made

    def elements(self, kind, op, name):
        """What the collective calls an element, and how many of those the memory has."""
        element, each = _element_of(self.type, self.item, kind, op, name)
        return element, self.nbytes // max(self.item, 1) * each


def _element_of(type, item, kind, op, name):
    """What the collective calls an element where an array has elements of `item` bytes, and how many of those each of them is."""
    combined = kind in _REDUCING
    if type in _TYPES:
        return type, 1
    if type in _COMPLEX and (not combined or op in ("sum", "average", "premul_sum")):
        return _COMPLEX[type], 2
    if type == "bool" and (not combined or op in ("min", "max", "product")):
        return "uint8", 1
    if combined:
        what = f"elements of dtype {type}" if type else f"elements of {item} bytes of no known dtype"
        raise errors._of("invalid_argument", f"{name}: {what} have no {op}; those of {', '.join(_TYPES)} do")
    return "uint8", item


def _made(like, shape, stream=None, name="out"):
    """An array as `like`, of another shape; on a GPU it belongs to the stream."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(like, torch.Tensor):
        if stream is None:
            return torch.empty(shape, dtype=like.dtype)
        if isinstance(stream, torch.cuda.Stream):
            with torch.cuda.stream(stream):
                return torch.empty(shape, dtype=like.dtype, device=like.device)
        raise errors._of("invalid_argument", f"{name} is needed: a new tensor is made for torch's streams, not for a {type(stream).__name__}")
    if numpy is not None and isinstance(like, numpy.ndarray):
        return numpy.empty(shape, like.dtype)
    raise errors._of("invalid_argument", f"{name} is needed: of a {type(like).__name__} no new one can be made")
