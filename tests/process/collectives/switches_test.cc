#include "process/collectives/switches.h"

#include <mutex>
#include <ostream>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "process/collectives/case.h"
#include "process/collectives/group.h"
#include "support/sanitized.h"

// Every collective just below, at and above each size at which it takes another algorithm or has a message more: those
// of the communicator itself, whatever its ranks agreed on.
namespace fairway {
namespace {

struct Links {
  const char* name;
  std::vector<std::string> transports;
  bool own_addresses = false;
  bool pairs = false;  // two ranks on each host
};

void PrintTo(const Links& links, std::ostream* out) {
  *out << links.name;
}

struct Switches : testing::TestWithParam<std::pair<Links, int>> {};
const Links kLinks[] = {{"loopback", {"loopback"}},
                        {"shm", {"shm"}},
                        {"tcp", {"tcp"}},
                        {"hosts", {"tcp"}, true},
                        {"hosts_of_two", {"shm", "tcp"}, true, true}};

std::vector<std::pair<Links, int>> all_links() {
  std::vector<std::pair<Links, int>> all;
  for (const Links& links : kLinks)
    for (const int size : {2, 4, 8})
      if ((size > 2 || !links.pairs) && (size < 8 || !kSanitized)) all.emplace_back(links, size);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Over, Switches, testing::ValuesIn(all_links()), [](const auto& info) {
  return std::string(info.param.first.name) + "_" + std::to_string(info.param.second) + "_ranks";
});

TEST_P(Switches, GiveEveryValueBelowAtAndAbove) {
  const Links& links = GetParam().first;
  const int size = GetParam().second;
  GroupOptions options;
  options.size = size;
  options.transports = links.transports;
  options.own_addresses = links.own_addresses;
  if (links.pairs)
    for (int rank = 0; rank < size; ++rank) options.hosts.push_back(rank / 2);
  std::once_flag once;  // chosen() is the same on all ranks
  std::vector<std::pair<CollectiveKind, std::set<std::size_t>>> all;
  run_group(options, [&](Engine&, Communicator& communicator) {
    std::call_once(once, [&] {
      for (const CollectiveKind kind : kMoving) {
        Finder finder(communicator, kind, options.hosts, links.transports.front() == "shm" && !links.pairs);
        all.emplace_back(kind, finder.counts());
        if (kind == CollectiveKind::all_reduce && !links.pairs)  // which may be hierarchical at any size
          EXPECT_GE(finder.algorithms(), 2U) << "there is no size at which it takes another one";
      }
    });
    for (const auto& [kind, counts] : all)
      for (const std::size_t count : counts)
        if (!run_case(communicator, {kind, Algorithm::automatic, DataType::f32, Reduction::sum, count, 1, false, 0}))
          return;
  });
}

}  // namespace
}  // namespace fairway
