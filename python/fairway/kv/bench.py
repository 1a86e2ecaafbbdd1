"""Moves the KV cache of a prompt between two processes of this host, as pages of real models, and says what it costs.

Beside it: a loop in one process that copies each page with NumPy, a socket with pickled arrays, and NIXL's shape of use (a
descriptor for each page) on fairway.nixl. p50 and p99 are of moving all pages; CPU seconds are of both processes, for each
GiB. Time to first token: a prefill that takes --layer-ms for each layer, until all pages are at the decoder; "layers": each
layer's pages leave once it is computed, else all leave at the end."""

import argparse
import json
import os
import pickle
import socket
import statistics
import subprocess
import sys
import time

import numpy as np

import fairway

from .shapes import SHAPES
from .target import HEAD

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Cache:
    """A prompt's pages here, [layer, plane, block], and where each goes."""

    def __init__(self, shape, tokens):
        self.shape = shape
        self.pages = shape.pages(tokens)
        chance = np.random.default_rng(1)
        self.bytes = chance.integers(0, 255, (self.pages, shape.page_bytes), dtype=np.uint8)
        self.here, self.there = np.arange(self.pages), chance.permutation(self.pages)
        self.of_layer = np.split(self.here, shape.layers)


class Target:
    """The other process, and a socket to it."""

    def __init__(self, cache):
        self.cache = cache
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.process = subprocess.Popen([sys.executable, "-m", "fairway.kv.target", str(cache.pages), str(cache.shape.page_bytes),
                                             str(listener.getsockname()[1])])
            listener.settimeout(1)
            for _ in range(60):
                try:
                    self.socket, _ = listener.accept()
                    break
                except TimeoutError:
                    if self.process.poll() is not None:
                        break
            else:
                self.process.kill()
            if self.process.poll() is not None:
                raise SystemExit(f"fairway kv bench: the other process ended with status {self.process.wait()} before it served")
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")
        self.address, self.metadata, self.memory = pickle.loads(self.reader.read(HEAD.unpack(self.reader.read(HEAD.size))[0]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait()


class Fairway:
    name = "Fairway, pages"

    def __init__(self, cache, target):
        self.cache = cache
        self.engine = fairway.Engine(name="kv-source")
        self.remote = self.engine.connect(target.address).lookup("pages")

    def start(self, which):
        cache = self.cache
        return self.engine.write_pages(cache.bytes, self.remote, which, cache.there[which], cache.shape.page_bytes)

    def move(self):
        self.start(self.cache.here).wait()

    def check(self):
        back = np.empty_like(self.cache.bytes)
        self.engine.read(back, self.remote).wait()
        if not np.array_equal(back[self.cache.there], self.cache.bytes):
            raise SystemExit("fairway kv bench: pages arrived that differ from those sent")

    def path(self):
        explained = self.engine.explain(fairway.Request.write(self.cache.bytes, self.remote))
        return ", ".join(link.name for link in explained.links if link.taken)

    def close(self):
        self.engine.close()


class Nixl:
    name = "NIXL's shape, a descriptor a page"

    def __init__(self, cache, target):
        import fairway.nixl as nixl

        self.agent = nixl.nixl_agent("kv-source")
        self.agent.register_memory([(cache.bytes.ctypes.data, cache.bytes.nbytes, 0, "")], "DRAM")
        self.agent.add_remote_agent(target.metadata)

        def rows(address):
            size = cache.shape.page_bytes
            return np.stack([address + np.arange(cache.pages) * size, np.full(cache.pages, size), np.zeros(cache.pages, np.int64)], axis=1)

        here = self.agent.prep_xfer_dlist("", rows(cache.bytes.ctypes.data), "DRAM")
        there = self.agent.prep_xfer_dlist("kv-target", rows(target.memory), "DRAM")
        self.handle = self.agent.make_prepped_xfer("WRITE", here, cache.here, there, cache.there)

    def move(self):
        state = self.agent.transfer(self.handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(self.handle)
        if state != "DONE":
            raise SystemExit(f"fairway kv bench: the transfer ended as {state}")

    def close(self):
        self.handle.release()


class Pickle:
    name = "socket with pickle"
    PART = 256  # pages of a message

    def __init__(self, cache, target):
        self.cache, self.target = cache, target

    def move(self):
        cache = self.cache
        for first in range(0, cache.pages, self.PART):
            data = pickle.dumps([(int(cache.there[page]), cache.bytes[page]) for page in range(first, min(first + self.PART, cache.pages))], protocol=5)
            self.target.socket.sendall(HEAD.pack(len(data)))
            self.target.socket.sendall(data)
            self.target.reader.read(1)

    def close(self):
        pass


class Memcpy:
    name = "copies by NumPy, one process"

    def __init__(self, cache, _):
        self.bytes, self.pairs = cache.bytes, list(zip(cache.here.tolist(), cache.there.tolist()))
        self.into = np.zeros_like(cache.bytes)

    def move(self):
        for page, place in self.pairs:
            self.into[place] = self.bytes[page]

    def close(self):
        pass


def measure(way, size, target, seconds):
    """p50 and p99 in seconds, CPU seconds of both processes for each GiB."""
    way.move()
    times, began = [], time.perf_counter()
    cpu = time.process_time() + cpu_seconds(target.process.pid)
    while len(times) < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        way.move()
        times.append(time.perf_counter() - start)
    cpu = time.process_time() + cpu_seconds(target.process.pid) - cpu
    times.sort()
    return times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)], cpu / (len(times) * size / 2**30)


def first_token(cache, layer_seconds, on_layer, at_the_end, times=3):
    """The median of seconds until the decoder has all pages. The sleep is the GPU's work: the CPU is free meanwhile."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        for number in range(cache.shape.layers):
            time.sleep(max(0.0, began + (number + 1) * layer_seconds - time.perf_counter()))
            on_layer(number)
        at_the_end()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def layer_by_layer(way, cache, layer_seconds):
    started = []

    def wait():
        while started:
            started.pop().wait()

    return first_token(cache, layer_seconds, lambda number: started.append(way.start(cache.of_layer[number])), wait)


def bench(shape, tokens, seconds, layer_seconds, say=print):
    """Says what it measures as it goes, and gives a row for each way."""
    rows = []
    cache = Cache(shape, tokens)
    size = cache.bytes.nbytes
    say(f"{shape.name}: {shape.about}; {tokens} tokens are {cache.pages} pages of {shape.page_bytes} bytes, {size / 1e6:.1f} MB; "
          f"computing takes {shape.layers * layer_seconds * 1e3:.0f} ms")
    say(f"  {'':34} {'MB/s':>7} {'p50 ms':>8} {'p99 ms':>8} {'CPU s/GiB':>10} {'first token ms':>15}", flush=True)
    with Target(cache) as target:
        for kind in (Memcpy, Pickle, Nixl, Fairway):
            way = kind(cache, target)
            p50, p99, cpu = measure(way, size, target, seconds)
            first = None if kind is Memcpy else first_token(cache, layer_seconds, lambda number: None, way.move) * 1e3
            words = "-" if first is None else f"{first:.1f}"
            rows.append({"model": shape.name, "way": way.name, "bytes": size, "mbs": size / p50 / 1e6, "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3,
                         "cpu_s_per_gib": cpu, "first_token_ms": first})
            row = f"{size / p50 / 1e6:7.0f} {p50 * 1e3:8.2f} {p99 * 1e3:8.2f} {cpu:10.3f}"
            say(f"  {way.name:34} {row} {words:>15}", flush=True)
            if kind is Fairway:
                by_layer = layer_by_layer(way, cache, layer_seconds) * 1e3
                rows.append({**dict.fromkeys(rows[-1]), "model": shape.name, "way": f"{way.name}, layer by layer", "bytes": size, "first_token_ms": by_layer})
                say(f"  {'  layers':34} {'':36} {by_layer:15.1f}", flush=True)
                way.check()
                path = way.path()
            way.close()
    say(f"  over {path}")
    return rows


class Parser(argparse.ArgumentParser):
    """An error is one line, as the tool's other commands print theirs."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')}; try '{self.prog} --help'\n")


def number_in(kind, least, most):
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no {'whole ' if kind is int else ''}number from {least:,} to {most:,}")
        return value

    return read


def model_name(text):
    if text not in SHAPES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(SHAPES)}")
    return text


def main(arguments):
    parser = Parser(prog="fairway kv bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=model_name, metavar="MODEL", action="append", help=f"of {', '.join(SHAPES)} (default: all); may be given again")
    parser.add_argument("--tokens", type=number_in(int, 1, 1 << 20), default=256, help="of the prompt (256)")
    parser.add_argument("--seconds", type=number_in(float, 0, 3600), default=1.0, help="to measure each way (1)")
    parser.add_argument("--layer-ms", type=number_in(float, 0, 10_000), default=1.0, help="what computing a layer takes (1)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, once all are measured")
    given = parser.parse_args(arguments)
    say = (lambda *words, **options: None) if given.json else print
    rows = []
    for name in given.model or SHAPES:
        rows += bench(SHAPES[name], given.tokens, given.seconds, given.layer_ms / 1e3, say)
    if given.json:
        print(json.dumps({"format": "fairway-kv-bench", "version": 1, "tokens": given.tokens, "layer_ms": given.layer_ms, "rows": rows}, indent=1))
    return 0
