"""KV caches: `python -m fairway.kv bench`, also as `fairway kv bench`. examples/kv is a cache that moves."""
