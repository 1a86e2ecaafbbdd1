"""Two engines of this process that are connected, as most tests want them."""

import unittest

import fairway


class Pair(unittest.TestCase):
    options = {}

    def setUp(self):
        joined = fairway.Loopback()
        self.alice = fairway.Engine(name="alice", loopback=joined, **self.options)
        self.bob = fairway.Engine(name="bob", loopback=joined, **self.options)
        self.addCleanup(self.alice.close)
        self.addCleanup(self.bob.close)
        self.peer = self.alice.connect(self.bob.address)
        self.regions = []

    def offer(self, memory, access):
        """bob's memory as alice sees it; registered until the test ends."""
        region = self.bob.register(memory, access)
        self.regions.append(region)
        self.bob.publish(f"region {len(self.regions)}", region)
        return self.peer.lookup(f"region {len(self.regions)}")
