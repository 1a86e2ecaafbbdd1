#include "demo.h"

namespace fairway::tool {

void add_demo(Tool& tool) {
  CLI::App& command = tool.add(Group::traffic, "demo", "Move bytes on this machine and print the measurements");
  command.footer(
      "Moves blocks of 8 B to 16 MiB between two engines of one process, checks every byte, and compares the time with "
      "memcpy. Then two processes connect; one is killed and started again. Takes a few seconds.");
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
