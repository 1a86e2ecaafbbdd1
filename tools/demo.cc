#include "demo.h"

namespace fairway::tool {

void add_demo(Tool& tool) {
  CLI::App& command = tool.add(Group::traffic, "demo", "Move bytes on this machine and print what was measured");
  command.footer(
      "Two engines of one process move blocks of 8 B to 16 MiB, every byte is checked, and memcpy of the same block "
      "stands beside it as the roof. Then two processes meet over loopback, one is killed, and comes back. Takes a few "
      "seconds.");
  tool.on_run(command, [&tool] {
    if (const Status status = demo_memory(tool); !status) return tool.fail(status);
    if (const Status status = demo_processes(tool); !status) return tool.fail(status);
    return Exit::done;
  });
  CLI::App& peer = tool.add_below(command, "peer", "Be the other process of the demo");
  peer.group("");  // the demo's own
  tool.on_run(peer, [&tool] { return demo_peer(tool); });
}

}  // namespace fairway::tool
