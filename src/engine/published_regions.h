#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/ids.h"
#include "fairway/status.h"

#include "control/control.h"

namespace fairway::engine {

// The names under which this engine's regions are published, and the peers that asked for a name before there was one.
// Any thread; cold paths.
class PublishedRegions {
 public:
  struct Asker {
    control::SessionId session = 0;
    std::uint64_t token = 0;
  };
  static constexpr std::size_t kMaxAskers = 4096;  // beyond them the asker's timeout answers

  static Status check_name(std::string_view name);
  // Who waited for that name, in order: to be answered now. already_exists: it is another region's.
  Result<std::vector<Asker>> publish(std::string_view name, RegionId region);
  void withdraw(RegionId region);  // all its names
  // None: not published yet, and `asker` waits for it.
  std::optional<RegionId> find(std::string_view name, const Asker& asker);
  void forget(control::SessionId session);  // it waits for nothing any more

 private:
  struct Waiting {
    Asker asker;
    std::string name;
  };
  std::mutex mutex_;  // guards both
  std::map<std::string, RegionId, std::less<>> names_;
  std::vector<Waiting> waiting_;
};

}  // namespace fairway::engine
