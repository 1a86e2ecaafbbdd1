"""The connector beside vLLM's own classes, taken from its source text, so that neither PyTorch nor a GPU is needed: of an
installed vLLM, or of its wheel: pip download --no-deps vllm, then FAIRWAY_VLLM_WHEEL=vllm-0.33.0-...whl."""

import ast
import importlib.util
import inspect
import os
import pathlib
import types
import unittest
import zipfile

from fairway.vllm import FairwayConnector
from fairway.vllm.base import KVConnectorRole
from fairway.vllm.scheduler import _COMPUTED

import vllm_engine

BASE = "vllm/distributed/kv_transfer/kv_connector/v1/base.py"
PRELUDE = """from __future__ import annotations
import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, overload
"""


def source():
    """How to read a file of vLLM's; None where there is no vLLM."""
    wheel = os.environ.get("FAIRWAY_VLLM_WHEEL")
    if wheel:
        return lambda name: zipfile.ZipFile(wheel).read(name).decode()
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        return None
    return lambda name: (pathlib.Path(found.origin).parents[1] / name).read_text(encoding="utf-8")


READ = source()


def vllms(file, name):
    """A class of vLLM's, by its own text."""
    [node] = [n for n in ast.walk(ast.parse(READ(file))) if isinstance(n, ast.ClassDef) and n.name == name]
    return node


def made(*places):
    """Those classes, made from their text, one after the other."""
    names = {}
    for file, name in places:
        exec(PRELUDE + ast.unparse(vllms(file, name)), names)  # pylint: disable=exec-used
    return [names[name] for _, name in places]


@unittest.skipIf(READ is None, "no vLLM: neither installed nor named by FAIRWAY_VLLM_WHEEL")
class VllmsOwn(unittest.TestCase):
    def test_each_call_takes_what_vllm_gives_it(self):
        for call in vllms(BASE, "KVConnectorBase_V1").body:
            if not isinstance(call, ast.FunctionDef) or call.name.startswith("__"):
                continue
            ours = FairwayConnector.__dict__.get(call.name)
            required = any(ast.unparse(one) == "abstractmethod" for one in call.decorator_list)
            self.assertFalse(required and ours is None, f"vLLM requires {call.name}")
            if ours is not None:
                spec = inspect.getfullargspec(ours)
                self.assertEqual(spec.args, [one.arg for one in call.args.args], call.name)
                self.assertEqual(spec.varkw is not None, call.args.kwarg is not None, call.name)

    def test_the_ends_of_requests_are_vllms(self):
        [status] = made(("vllm/v1/request.py", "RequestStatus"))
        self.assertLessEqual(set(_COMPUTED), set(status.__members__))
        self.assertLessEqual(set(vllm_engine.RequestStatus.__members__), set(status.__members__))

    def test_a_prefix_that_is_here_is_never_written(self):
        block, blocks = made(("vllm/v1/core/kv_cache_utils.py", "KVCacheBlock"), ("vllm/v1/core/kv_cache_manager.py", "KVCacheBlocks"))
        config = types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=16),
                                       kv_transfer_config=types.SimpleNamespace(engine_id="d", kv_connector_extra_config={}))
        for here in range(4):
            connector = FairwayConnector(config, KVConnectorRole.SCHEDULER, types.SimpleNamespace(num_blocks=64))
            group = [block(7 + i) for i in range(5)]  # four of the prompt's, one of look-ahead slots
            for one in group[:here]:
                one.set_block_hash(b"hash")
            request = types.SimpleNamespace(request_id="r", num_prompt_tokens=60, kv_transfer_params={
                "do_remote_prefill": True, "remote_block_ids": [101, 102, 103, 104], "remote_block_size": 16, "remote_engine_id": "p",
                "remote_request_id": "r", "remote_addresses": ["127.0.0.1:1"], "remote_slot": 0, "remote_token": 1})
            tokens, later = connector.get_num_new_matched_tokens(request, 16 * here)
            self.assertEqual((tokens, later), (60 - 16 * here, True))
            connector.update_state_after_alloc(request, blocks((group,)), tokens)
            [load] = connector.build_connector_meta(types.SimpleNamespace(preempted_req_ids=None)).loads
            self.assertEqual(load.local_blocks, blocks((group[:4],)).get_unhashed_block_ids())
            self.assertEqual(load.remote_blocks, [101, 102, 103, 104][here:])


if __name__ == "__main__":
    unittest.main()
