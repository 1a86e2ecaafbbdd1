#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "doctor/reading.h"
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

}  // namespace fairway::doctor::testing
