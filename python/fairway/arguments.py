"""Arguments that Python code looks at: what cannot be is an InvalidArgument, a ValueError, that names the argument."""

import operator

from . import errors


def index(given, name, end=1 << 31, begin=0):
    """A whole number; raises InvalidArgument, which names it, for anything else."""
    try:
        value = operator.index(given)
    except TypeError:
        value = None
    if value is None or not begin <= value < end:
        raise errors._of("invalid_argument", f"{name} is a whole number from {begin} to {end - 1}, not {given!r}")
    return value


def check_text(given, name):
    if not isinstance(given, str):
        raise errors._of("invalid_argument", f"{name} is a str, not {given!r}")


def listed(given, name, what):
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise errors._of("invalid_argument", f"{name} is a list of {what}, not {given!r}")
    return list(given)


def texts(given, name, which):
    every = listed(given, name, f"str, {which}")
    for at, one in enumerate(every):
        check_text(one, f"{name}[{at}]")
    return every


def seconds_or_none(given, name="timeout"):
    """None, or seconds; of 0 or less nothing is left."""
    if given is not None and (not isinstance(given, (int, float)) or given != given):
        raise errors._of("invalid_argument", f"{name} is seconds, or None, not {given!r}")
    return given
