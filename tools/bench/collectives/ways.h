#pragma once

namespace CLI {
class App;
}
namespace fairway::tool {
class Tool;
// `fairway bench ways`: the table by which collectives on GPU memory go by Fairway's kernels or by NCCL.
void add_bench_ways(Tool& tool, CLI::App& bench);
}  // namespace fairway::tool
