#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/status.h"

namespace fairway::topology {

// ../shared/fixtures beside the sources; empty where it is absent.
std::string fixtures();
std::string recorded_machines();  // tests/machines

// A folder that goes with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const;  // makes the folders above
  void link(const std::string& file, const std::string& target) const;

 private:
  std::string path_;
};

std::string read_text(const std::string& path);
// All regular files below a folder, sorted.
std::vector<std::string> files_below(const std::string& folder);

// A captured root of a server: `gpus` GPUs and `nics` RDMA NICs spread over PCIe switches of two sockets.
void write_server_tree(const TempFolder& folder, unsigned gpus, unsigned nics);

}  // namespace fairway::topology

#define REQUIRE_FIXTURES() \
  if (fairway::topology::fixtures().empty()) GTEST_SKIP() << "no ../shared/fixtures beside the sources"
