"""What can go wrong, an exception for each code: `except fairway.PeerDead`, or `fairway.Error` for all."""

import re as _re


class Error(Exception):
    """Anything that Fairway reports.

    code    the kind, as in C++ ('peer_dead')
    peer    the peer's name or address it concerns, or ''
    link    the link it concerns ('tcp/eth0/1'), or ''
    cause   the reason in words, with the system's own text
    effect  of a failed transfer on its target: 'not_applied', 'partial' or 'unknown'

    Of a failed collective also:

    rank       the rank that is at fault, or None when it is none alone
    operation  its number
    phase      how far this rank, or the one that told it, had come
    """

    code = "error"
    rank = None
    operation = 0
    phase = ""

    def __init__(self, text="", *, cause="", peer="", link="", effect="not_applied"):
        super().__init__(text)
        self.cause = cause or text
        self.peer = peer
        self.link = link
        self.effect = effect

    def __reduce__(self):
        where = {"rank": self.rank, "operation": self.operation, "phase": self.phase}
        return _rebuild, (type(self), str(self), self.cause, self.peer, self.link, self.effect), where


def _rebuild(kind, text, cause, peer, link, effect):
    return kind(text, cause=cause, peer=peer, link=link, effect=effect)


_KINDS = {}


def _kind(code, text, *also):
    name = "".join(word.capitalize() for word in code.split("_"))
    kind = type(name, (Error, *also), {"__doc__": text, "code": code, "__module__": "fairway"})
    _KINDS[code] = kind
    return kind


InvalidArgument = _kind("invalid_argument", "The request is malformed: change it.", ValueError)
NotFound = _kind("not_found", "No such peer, region, name or file.", LookupError)
AlreadyExists = _kind("already_exists", "The name is taken.")
AccessDenied = _kind("access_denied", "The memory does not permit that.", PermissionError)
OutOfRange = _kind("out_of_range", "Beyond the end of a region or a limit.", IndexError)
Unsupported = _kind("unsupported", "No route or transport can do this; the text says what would.")
QueueFull = _kind("queue_full", "Not taken, nothing was done: wait for transfers, then try again.")
ResourceExhausted = _kind("resource_exhausted", "Descriptors, memory or ports: the text names the limit.")
Unreachable = _kind("unreachable", "Nothing answers at that address.", ConnectionError)
PeerDead = _kind("peer_dead", "The peer's process ended or stopped answering.", ConnectionError)
StaleIncarnation = _kind("stale_incarnation", "The handle is of an earlier life of that peer: connect again.", ConnectionError)
LinkFailed = _kind("link_failed", "The link broke and no other could take over.", ConnectionError)
Cancelled = _kind("cancelled", "Ended by cancel() or close().")
DeadlineExceeded = _kind("deadline_exceeded", "The request's own deadline passed.", TimeoutError)
TimedOut = _kind("timed_out", "This wait's timeout passed; what was waited for goes on.", TimeoutError)
DependencyFailed = _kind("dependency_failed", "The transfer named in `after` failed.")
Truncated = _kind("truncated", "A message is longer than the receive.")
ChecksumMismatch = _kind("checksum_mismatch", "The end-to-end checksum found different bytes.")
NotFenced = _kind("not_fenced", "Bytes may still land: do not reuse the memory.")
Revoked = _kind("revoked", "The region was deregistered.")
AuthenticationFailed = _kind("authentication_failed", "The peer could not prove that it knows the job's key.", ConnectionError)
VersionMismatch = _kind("version_mismatch", "The peer speaks no common version of the wire format.", ConnectionError)
ProtocolError = _kind("protocol_error", "The peer sent something malformed; its connection was closed.", ConnectionError)
Closed = _kind("closed", "The engine is closed.")
SystemError_ = _kind("system_error", "The operating system refused; the text has its own words.", OSError)
SystemError_.__name__ = SystemError_.__qualname__ = "SystemError_"  # the other one is Python's


class Forked(Error, RuntimeError):
    """An engine of the parent process was used in a forked child: open a new one there."""

    code = "forked"


_CPLUSPLUS = _re.compile(r"\b(?:(Engine|Request|Communicator|Gpu|Job)Options|Stream(?:Put|Wait)|NcclUse|(Access))::(\w+(?:\.\w+)*)")
_LETTERS = {"none": "''", "read": "'r'", "write": "'w'", "atomic": "'a'", "all": "'rwa'"}


def _in_pythons_words(text):
    """The library names its own options and values; here they are Python's: EngineOptions::listen is option 'listen'."""

    def name(found):
        options, access, word = found.groups()
        return _LETTERS.get(word, word) if access else f"option '{word}'" if options else f"'{word}'"

    return _CPLUSPLUS.sub(name, text) if "::" in text else text


def _make(code, cause, peer, link, effect, text):
    cause, text = _in_pythons_words(cause), _in_pythons_words(text)
    return _KINDS.get(code, Error)(text, cause=cause, peer=peer, link=link, effect=effect)


def _of(code, cause):
    return _KINDS[code](f"{code}: {cause}", cause=cause)


__all__ = ["Error", "Forked", *(kind.__name__ for kind in _KINDS.values())]
