"""Ranks of a test: processes of their own, or threads of this one, each with an engine."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import fairway

PRELUDE = """
import os, sys, time
import fairway
def joined(timeout=20.0, **options):
    options.setdefault("progress", "caller")
    return fairway.Communicator.join(timeout=timeout, **options)
def expect(condition, *what):
    if not condition:
        raise AssertionError(repr(what))
"""


# For a prelude that has expect().
FAILS = """
def fails(kind, words, call):
    try:
        call()
    except kind as error:
        expect(words in str(error), words, str(error))
        return error
    expect(False, "no error", words)
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(script, size, environment=None, prelude=PRELUDE, before=lambda rank: []):
    """Starts `size` processes with RANK and WORLD_SIZE that run the script; gives them. before(rank): a command in front."""
    base = {**os.environ, "WORLD_SIZE": str(size), "FAIRWAY_JOB": f"test {os.getpid()}", **(environment or {})}
    source = prelude + textwrap.dedent(script)
    return [
        subprocess.Popen(
            [*before(rank), sys.executable, "-c", source], env={**base, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(size)
    ]


def end(processes, timeout=60):
    """What each ended with: [(exit status, output)]. Those that do not end in time are killed."""
    deadline = time.monotonic() + timeout
    ends = []
    for process in processes:
        try:
            said, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[0] + "\n(did not end)"
        ends.append((process.returncode, said))
    return ends


def run(test, script, size, environment=None, killed=(), timeout=60, **how):
    """Runs the ranks and expects all to end well, but those that are to be killed."""
    ends = end(start(script, size, environment, **how), timeout)
    for rank, (status, _) in enumerate(ends):
        test.assertEqual(status, -signal.SIGKILL if rank in killed else 0, "\n".join(f"rank {i} ended with {s}: {said}" for i, (s, said) in enumerate(ends)))
    return [said for _, said in ends]


def threads(body, size, **options):
    """body(communicator) in `size` threads, each a rank with an engine; gives what each returned. Raises the first error."""
    joined = fairway.Loopback()
    engines = [fairway.Engine(loopback=joined, transports=["loopback"]) for _ in range(size)]
    addresses = [engine.address for engine in engines]
    outcomes, failed = [None] * size, []

    def one(rank):
        try:
            with fairway.Communicator(engines[rank], rank, addresses, **options) as group:
                outcomes[rank] = body(group)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    running = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for engine in engines:
        engine.close()
    if failed:
        raise failed[0]
    return outcomes
