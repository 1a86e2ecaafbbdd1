"""NIXL's descriptor lists: (address, length, device) of a memory type, with a string or an agent's name behind it in two kinds."""

import enum
import operator

import numpy as np

from ._errors import nixlInvalidParamError, nixlNotFoundError


class nixl_mem_t(enum.IntEnum):
    DRAM_SEG = 0
    VRAM_SEG = 1
    BLK_SEG = 2
    OBJ_SEG = 3
    FILE_SEG = 4


class _List:
    """A list of tuples, or an N x 3 array that stays one until a tuple is asked for."""

    WIDTH = 3

    def __init__(self, type, descs=0, init_size=0):
        self._type = nixl_mem_t(type)
        self._array = None
        self._descs = []
        if isinstance(descs, np.ndarray):
            if descs.ndim != 2 or descs.shape[1] != 3:
                raise ValueError(f"descriptors are an N x 3 array, not {descs.shape}")
            if descs.dtype.kind not in "iu":
                raise TypeError(f"descriptors are integers, not {descs.dtype}")
            self._array = np.ascontiguousarray(descs).astype(np.uint64)
        elif not isinstance(descs, int):
            for desc in descs:
                self.addDesc(desc)

    def _tuples(self):
        if self._array is not None:
            self._descs = [self._fill(*row) for row in self._array.tolist()]
            self._array = None
        return self._descs

    def _fill(self, address, length, device):
        return (address, length, device)

    def _checked(self, desc):
        desc = tuple(desc)
        if len(desc) != self.WIDTH:
            raise TypeError(f"a descriptor has {self.WIDTH} members, this one {len(desc)}")
        if any(not 0 <= operator.index(member) < 1 << 64 for member in desc[:3]):
            raise TypeError(f"a descriptor's address, length and device are 64-bit numbers, not {desc[:3]}")
        return desc

    def as_array(self):
        """N x 3: address, length, device."""
        if self._array is None:
            return np.array([desc[:3] for desc in self._descs], np.uint64).reshape(len(self._descs), 3)
        return self._array

    def __reduce__(self):  # numbers and tuples alone, so that a reader need trust nothing else
        return type(self), (int(self._type), self._tuples())

    def getType(self):
        return self._type

    def descCount(self):
        return len(self._descs) if self._array is None else len(self._array)

    __len__ = descCount

    def isEmpty(self):
        return self.descCount() == 0

    def __eq__(self, other):
        return type(self) is type(other) and self._type == other._type and self._tuples() == other._tuples()

    __hash__ = None

    def __getitem__(self, index):
        return self._tuples()[index]

    def __setitem__(self, index, desc):
        self._tuples()[index] = self._checked(desc)

    def addDesc(self, desc):
        self._tuples().append(self._checked(desc))

    append = addDesc

    def index(self, desc):
        try:
            return self._tuples().index(tuple(desc))
        except ValueError:
            raise nixlNotFoundError(f"no descriptor {tuple(desc)} in the list") from None

    def remDesc(self, index):
        if not 0 <= index < self.descCount():
            raise nixlInvalidParamError(f"no descriptor {index} in a list of {self.descCount()}")
        del self._tuples()[index]

    def clear(self):
        self._array, self._descs = None, []

    def print(self):
        print(self)

    def __repr__(self):
        return f"<{type(self).__name__} of {self.descCount()} in {self._type.name}>"


def checked_list(descs):
    """descs, where it is a descriptor list."""
    if descs is None:
        raise TypeError("no descriptor list: the log says why the descriptors that were given are none")
    if not isinstance(descs, _List):
        raise TypeError(f"a descriptor list is what get_xfer_descs() or get_reg_descs() gives, not a {type(descs).__name__}")
    return descs


class nixlXferDList(_List):
    pass


class nixlRegDList(_List):
    WIDTH = 4

    def _fill(self, address, length, device):
        return (address, length, device, "")

    def trim(self):
        return nixlXferDList(self._type, [desc[:3] for desc in self._tuples()])


class nixlRemoteDList(_List):
    WIDTH = 4
