"""What an agent tells others of itself: its name, its engine's address, its regions. Bytes that travel by any means; cut or
flipped ones are refused."""

import base64
import dataclasses
import json
import struct
import zlib

from ._errors import nixlInvalidParamError, nixlMismatchError

_MAGIC = b"FWNX"
_VERSION = 1
_HEAD = struct.Struct("<4sHHI")  # magic, version, 0, length of the body; then _SUM, then the body
_SUM = struct.Struct("<I")  # CRC-32 of head and body


class Memory:
    """One region of a remote agent."""

    __slots__ = ("type", "address", "length", "device", "description", "remote")

    def __init__(self, type, address, length, device, description):
        self.type, self.address, self.length, self.device = type, address, length, device
        self.description = description
        self.remote = None  # imported when it is first used

    def key(self):
        return (self.type, self.address, self.length, self.device)


@dataclasses.dataclass
class Told:
    """What an agent tells. `whole`: of all its memory."""

    name: str
    address: str  # "": not told
    bell: bytes  # the description of the word that notifications without a transfer are written to
    memories: list
    whole: bool


def pack(name, address, bell, memories, whole=False):
    body = json.dumps(
        {
            "name": name,
            "address": address,
            "whole": whole,
            "bell": base64.b85encode(bell).decode() if bell else "",
            "memories": [[m.type, m.address, m.length, m.device, base64.b85encode(m.description).decode()] for m in memories],
        },
        separators=(",", ":"),
    ).encode()
    body = zlib.compress(body, 1)
    head = _HEAD.pack(_MAGIC, _VERSION, 0, len(body))
    return head + _SUM.pack(zlib.crc32(head + body)) + body


def unpack(data):
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"an agent's metadata are bytes, not {type(data).__name__}")
    data = bytes(data)
    if len(data) < _HEAD.size + _SUM.size or data[:4] != _MAGIC:
        raise nixlInvalidParamError("these bytes are not the metadata of an agent on Fairway (of NIXL's own? all agents of a job need fairway.nixl)")
    _, version, _, length = _HEAD.unpack_from(data)
    (checksum,) = _SUM.unpack_from(data, _HEAD.size)
    if version != _VERSION:
        raise nixlMismatchError(f"the agent speaks version {version} of the metadata, this one {_VERSION}")
    body = data[_HEAD.size + _SUM.size :]
    if len(body) != length or zlib.crc32(data[: _HEAD.size] + body) != checksum:
        raise nixlInvalidParamError("an agent's metadata were cut or changed on their way")
    try:
        inflated = zlib.decompressobj()
        told = json.loads(inflated.decompress(body, 1 << 26))
        memories = [Memory(int(t), int(a), int(n), int(d), base64.b85decode(text)) for t, a, n, d, text in told["memories"]]
        return Told(str(told["name"]), str(told["address"]), base64.b85decode(told["bell"]), memories, bool(told.get("whole", False)))
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise nixlInvalidParamError(f"an agent's metadata make no sense: {error}") from error
