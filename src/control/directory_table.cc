#include "control/directory_table.h"

#include <fmt/format.h>

#include "control/record.h"

namespace fairway::control {
namespace {

Status taken(const std::string& name) {
  return {ErrorCode::already_exists, fmt::format("an engine that started later has the name {}", name)};
}

}  // namespace

Status DirectoryTable::publish(const std::string& record, std::uint64_t unix_ns) {
  const auto decoded = decode_record(key_, record, unix_ns);
  if (!decoded) return decoded.status();
  const auto found = entries_.find(decoded->name);
  if (found == entries_.end() && entries_.size() >= kMaxNames) drop_expired(unix_ns);
  if (found == entries_.end() && entries_.size() >= kMaxNames)
    return {ErrorCode::resource_exhausted, fmt::format("the directory is full: it holds {} names", kMaxNames)};
  if (found != entries_.end() && found->second.expires_unix_ms >= unix_ns / kNsPerMs &&
      found->second.record.compare(0, kStartedText, record, 0, kStartedText) > 0)
    return taken(decoded->name);
  entries_[decoded->name] = {record, decoded->expires_unix_ms};
  return {};
}

Status DirectoryTable::withdraw(const std::string& name, const std::string& started) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return {};
  if (found->second.record.compare(0, kStartedText, started) != 0) return taken(name);
  entries_.erase(found);
  return {};
}

Result<std::string> DirectoryTable::lookup(const std::string& name, std::uint64_t unix_ns) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.expires_unix_ms < unix_ns / kNsPerMs)
    return Status(ErrorCode::not_found, fmt::format("no engine has published the name {}", name));
  return found->second.record;
}

void DirectoryTable::drop_expired(std::uint64_t unix_ns) {
  std::erase_if(entries_, [&](const auto& each) { return each.second.expires_unix_ms < unix_ns / kNsPerMs; });
}

}  // namespace fairway::control
