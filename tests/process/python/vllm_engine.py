"""A driver that plays vLLM's scheduler and worker for the connector, in their order of calls, with vLLM's names."""

import enum
import os
import pathlib
import signal
import time
import types
import unittest

import numpy as np
from fairway.vllm import FairwayConnector
from fairway.vllm.base import KVConnectorRole

BLOCKS, BLOCK = 64, 16

try:
    from vllm.v1.request import RequestStatus  # type: ignore
except ImportError:

    class RequestStatus(enum.IntEnum):
        """vLLM's, vllm/v1/request.py at commit 003df2961dd8, as far as a connector looks."""

        WAITING = enum.auto()
        RUNNING = enum.auto()
        PREEMPTED = enum.auto()
        FINISHED_STOPPED = enum.auto()
        FINISHED_LENGTH_CAPPED = enum.auto()
        FINISHED_ABORTED = enum.auto()
        FINISHED_IGNORED = enum.auto()
        FINISHED_ERROR = enum.auto()


def kv_blocks(ids, hashed=()):
    """vLLM's KVCacheBlocks: one tuple of KVCacheBlocks a group; a block of the prefix cache has a hash."""
    return types.SimpleNamespace(blocks=(tuple(types.SimpleNamespace(block_id=i, block_hash=b"hash" if i in hashed else None) for i in ids),))


class Engine:
    """One vLLM engine as a connector sees it: a scheduler, one worker, a KV cache of two layers, blocks."""

    def __init__(self, name, **extra):
        config = types.SimpleNamespace(
            cache_config=types.SimpleNamespace(block_size=BLOCK),
            kv_transfer_config=types.SimpleNamespace(engine_id=name, kv_connector_extra_config={"name": name, "peer_timeout": 10.0, **extra}))
        cache = types.SimpleNamespace(num_blocks=BLOCKS)
        self.scheduler = FairwayConnector(config, KVConnectorRole.SCHEDULER, cache)
        self.worker = FairwayConnector(config, KVConnectorRole.WORKER, cache)
        self.caches = {"layers.0": np.zeros((2, BLOCKS, BLOCK, 8), np.float32), "layers.1": np.zeros((BLOCKS, 2, BLOCK, 8), np.float32)}
        self.worker.worker.CONNECT_SECONDS = self.worker.worker.CLAIM_SECONDS = 30.0  # a busy machine is no frozen peer
        self.worker.register_kv_caches(self.caches)
        self.scheduler.set_xfer_handshake_metadata({0: self.worker.get_handshake_metadata()})
        self.free = list(range(BLOCKS))
        self.held = {}  # request -> blocks that wait for the connector
        self.loading = {}  # request -> (request, blocks)
        self.ended = set()  # for the next get_finished
        self.loaded, self.failed = {}, {}

    def blocks(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        assert len(taken) == count, "the engine is out of blocks"
        return taken

    def fill(self, blocks, value):
        self.caches["layers.0"][:, blocks] = value
        self.caches["layers.1"][blocks] = value + 1

    def holds(self, blocks, value):
        return (self.caches["layers.0"][:, blocks] == value).all() and (self.caches["layers.1"][blocks] == value + 1).all()

    def prefill(self, name, tokens, value):
        """A whole prefill: what the router hands to a decoder."""
        request = self.request(name, tokens, {"do_remote_decode": True})
        assert self.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
        blocks = self.blocks(-(-tokens // BLOCK))
        self.scheduler.update_state_after_alloc(request, kv_blocks(blocks), 0)
        self.fill(blocks, value)
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        waits, params = self.scheduler.request_finished(request, blocks)
        assert waits
        self.held[name] = blocks
        self.step()
        return params

    @staticmethod
    def request(name, tokens, params):
        return types.SimpleNamespace(request_id=name, num_prompt_tokens=tokens, status=RequestStatus.WAITING, kv_transfer_params=dict(params))

    def decode(self, name, tokens, params, cached=(), more=0):
        """Admits a request whose pages are elsewhere; `cached`: blocks that this engine's prefix cache has of its start, `more`: of
        look-ahead slots behind the prompt's."""
        request = self.request(name, tokens, params)
        found = len(cached) * BLOCK
        count, later = self.scheduler.get_num_new_matched_tokens(request, found)
        assert (count, later) == (tokens - found, True)
        blocks = self.blocks(-(-tokens // BLOCK) - len(cached) + more)
        self.scheduler.update_state_after_alloc(request, kv_blocks([*cached, *blocks], cached), count)
        self.loading[name] = blocks
        return blocks

    def abort(self, name):
        self.ended.add(name)

    def step(self, preempted=()):
        """One step of the engine, as vLLM's scheduler and model runner make it."""
        metadata = self.scheduler.build_connector_meta(types.SimpleNamespace(preempted_req_ids=set(preempted)))
        self.worker.handle_preemptions(metadata)
        self.worker.bind_connector_metadata(metadata)
        self.worker.start_load_kv(None)
        for layer in self.caches:
            self.worker.wait_for_layer_load(layer)
            self.worker.save_kv_layer(layer, self.caches[layer], None)
        self.worker.wait_for_save()
        ended, self.ended = self.ended, set()
        sent, received = self.worker.get_finished(ended)
        errors = self.worker.get_block_ids_with_load_errors()
        self.worker.clear_connector_metadata()
        self.scheduler.update_connector_output(types.SimpleNamespace(finished_sending=sent, finished_recving=received))
        for name in sent or ():
            self.free += self.held.pop(name)
        for name in received or ():
            blocks = self.loading.pop(name)
            (self.failed if errors & set(blocks) else self.loaded)[name] = blocks

    def release(self, name):
        """The request has made its tokens, or was computed anew."""
        self.free += (self.loaded if name in self.loaded else self.failed).pop(name)

    def shutdown(self):
        self.worker.shutdown()


class ConnectorTest(unittest.TestCase):
    def engine(self, name, **extra):
        made = Engine(name, **extra)
        self.addCleanup(made.shutdown)
        return made

    def steps(self, until, *engines, seconds=60):
        """All well below the 480 seconds of a lease (unclaimed_seconds)."""
        deadline = time.monotonic() + seconds
        while not until():
            self.assertLess(time.monotonic(), deadline, "a request did not end")
            for engine in engines:
                engine.step()
            time.sleep(0.0005)

    def freeze(self, pid):
        """Its threads go on until one of them has seen the signal."""
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while any(stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")):
            self.assertLess(time.monotonic(), deadline, "the process goes on")
            time.sleep(0.001)

    def assert_nothing_left(self, *engines):
        for engine in engines:
            self.assertEqual(sorted(engine.free), list(range(BLOCKS)))
            self.assertEqual((engine.held, engine.loading), ({}, {}))
            self.assertEqual((engine.worker.worker.loading, engine.worker.worker.offers), ({}, {}))
            self.assertEqual(len(engine.scheduler.scheduler.free), 4096)
