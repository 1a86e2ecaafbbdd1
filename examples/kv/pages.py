"""A paged KV cache: blocks of 16 tokens, and for each tensor-parallel rank memory of its own with its share of the heads."""

import collections
import hashlib

import numpy as np

from model import BLOCK, DIM, HEADS, LAYERS


def shape_of(blocks, ranks):
    """One rank's memory: layer, key or value, block, token, head, element."""
    return (LAYERS, 2, blocks, BLOCK, HEADS // ranks, DIM)


class Pages:
    """The memory of all ranks of one process, from an engine or, without one, NumPy's."""

    def __init__(self, blocks, ranks=1, engine=None, access=""):
        self.blocks, self.ranks = blocks, ranks
        shape = shape_of(blocks, ranks)
        size = int(np.prod(shape)) * 4
        self.regions = [engine.allocate(size, access) for _ in range(ranks)] if engine else []
        memories = [memoryview(region) for region in self.regions] or [bytearray(size) for _ in range(ranks)]
        self.arrays = [np.frombuffer(memory, np.float32).reshape(shape) for memory in memories]
        self.free = collections.deque(range(blocks))


class Cache:
    """One request's keys and values: its block table over the pages."""

    def __init__(self, pages, table):
        self.pages, self.table = pages, np.array(table, np.int64)

    def put(self, layer, start, keys, values):
        places = np.arange(start, start + len(keys))
        blocks, inside = self.table[places // BLOCK], places % BLOCK
        share = HEADS // self.pages.ranks
        for rank, array in enumerate(self.pages.arrays):
            heads = slice(rank * share, (rank + 1) * share)
            array[layer, 0, blocks, inside] = keys[:, heads]
            array[layer, 1, blocks, inside] = values[:, heads]

    def get(self, layer, count):
        blocks = self.table[: (count + BLOCK - 1) // BLOCK]
        both = np.concatenate([array[layer][:, blocks] for array in self.pages.arrays], axis=3)
        both = np.ascontiguousarray(both.reshape(2, len(blocks) * BLOCK, HEADS, DIM)[:, :count])
        return both[0], both[1]


def names_of(prompt):
    """A name for each whole block before the last token, which is always computed: a hash of all tokens up to its end."""
    digest = hashlib.sha256()
    for end in range(BLOCK, len(prompt), BLOCK):
        digest.update(bytes(prompt[end - BLOCK : end]))
        yield digest.digest()[:24]


class PrefixCache:
    """Which blocks of earlier prompts are still here. Blocks are shared while used, and evicted, oldest first, when not."""

    def __init__(self, pages):
        self.pages = pages
        self.known = collections.OrderedDict()  # name -> block
        self.names = {}
        self.users = collections.Counter()

    def take(self, prompt, more):
        """(block table for the prompt and `more` tokens, how many leading blocks are here already), or None: full."""
        needed = (len(prompt) + more + BLOCK - 1) // BLOCK
        table = []
        for name in names_of(prompt):
            if name not in self.known:
                break
            self.known.move_to_end(name)
            table.append(self.known[name])
        for block in table:
            self.users[block] += 1
        here = len(table)
        while len(table) < needed:
            if not self.pages.free and not self._evict():
                self.give_back(table)
                return None
            table.append(self.pages.free.popleft())
            self.users[table[-1]] = 1
        return table, here

    def remember(self, prompt, table):
        """The prompt's pages have arrived: later prompts may use them."""
        for name, block in zip(names_of(prompt), table):
            if name not in self.known and block not in self.names:
                self.known[name] = block
                self.names[block] = name

    def give_back(self, table):
        for block in table:
            self.users[block] -= 1
            if self.users[block] == 0 and block not in self.names:
                self.pages.free.append(block)

    def _evict(self):
        for name, block in self.known.items():
            if self.users[block] == 0:
                del self.known[name], self.names[block]
                self.pages.free.append(block)
                return True
        return False
