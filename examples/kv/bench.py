"""Moves pages of real models' KV caches between two processes of this host and says what it costs:
python3 examples/kv/bench.py [--pages N] [--seconds S] [--model NAME]

Beside it a memcpy of each page, a socket with pickled arrays, and NIXL's shape of use (a descriptor for each page) on fairway.nixl.
A page is one layer's keys or values of 16 tokens; of MLA one layer's latents."""

import argparse
import os
import pickle
import socket
import struct
import subprocess
import sys
import time

import fairway
import numpy as np

# name: (bytes of a page, what it is)
MODELS = {
    "7B": (16 * 32 * 128 * 2, "Llama 2 7B: 32 heads of 128, half precision"),
    "70B": (16 * 8 * 128 * 2, "Llama 3 70B, GQA: 8 heads of 128, half precision"),
    "70B-tp4": (16 * 2 * 128 * 2, "the same, a quarter of the heads"),
    "MLA": (16 * 576 * 2, "DeepSeek V3: 576-wide latents, half precision"),
}


def measure(name, bytes_each, move, seconds):
    """Repeats move() for that long; p50 and p99 of its time, MB/s at p50, CPU seconds of this process per GiB."""
    move()
    times, began, cpu = [], time.perf_counter(), time.process_time()
    while len(times) < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        move()
        times.append(time.perf_counter() - start)
    cpu = (time.process_time() - cpu) / (len(times) * bytes_each / 2**30)
    times.sort()
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
    print(f"  {name:34} {bytes_each / p50 / 1e6:9.0f} MB/s   p50 {p50 * 1e3:8.3f} ms   p99 {p99 * 1e3:8.3f} ms   {cpu:6.3f} CPU s/GiB", flush=True)


def target():
    """The other process: memory to write into, and a socket that takes pickles."""
    pages, page_bytes, port = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    import fairway.nixl as nixl

    engine = fairway.Engine()
    region = engine.allocate(pages * page_bytes, "w")
    engine.publish("pages", region)
    agent = nixl.nixl_agent("target")
    memory = np.zeros(pages * page_bytes, np.uint8)
    agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    connection = socket.create_connection(("127.0.0.1", port))
    told = pickle.dumps((engine.address, agent.get_agent_metadata(), memory.ctypes.data))
    connection.sendall(struct.pack("<I", len(told)) + told)
    reader = connection.makefile("rb")
    while head := reader.read(8):
        for index, page in pickle.loads(reader.read(struct.unpack("<Q", head)[0])):
            memory[index * page_bytes : (index + 1) * page_bytes] = page
        connection.sendall(b"k")


def bench(name, pages, seconds):
    page_bytes, what = MODELS[name]
    print(f"{name}: {pages} pages of {page_bytes} bytes ({what})")
    source = np.random.default_rng(1).integers(0, 255, (pages, page_bytes), dtype=np.uint8)
    order, places = np.random.default_rng(2).permutation(pages), np.arange(pages)
    into = np.zeros_like(source)

    def by_memcpy():
        for index, place in zip(order.tolist(), places.tolist()):
            into[place] = source[index]

    measure("memcpy of each page, one process", source.nbytes, by_memcpy, seconds)
    listener = socket.create_server(("127.0.0.1", 0))
    child = subprocess.Popen([sys.executable, __file__, "--target", str(pages), str(page_bytes), str(listener.getsockname()[1])])
    try:
        listener.settimeout(30)
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        address, metadata, far = pickle.loads(reader.read(struct.unpack("<I", reader.read(4))[0]))

        def by_pickle():
            for first in range(0, pages, 256):
                data = pickle.dumps([(place, source[order[place]]) for place in range(first, min(first + 256, pages))], protocol=5)
                connection.sendall(struct.pack("<Q", len(data)))
                connection.sendall(data)
                reader.read(1)

        measure("a socket with pickle", source.nbytes, by_pickle, seconds)
        with fairway.Engine() as engine:
            remote = engine.connect(address).lookup("pages")
            measure("Fairway, one request of pages", source.nbytes,
                    lambda: engine.write_pages(source, remote, order, places, page_bytes).wait(), seconds)
            link = [link.name for link in engine.explain(fairway.Request.write(source, remote)).links if link.taken]
        by_nixl(source, metadata, far, order, page_bytes, seconds)
        print(f"  over {', '.join(link)}")
        connection.shutdown(socket.SHUT_RDWR)
        child.wait(10)
    finally:
        child.kill()


def by_nixl(source, metadata, far, order, page_bytes, seconds):
    import fairway.nixl as nixl

    agent = nixl.nixl_agent("source")
    agent.register_memory([(source.ctypes.data, source.nbytes, 0, "")], "DRAM")
    agent.add_remote_agent(metadata)

    def rows(address):
        return np.stack([address + np.arange(len(source)) * page_bytes, np.full(len(source), page_bytes), np.zeros(len(source), np.int64)], axis=1)

    here, there = agent.prep_xfer_dlist("", rows(source.ctypes.data), "DRAM"), agent.prep_xfer_dlist("target", rows(far), "DRAM")
    handle = agent.make_prepped_xfer("WRITE", here, order, there, np.arange(len(source)))

    def post():
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)

    measure("fairway.nixl, a descriptor a page", source.nbytes, post, seconds)
    handle.release()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--target"]:
        target()
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--model", choices=MODELS, action="append")
    given = parser.parse_args()
    if given.pages < 1 or given.seconds < 0:
        parser.error("--pages is at least 1, --seconds at least 0")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for model in given.model or MODELS:
        bench(model, given.pages, given.seconds)
