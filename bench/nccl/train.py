#!/usr/bin/env python3
"""Trains a small transformer with DistributedDataParallel and with FSDP, with the plugin and without it.

  bench/nccl/train.py --ranks 4                 each way in turn; the losses must agree
Needs PyTorch. The order of adding gradients changes their last digits, so each step's loss must agree within 1e-4
(relative), and both ways must learn (the loss falls to 80 % or less).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def train(rank, world, way, steps, out):
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl")

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            y = self.norm1(x)
            mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device), 1)
            x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    class Model(nn.Module):
        def __init__(self, words=256, width=512, layers=6, heads=8, length=128):
            super().__init__()
            self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.head = nn.Linear(width, words)

        def forward(self, tokens):
            x = self.word(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    model = Model().cuda()
    if way == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    # A text that can be learned: this file's own bytes.
    text = torch.tensor(list(pathlib.Path(__file__).read_bytes()), dtype=torch.long)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step * world + rank)
        starts = torch.randint(0, len(text) - 129, (16,), generator=generator)
        batch = torch.stack([text[start : start + 129] for start in starts]).cuda()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    dist.destroy_process_group()
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(losses))


def launch(ranks, way, steps, plugin):
    env = dict(os.environ)
    if plugin:
        env.update(
            NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_IB_DISABLE="1", NCCL_NVLS_ENABLE="0", NCCL_NET="Fairway",
            NCCL_NET_GDR_LEVEL="SYS", NCCL_NET_PLUGIN=str(plugin), NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET",
        )
    with tempfile.TemporaryDirectory() as folder:
        out, log = os.path.join(folder, "losses"), os.path.join(folder, "log")
        children = []
        for rank in range(ranks):
            env.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
            env["NCCL_DEBUG_FILE"] = log + ".%p"
            command = [sys.executable, __file__, "--rank", str(rank), "--ranks", str(ranks), "--way", way]
            children.append(subprocess.Popen(command + ["--steps", str(steps), "--out", out], env=env))
        codes = [child.wait(timeout=1200) for child in children]
        if any(codes):
            sys.exit(f"{way}, {'with' if plugin else 'without'} the plugin: ranks ended with {codes}")
        said = "".join(each.read_text(errors="replace") for each in pathlib.Path(folder).glob("log.*"))
        if plugin and "via NET/Fairway" not in said:
            sys.exit(f"{way}: no channel used NET/Fairway")
        return json.loads(pathlib.Path(out).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--way", choices=["ddp", "fsdp"])
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--plugin", type=pathlib.Path, default=ROOT / "build/release/plugins/nccl_net/libnccl-net-fairway.so")
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return train(arguments.rank, arguments.ranks, arguments.way, arguments.steps, arguments.out)
    for way in [arguments.way] if arguments.way else ["ddp", "fsdp"]:
        without = launch(arguments.ranks, way, arguments.steps, None)
        through = launch(arguments.ranks, way, arguments.steps, arguments.plugin)
        apart = max(abs(a - b) / abs(a) for a, b in zip(without, through))
        print(f"{way}: loss {without[0]:.5f} -> {without[-1]:.5f} without, {through[0]:.5f} -> {through[-1]:.5f} through Fairway; "
              f"at most {apart:.2e} apart in {len(through)} steps", flush=True)
        if apart > 1e-4 or through[-1] > 0.8 * through[0]:
            sys.exit(f"{way}: the losses differ, or did not fall")


if __name__ == "__main__":
    main()
