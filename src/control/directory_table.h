#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "fairway/status.h"

#include "control/proof.h"

namespace fairway::control {

// The in-memory table of records that this engine serves, of bounded size. Used on the control thread.
class DirectoryTable {
 public:
  explicit DirectoryTable(JobKey& key) : key_(key) {}

  // Stores a record that is signed, not expired, and not older than the stored one of that name.
  Status publish(const std::string& record, std::uint64_t unix_ns);
  Status withdraw(const std::string& name, const std::string& started);
  Result<std::string> lookup(const std::string& name, std::uint64_t unix_ns);
  std::size_t size() const { return entries_.size(); }

  static constexpr std::size_t kMaxNames = 65536;

 private:
  struct Entry {
    std::string record;
    std::uint64_t expires_unix_ms = 0;
  };
  void drop_expired(std::uint64_t unix_ns);

  JobKey& key_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace fairway::control
