"""Ranks with a GPU each, on a driver that stands in for CUDA's where the build has one."""

import os
import unittest

import ranks

PRELUDE = (
    ranks.PRELUDE
    + """
import gc, pathlib, signal, weakref
import numpy as np
from standin_gpu import Gpu
gpu = Gpu(int(os.environ["RANK"]))
def array(values, name="<f4"):
    values = np.asarray(values)
    return gpu.part(gpu.allocate(values.nbytes, values.tobytes()), 0, values.nbytes, name, values.itemsize)
def seen(memory, dtype="f4"):
    return np.frombuffer(gpu.read(memory), dtype)
def together(*, gpu_options={}, timeout=60.0, **options):
    group = joined(timeout=timeout, transports=["shm", "cuda"], **options)
    try:
        group.use_gpu(group.rank, **{"messages": True, **gpu_options})
    except fairway.Unsupported as error:
        if "nvcc" not in str(error): raise
        print("skip", error)
        sys.exit(0)
    return group
def refused(kind, words, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        expect(words in str(error), words, str(error))
    else:
        raise AssertionError(words)
"""
)


@unittest.skipUnless(os.environ.get("FAIRWAY_CUDA_DRIVER"), "FAIRWAY_CUDA_DRIVER names no driver that stands in for CUDA's")
class GpuRanks(unittest.TestCase):
    def run_ranks(self, script, size, environment=None, timeout=180, **options):
        said = ranks.run(self, script, size, {"FAIRWAY_STANDIN_DEVICES": "4", **(environment or {})}, prelude=PRELUDE, timeout=timeout, **options)
        if said[0].startswith("skip"):
            self.skipTest(said[0])
        return said
