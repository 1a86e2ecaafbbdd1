"""The overhead of Python per write: python3 bench/python_cost.py [build folder] [transport]. Runs in turns with the C++ program
bench/write_cost.cc. Medians, in microseconds. Goals: 3 more for a 4 KiB write, 0.2 more per request of a batch of 1,000."""

import pathlib
import statistics
import subprocess
import sys
import time

build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev")
transport = sys.argv[2:3]
sys.path.insert(0, str(build / "python"))
import fairway  # noqa: E402
import numpy as np  # noqa: E402

ROUNDS, BATCH, SMALL = 5, 1000, 64


def in_cpp():
    words = subprocess.run([build / "bench/bench_write_cost", *transport], check=True, capture_output=True, text=True).stdout.split()
    return float(words[1]), float(words[3])


def in_python():
    options = {"transports": transport} if transport else {"loopback": fairway.Loopback()}
    with fairway.Engine(**options) as one, fairway.Engine(**options) as two:
        inbox = two.allocate(BATCH * SMALL + 4096, "w")
        two.publish("inbox", inbox)
        remote = one.connect(two.address).lookup("inbox")
        page, part = np.ones(4096, np.uint8), remote[0:4096]
        singles = []
        for _ in range(5000):
            began = time.perf_counter()
            one.write(page, part).wait()
            singles.append(time.perf_counter() - began)
        rows = np.ones((BATCH, SMALL), np.uint8)
        requests = [fairway.Request.write(rows[i], remote[i * SMALL : i * SMALL + SMALL]) for i in range(BATCH)]
        batches = []
        for _ in range(200):
            began = time.perf_counter()
            one.submit(requests).wait()
            batches.append((time.perf_counter() - began) / BATCH)
        pages = np.arange(10**5)
        memory = np.ones((10**5, 64), np.uint8)
        target = two.allocate(memory.nbytes, "w")
        two.publish("pages", target)
        far = one.connect(two.address).lookup("pages")
        one.write_pages(memory, far, pages, pages, 64).wait()
        posts = []
        for _ in range(10):
            began = time.perf_counter()
            transfer = one.write_pages(memory, far, pages, pages, 64)
            posts.append(time.perf_counter() - began)
            transfer.wait()
    return [statistics.median(values) * 1e6 for values in (singles, batches, posts)]


rounds = [(in_cpp(), in_python()) for _ in range(ROUNDS)]
for name, index, goal in (("4 KiB write and wait", 0, 3.0), ("each of a batch of 1,000", 1, 0.2)):
    cpp = statistics.median(one[0][index] for one in rounds)
    python = statistics.median(one[1][index] for one in rounds)
    print(f"{name:26} C++ {cpp:7.3f} us   Python {python:7.3f} us   more {python - cpp:6.3f} us   goal {goal} us")
print(f"{'post 10^5 pages':26} Python {statistics.median(one[1][2] for one in rounds) / 1000:.3f} ms   goal 10 ms")
