"""Pages of host memory, moved between two processes of this host by a program for NIXL's Python API: one transfer with a
descriptor for each page, as a connector of a KV cache makes it. Every byte is compared.

    python3 bench/nixl_pages.py                              with NIXL
    python3 -m fairway.nixl run bench/nixl_pages.py          the same program over Fairway

A line for each case: bytes of a page, pages, then of posting a transfer and polling it to its end the median in
microseconds, p99, and GB/s. Option --seconds: for each case (0.5)."""

import argparse
import os
import socket
import statistics
import struct
import time

import numpy as np

CASES = ((8, 1), (4096, 1), (65536, 1), (1 << 20, 1), (4096, 1000), (40960, 1000), (131072, 512))
MOST = max(size * count for size, count in CASES)
HEAD = struct.Struct("<QQQ")


def pattern(size_bytes, seed):
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


def receive(connection, size_bytes):
    data = b""
    while len(data) < size_bytes:
        part = connection.recv(size_bytes - len(data))
        if not part:
            raise SystemExit("nixl_pages: the other process has ended")
        data += part
    return data


def serve(connection):
    """The target: memory that pages come into, compared when the other side asks."""
    from nixl import nixl_agent

    agent = nixl_agent("pages-target")
    memory = np.zeros(MOST, np.uint8)
    agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    metadata = agent.get_agent_metadata()
    connection.sendall(HEAD.pack(memory.ctypes.data, len(metadata), 0) + metadata)
    while head := connection.recv(HEAD.size, socket.MSG_WAITALL):
        size, count, seed = HEAD.unpack(head)
        order = np.random.default_rng(seed).permutation(count)
        arrived = memory[: size * count].reshape(count, size)[order]
        connection.sendall(b"1" if np.array_equal(arrived.reshape(-1), pattern(size * count, seed)) else b"0")


def measure(connection, seconds):
    from nixl import nixl_agent

    agent = nixl_agent("pages-source")
    memory = np.zeros(MOST, np.uint8)
    agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    there, length, _ = HEAD.unpack(receive(connection, HEAD.size))
    name = agent.add_remote_agent(receive(connection, length))
    name = name.decode() if isinstance(name, bytes) else name

    def rows(address, size, count):
        return np.stack([address + np.arange(count) * size, np.full(count, size), np.zeros(count, np.int64)], axis=1)

    print(f"{'bytes':>8} {'pages':>6} {'p50 us':>10} {'p99 us':>10} {'GB/s':>8}")
    for seed, (size, count) in enumerate(CASES):
        memory[: size * count] = pattern(size * count, seed)
        order = np.random.default_rng(seed).permutation(count)
        ours = agent.prep_xfer_dlist("", rows(memory.ctypes.data, size, count), "DRAM")
        theirs = agent.prep_xfer_dlist(name, rows(there, size, count), "DRAM")
        handle = agent.make_prepped_xfer("WRITE", ours, np.arange(count), theirs, order)
        took, until = [], time.perf_counter() + seconds
        while len(took) < 20 or time.perf_counter() < until:
            began = time.perf_counter()
            state = agent.transfer(handle)
            while state == "PROC":
                state = agent.check_xfer_state(handle)
            took.append(time.perf_counter() - began)
            if state != "DONE":
                raise SystemExit(f"nixl_pages: the transfer ended as {state}")
        agent.release_xfer_handle(handle)
        connection.sendall(HEAD.pack(size, count, seed))
        if receive(connection, 1) != b"1":
            raise SystemExit(f"nixl_pages: {count} pages of {size} bytes arrived wrong")
        took = sorted(took[5:])  # the first ones find the way
        median = statistics.median(took)
        p99 = took[min(len(took) - 1, int(0.99 * len(took)))]
        print(f"{size:8} {count:6} {1e6 * median:10.2f} {1e6 * p99:10.2f} {size * count / median / 1e9:8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each case")
    options = parser.parse_args()
    if not options.seconds > 0:
        parser.error("--seconds is more than 0")
    here, there = socket.socketpair()
    child = os.fork()  # before either has an agent
    if child == 0:
        here.close()
        serve(there)
        os._exit(0)
    there.close()
    try:
        measure(here, options.seconds)
    finally:
        here.close()
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
