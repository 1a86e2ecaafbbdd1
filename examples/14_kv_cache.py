"""Prefill and decode: a prompt's KV pages move layer by layer, while the next layer is computed. Without an argument: the
decoder, which has free pages. With its address: the prefill side. Needs NumPy. docs/tutorial/14-kv-cache.md explains it."""

import sys
import time

import fairway
import numpy

LAYERS, PAGES, MOVED = 16, 256, 32  # MOVED: pages of this prompt in each layer
TOKENS, WIDTH = 16, 512  # of a page: tokens, and what a layer keeps of each (keys and values together)
PAGE_BYTES = TOKENS * WIDTH * 4
REQUEST = 11


def keys_and_values(layer):
    """Stands in for the model: what one layer computes for the whole prompt."""
    return numpy.random.default_rng(layer).random((MOVED, TOKENS, WIDTH), numpy.float32)


def random_pages(seed):
    """Where there was room: a block table."""
    return numpy.random.default_rng(seed).permutation(PAGES)[:MOVED].astype(numpy.uint64)


def cache_of(engine, access):
    region = engine.allocate(LAYERS * PAGES * PAGE_BYTES, access)
    return region, numpy.frombuffer(region, numpy.float32).reshape(LAYERS, PAGES, TOKENS, WIDTH)


def decode():
    engine = fairway.Engine()
    region, cache = cache_of(engine, "w")
    table = random_pages(seed=2)
    offer = engine.register(table, "r")
    engine.publish("cache", region)
    engine.publish("table", offer)
    print(engine.address, flush=True)
    whole = 0
    for layer in range(LAYERS):
        engine.wait_counter(REQUEST, layer + 1, timeout=60)  # as soon as a layer is here, it could be used
        whole += (cache[layer, table] == keys_and_values(layer)).all()
    print(f"request {REQUEST}: {whole} of {LAYERS} layers are whole, {MOVED} pages each")
    engine.close()
    return 0 if whole == LAYERS else 1


def prefill(address):
    engine = fairway.Engine()
    region, cache = cache_of(engine, "")
    mine, theirs = random_pages(seed=1), numpy.zeros(MOVED, numpy.uint64)
    peer = engine.connect(address)
    far = peer.lookup("cache")
    engine.read(theirs, peer.lookup("table")).wait()  # the decoder's block table

    transfers, last = [], 0.0
    for layer in range(LAYERS):
        cache[layer, mine] = keys_and_values(layer)
        last = time.monotonic()
        first = numpy.uint64(layer * PAGES)  # pages are counted from the start of a region
        # Nothing waits here: the pages leave while the next layer is computed.
        counted = fairway.counter(REQUEST)
        transfers.append(engine.write_pages(region, far, first + mine, first + theirs, PAGE_BYTES, notify=counted))
    moved = sum(transfer.wait() for transfer in transfers)
    print(f"{moved} bytes in {len(transfers)} transfers, the last ended {1e3 * (time.monotonic() - last):.1f} ms after its layer")
    engine.close()
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 2 or any(word.startswith("-") for word in sys.argv[1:]):
        sys.exit(f"usage: {sys.argv[0]} [ADDRESS]")
    sys.exit(prefill(sys.argv[1]) if len(sys.argv) > 1 else decode())
