#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "doctor/report.h"
#include "server.h"

// Texts as people give them, and the report on them.
namespace fairway::doctor::testing {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("doctor_texts_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }
  [[nodiscard]] std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Report report_of(const std::string& path) {
  const auto found = read_case(path);
  EXPECT_TRUE(found) << found.status().message();
  if (!found) return {};
  const predict::Model model(found->machine);
  auto report = examine({model, found->facts, found->measured, nullptr, nullptr});
  tell_reading(*found, report);
  return report;
}

inline const topology::TextRead& text_named(const Report& report, const std::string& name) {
  static const topology::TextRead kNone;
  for (const auto& one : report.read) {
    if (one.where.starts_with(name)) return one;
  }
  return kNone;
}

inline constexpr const char* kPairMatrix =
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tSYS\tPIX\tSYS\t0-3\t0\nGPU1\tSYS\t X \tSYS\tPIX\t4-7\t1\n"
    "NIC0\tPIX\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";

// The report on a text beside that matrix.
inline Report beside_matrix(const char* name, const std::string& text) {
  const Folder folder;
  folder.write("topo.txt", kPairMatrix);
  folder.write(name, text);
  return report_of(folder.path());
}

inline Report alone(const std::string& text) {
  const Folder folder;
  return report_of(folder.write("paste.txt", text));
}

// The title of a report's finding, and what it was seen by.
inline std::string title_of(const Report& report, const char* rule) {
  const auto* found = find(report, rule);
  if (found == nullptr) return {};
  auto out = found->title;
  for (const auto& one : found->evidence) out += " | " + one.text + " [" + one.where + "]";
  return out;
}

}  // namespace fairway::doctor::testing
