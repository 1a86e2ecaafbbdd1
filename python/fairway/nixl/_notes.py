"""NIXL's notifications, of any length, over Fairway's of 256 bytes: one that is longer comes in pieces that its receiver puts together."""

import struct

MOST = 256
_PIECE = struct.Struct("<BIHH")  # kind, number of the message, index, count
_WHOLE, _PART, _HELLO = 0, 1, 2
_ROOM = MOST - _PIECE.size
IMMEDIATE = 24


def to_bytes(message):
    """What a program gives as a notification: bytes, a str, or nothing."""
    if isinstance(message, str):
        return message.encode()
    return bytes(memoryview(message)) if message is not None else b""


def hello(name):
    return bytes([_HELLO]) + name.encode()


def cut(number, message):
    """A message as one notification or several."""
    if len(message) < MOST:
        return [bytes([_WHOLE]) + message]
    pieces = [message[i : i + _ROOM] for i in range(0, len(message), _ROOM)]
    if len(pieces) > 0xFFFF:
        raise ValueError(f"a notification of {len(message)} bytes; at most {_ROOM * 0xFFFF}: write it to memory instead")
    return [_PIECE.pack(_PART, number & 0xFFFFFFFF, i, len(pieces)) + piece for i, piece in enumerate(pieces)]


class Inbox:
    """What came from each peer, whole messages under their senders' names."""

    def __init__(self):
        self.names = {}  # peer id -> agent's name
        self._early = {}  # peer id -> messages that came before its name
        self._parts = {}  # (peer id, number) -> {index: piece}

    def take(self, peer, data):
        """(agent's name, message) of those that are whole now."""
        kind = data[0] if data else _WHOLE
        if kind == _HELLO:
            self.names[peer] = name = data[1:].decode(errors="replace")
            return [(name, message) for message in self._early.pop(peer, ())]
        if kind == _WHOLE:
            message = data[1:]
        else:
            if kind != _PART or len(data) < _PIECE.size:
                return []  # no agent says that
            _, number, index, count = _PIECE.unpack_from(data)
            if index >= count:
                return []
            parts = self._parts.setdefault((peer, number), {})
            parts[index] = data[_PIECE.size :]
            if len(parts) < count:
                return []
            del self._parts[peer, number]
            message = b"".join(parts.get(i, b"") for i in range(count))
        if peer not in self.names:
            self._early.setdefault(peer, []).append(message)
            return []
        return [(self.names[peer], message)]

    def forget(self, peer):
        self.names.pop(peer, None)
        self._early.pop(peer, None)
        for key in [key for key in self._parts if key[0] == peer]:
            del self._parts[key]
