"""NIXL's compiled module, `nixl._bindings`, in Python on Fairway: the names that programs import from it."""

from ._agent import nixlAgent  # noqa: F401
from ._types import *  # noqa: F403
