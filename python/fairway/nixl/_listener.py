"""NIXL's listener: agents that know each other's host and port exchange metadata by it. With a job key
(FAIRWAY_JOB_KEY) every message is signed, and only then it listens beyond this host. The listener speaks first, a number that it
says once: it is signed with the message and with the answer, so that what was overheard is good for no other connection."""

import hashlib
import hmac
import os
import socket
import socketserver
import struct
import threading
import weakref

from ._errors import nixlBackendError, nixlInvalidParamError

_HEAD = struct.Struct("<4sBI")  # magic, what, length; then a 32-byte signature and the body
_MAGIC = b"FWNL"
_MOST = 1 << 26
SEND, FETCH, INVALIDATE = 1, 2, 3
_ONCE, _ANSWER = 16, b"answer"


class Gone(nixlBackendError):
    """Nobody answers at that address, or who did has ended."""


def _key():
    return os.environ.get("FAIRWAY_JOB_KEY", "").encode()


def _signature(once, what, body):
    return hmac.digest(_key(), once + bytes([what]) + body, hashlib.sha256)


def _write(connection, once, what, body):
    connection.sendall(_HEAD.pack(_MAGIC, what, len(body)) + _signature(once, what, body) + body)


def _read_exactly(connection, count):
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(1 << 16, count - len(data)))
        if not piece:
            raise Gone("the other agent's listener hung up")
        data += piece
    return bytes(data)


def _read(connection, once):
    magic, what, length = _HEAD.unpack(_read_exactly(connection, _HEAD.size))
    if magic != _MAGIC or length > _MOST:
        raise nixlBackendError("what listens there is no agent on Fairway")
    signature = _read_exactly(connection, 32)
    body = _read_exactly(connection, length)
    if not hmac.compare_digest(signature, _signature(once, what, body)):
        raise nixlBackendError("a message of a listener is not signed with this job's key")
    return what, body


def ask(host, port, what, body):
    """One message to an agent's listener and its answer."""
    if not host:
        raise nixlInvalidParamError("there is no central metadata server here: name an address, or carry the bytes of get_agent_metadata()")
    try:
        with socket.create_connection((host, port), timeout=10) as connection:
            once = _read_exactly(connection, _ONCE)
            _write(connection, once, what, body)
            return _read(connection, once + _ANSWER)[1]
    except OSError as error:
        raise Gone(f"the listener at {host}:{port}: {error}") from error


class Listener:
    """Answers on a thread of its own, until close() or the end of the object whose method `answer(what, body) -> bytes` is. It does
    not keep that object."""

    def __init__(self, port, answer):
        answer = weakref.WeakMethod(answer)

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.settimeout(10)
                try:
                    once = os.urandom(_ONCE)
                    self.request.sendall(once)
                    what, body = _read(self.request, once)
                    to_it = answer()
                    if to_it is not None:
                        _write(self.request, once + _ANSWER, what, to_it(what, body))
                except (OSError, nixlBackendError, struct.error, ValueError, nixlInvalidParamError):
                    pass  # a stranger, or cut off: the connection ends

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        host = "0.0.0.0" if _key() else "127.0.0.1"
        try:
            self.server = Server((host, port), Handler)
        except OSError as error:
            raise nixlBackendError(f"cannot listen on {host}:{port}: {error}") from error
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
