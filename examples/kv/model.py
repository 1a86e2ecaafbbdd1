"""A small GPT in NumPy: weights from a seed, keys and values in pages. The same arithmetic in one process or in many."""

import numpy as np

LAYERS, HEADS, DIM, VOCABULARY, BLOCK = 4, 4, 16, 256, 16  # BLOCK: tokens of a page
HIDDEN = HEADS * DIM
MOST_TOKENS = 512


class Model:
    def __init__(self, seed=24):
        chance = np.random.default_rng(seed)

        def weights(*shape):
            return (chance.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

        self.tokens = weights(VOCABULARY, HIDDEN) * 16
        self.places = weights(MOST_TOKENS, HIDDEN) * 8
        self.layers = [
            {name: weights(HIDDEN, width) for name, width in (("q", HIDDEN), ("k", HIDDEN), ("v", HIDDEN), ("out", HIDDEN), ("up", 4 * HIDDEN))}
            | {"down": weights(4 * HIDDEN, HIDDEN)}
            for _ in range(LAYERS)
        ]

    @staticmethod
    def _norm(x):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)

    def forward(self, tokens, start, cache):
        """Yields each layer's number once its keys and values are in the cache; returns the next token.

        Every block is computed by itself, as chunks of a long prompt are: so its bits do not depend on what follows it, and
        a block that another prompt left in a cache is the very one that would be computed here."""
        ends = range(start - start % BLOCK + BLOCK, start + len(tokens) + BLOCK, BLOCK)
        cuts = [start, *(min(end, start + len(tokens)) for end in ends)]
        spans = [(first, last) for first, last in zip(cuts, cuts[1:]) if last > first]
        rows = [self.tokens[tokens[first - start : last - start]] + self.places[first:last] for first, last in spans]
        for number, layer in enumerate(self.layers):
            queries = []
            for (first, last), x in zip(spans, rows):
                h = self._norm(x)
                q, k, v = ((h @ layer[name]).reshape(last - first, HEADS, DIM) for name in "qkv")
                cache.put(number, first, k, v)
                queries.append(q)
            yield number
            rows = [self._rest(layer, x, q, *cache.get(number, last), first, last) for (first, last), x, q in zip(spans, rows, queries)]
        return int(np.argmax(self._norm(rows[-1][-1]) @ self.tokens.T))

    def _rest(self, layer, x, q, keys, values, first, last):
        """Attention and what is behind it, of one block."""
        seen = np.arange(last)[None, :] <= np.arange(first, last)[:, None]
        scores = np.matmul(q.transpose(1, 0, 2), keys.transpose(1, 2, 0)) / np.float32(np.sqrt(DIM))
        scores = np.where(seen, scores, np.float32(-1e30))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = np.matmul(scores, values.transpose(1, 0, 2)).transpose(1, 0, 2).reshape(last - first, HIDDEN)
        x = x + mixed @ layer["out"]
        return x + np.maximum(self._norm(x) @ layer["up"], 0) @ layer["down"]

    def prefill(self, tokens, cache, on_layer=lambda number: None, start=0):
        """Keys and values before `start` are in the cache already."""
        return self._run(self.forward(tokens[start:], start, cache), on_layer)

    def decode(self, token, place, cache):
        return self._run(self.forward([token], place, cache), lambda number: None)

    @staticmethod
    def _run(layers, on_layer):
        while True:
            try:
                on_layer(next(layers))
            except StopIteration as end:
                return end.value

    def generate(self, prompt, count, cache):
        """All of it in one process: what every other way must equal bit for bit."""
        out = [self.prefill(prompt, cache)]
        while len(out) < count:
            out.append(self.decode(out[-1], len(prompt) + len(out) - 1, cache))
        return out
