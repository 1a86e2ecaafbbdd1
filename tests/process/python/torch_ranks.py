"""Ranks whose groups of the backend "fairway" have GPU tensors: on a driver that stands in for CUDA's, with stand-ins for torch's
tensors and streams."""

import importlib.util
import os
import unittest

import ranks

HAVE = importlib.util.find_spec("torch") is not None

PRELUDE = (
    ranks.PRELUDE
    + """
import datetime, signal, types, warnings
import numpy as np
import torch, torch.distributed as dist
import fairway.torch
from fairway.process_group import FairwayProcessGroup
from fairway.process_group_gpu import GpuSide
from standin_gpu import Gpu
import standin_torch
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cuda = standin_torch.Cuda(Gpu(rank), rank, os.environ.get("SHOWN"))
T = lambda values, dtype="float32": standin_torch.Tensor(cuda, np.asarray(values, dtype))
same = np.testing.assert_array_equal
SUM = dist.ReduceOp.SUM
class Premul:
    def __init__(self, factor):
        self.factor = factor
    def __eq__(self, op):
        return op == dist.ReduceOp.PREMUL_SUM
    def __getstate__(self):
        return dist.ReduceOp.PREMUL_SUM, self.factor
def options(**given):
    return types.SimpleNamespace(timeout=datetime.timedelta(milliseconds=-1), reduceOp=given.pop("op", SUM), **given)
def grouped(communicator):
    group = FairwayProcessGroup(communicator)
    group.gpu = GpuSide(communicator, cuda)
    return group
def begin(timeout=20.0):
    return grouped(joined(timeout, transports=["shm", "cuda"]))
"""
    + ranks.FAILS
)


@unittest.skipUnless(HAVE and os.environ.get("FAIRWAY_CUDA_DRIVER"), "torch is not installed, or FAIRWAY_CUDA_DRIVER names no stand-in")
class TorchRanks(unittest.TestCase):
    def run_ranks(self, script, size, environment=None, **options):
        return ranks.run(self, script, size, {"FAIRWAY_STANDIN_DEVICES": "4", **(environment or {})}, prelude=PRELUDE, timeout=120, **options)
