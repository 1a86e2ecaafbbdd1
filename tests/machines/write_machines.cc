// Writes the recorded machines and their golden outputs: write_machines FOLDER [H20-FOLDER]. regenerate.sh calls it.
#include <cstdio>
#include <fstream>

#include "machines/build_machines.h"
#include "machines/golden.h"
#include "topology/load.h"

namespace {

using namespace fairway;
using namespace fairway::topology;

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  return static_cast<bool>(file.flush());
}

template <class T>
bool write_snapshot_file(const std::string& folder, const std::string& name, const T& value) {
  const auto text = write_snapshot(value);
  if (!text) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), text.status().to_string().c_str());
    return false;
  }
  return write(folder + "/" + name + ".json", *text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: write_machines FOLDER [H20-FOLDER]\n");
    return 2;
  }
  const std::string folder = argv[1];
  bool ok = write_snapshot_file(folder, "dgx1v", machines::dgx1v()) &&
            write_snapshot_file(folder, "nvlink_bridge_pair", machines::nvlink_bridge_pair()) &&
            write_snapshot_file(folder, "mi250x", machines::mi250x()) &&
            write_snapshot_file(folder, "two_rail_hosts", machines::two_rail_hosts());
  if (argc > 2) {
    auto h20 = load(argv[2]);
    if (!h20) {
      std::fprintf(stderr, "%s\n", h20.status().to_string().c_str());
      return 1;
    }
    machines::add_h20_description(*h20);
    ok = ok && write_snapshot_file(folder, "h20", *h20);
  }
  for (const auto& name : machines::recorded(folder)) {
    const auto fabric = load_fabric(folder + "/" + name + ".json");
    if (!fabric) {
      std::fprintf(stderr, "%s\n", fabric.status().to_string().c_str());
      return 1;
    }
    ok = ok && write(folder + "/" + name + ".golden.txt", machines::golden(*fabric));
  }
  return ok ? 0 : 1;
}
