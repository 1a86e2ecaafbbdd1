"""KV caches of real models, as pages of 16 tokens."""

import dataclasses

BLOCK = 16  # tokens of a page


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    about: str
    layers: int
    planes: int  # pages of a block in each layer: keys and values, or one of latents
    page_bytes: int

    def blocks(self, tokens):
        return -(-tokens // BLOCK)

    def pages(self, tokens):
        return self.layers * self.planes * self.blocks(tokens)


# Sizes of half precision, 2 bytes. Sources: the models' config.json (num_hidden_layers, num_key_value_heads, head_dim;
# kv_lora_rank 512 + qk_rope_head_dim 64).
SHAPES = {
    shape.name: shape
    for shape in (
        Shape("7B", "Llama 2 7B: 32 layers, 32 heads of 128", 32, 2, BLOCK * 32 * 128 * 2),
        Shape("70B", "Llama 3 70B, GQA: 80 layers, 8 heads of 128", 80, 2, BLOCK * 8 * 128 * 2),
        Shape("70B-tp4", "the same, one of 4 tensor-parallel ranks: 2 heads", 80, 2, BLOCK * 2 * 128 * 2),
        Shape("MLA", "DeepSeek V3: 61 layers, latents of 576", 61, 1, BLOCK * 576 * 2),
    )
}
