// Fuzz targets in a build without libFuzzer: `corpora <target> <folder> ...` feeds it every file of the folders.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

using Target = int(const std::uint8_t* data, std::size_t size_bytes);
#define CORPUS(name) extern "C" Target input_of_##name;
#include "corpora.inc"
#undef CORPUS

namespace {

Target* find(std::string_view wanted) {
#define CORPUS(name) \
  if (wanted == #name) return input_of_##name;
#include "corpora.inc"
#undef CORPUS
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  Target* const target = argc > 1 ? find(argv[1]) : nullptr;
  if (target == nullptr) {
    std::fprintf(stderr, "corpora: which target? These are here:\n");
#define CORPUS(name) std::fprintf(stderr, "  " #name "\n");
#include "corpora.inc"
    return 2;
  }
  int inputs = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++inputs;
    }
  }
  std::printf("%d inputs replayed\n", inputs);
  return inputs > 0 ? 0 : 1;  // an empty corpus proves nothing
}
