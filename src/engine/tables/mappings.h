#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "fairway/mapping.h"

namespace fairway::engine {

// The table of mappings that Engine::map has returned, each with the transport's view behind it. Any thread; cold
// paths.
class Mappings {
 public:
  struct Entry {
    Mapping mapping;
    std::uint16_t worker = 0, transport = 0;
    std::uint64_t view = 0;  // of that transport of that worker
    PeerId peer;             // none: this engine's own region
    std::string name;
  };

  MappingId add(Entry entry) {
    const std::lock_guard lock(mutex_);
    entry.mapping.id = {++last_};
    return all_.emplace(last_, std::move(entry)).first->second.mapping.id;
  }
  std::optional<Entry> find(MappingId id) const {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(id.number);
    return found == all_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<Entry> find(std::uint16_t worker, std::uint16_t transport, std::uint64_t view) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, entry] : all_)
      if (entry.worker == worker && entry.transport == transport && entry.view == view) return entry;
    return {};
  }
  bool remove(MappingId id) {
    const std::lock_guard lock(mutex_);
    return all_.erase(id.number) == 1;
  }

 private:
  mutable std::mutex mutex_;  // guards both
  std::map<std::uint64_t, Entry> all_;
  std::uint64_t last_ = 0;
};

}  // namespace fairway::engine
