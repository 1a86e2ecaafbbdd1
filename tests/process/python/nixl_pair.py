"""Two agents of this process that know each other, as tests of fairway.nixl want them."""

import time
import unittest

import fairway.nixl as nixl
import numpy as np


def rows(array, count):
    """`count` equal pieces of an array as N x 3 descriptors."""
    size = array.nbytes // count
    return np.array([(array.ctypes.data + i * size, size, 0) for i in range(count)], np.uint64)


class AgentPair(unittest.TestCase):
    def setUp(self):
        self.one, self.two = self.agent("one"), self.agent("two")
        self.source, self.target = np.arange(4096, dtype=np.uint8), np.zeros(4096, np.uint8)
        self.one_regs = self.one.register_memory([(self.source.ctypes.data, 4096, 0, "")], "DRAM")
        self.two_regs = self.two.register_memory([(self.target.ctypes.data, 4096, 0, "")], "DRAM")
        self.assertEqual(self.one.add_remote_agent(self.two.get_agent_metadata()), b"two")
        self.two.add_remote_agent(self.one.get_agent_metadata())

    def agent(self, name, **config):
        made = nixl.nixl_agent(name, nixl.nixl_agent_config(**config))
        self.addCleanup(made.agent.engine.close)
        return made

    def run_to_end(self, agent, handle):
        state = agent.transfer(handle)
        deadline = time.monotonic() + 60
        while state == "PROC" and time.monotonic() < deadline:
            state = agent.check_xfer_state(handle)
        self.assertEqual(state, "DONE")

    def notif(self, agent, name, tag):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if agent.check_remote_xfer_done(name, tag):
                return
        self.fail(f"no notification {tag[:20]}")
