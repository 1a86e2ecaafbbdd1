"""A deliberate bug."""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    first: str = ""  # a GoogleTest filter of promises_test, or another program@filter, or seeds@count
