// Writes the golden texts of every recorded machine: write_golden FOLDER-OF-MACHINES FOLDER-OF-GOLDEN-TEXTS.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "golden_text.h"
#include "topology/load.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc != 3) {
    std::fprintf(stderr, "usage: write_golden FOLDER-OF-MACHINES FOLDER-OF-GOLDEN-TEXTS\n");
    return 2;
  }
  fs::create_directories(argv[2]);
  for (const auto& entry : fs::directory_iterator(argv[1])) {
    if (entry.path().extension() != ".json") continue;
    const auto fabric = fairway::topology::load_fabric(entry.path().string());
    if (!fabric) {
      std::fprintf(stderr, "%s\n", fabric.status().to_string().c_str());
      return 1;
    }
    std::ofstream(fs::path(argv[2]) / (entry.path().stem().string() + ".txt"))
        << fairway::render::golden_text(*fabric.operator->());
  }
  return 0;
}
