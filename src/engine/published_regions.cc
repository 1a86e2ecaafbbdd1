#include "engine/published_regions.h"

namespace fairway::engine {

Status PublishedRegions::check_name(std::string_view name) {
  if (name.empty() || name.size() > 1024) return {ErrorCode::invalid_argument, "a region's name has 1 to 1024 bytes"};
  return {};
}

Result<std::vector<PublishedRegions::Asker>> PublishedRegions::publish(std::string_view name, RegionId region) {
  std::vector<Asker> askers;
  const std::lock_guard lock(mutex_);
  const auto [entry, added] = names_.emplace(std::string(name), region);
  if (!added && entry->second != region)
    return Status(ErrorCode::already_exists, "another region is published as \"" + std::string(name) + "\"");
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (each.name != name) return false;
    askers.push_back(each.asker);
    return true;
  });
  return askers;
}

void PublishedRegions::withdraw(RegionId region) {
  const std::lock_guard lock(mutex_);
  std::erase_if(names_, [&](const auto& entry) { return entry.second == region; });
}

std::optional<RegionId> PublishedRegions::find(std::string_view name, const Asker& asker) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  if (waiting_.size() < kMaxAskers) waiting_.push_back({asker, std::string(name)});
  return std::nullopt;
}

void PublishedRegions::forget(control::SessionId session) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const Waiting& each) { return each.asker.session == session; });
}

}  // namespace fairway::engine
