#pragma once

#include <cstdint>
#include <string>

#include "collectives/host/choose.h"

// The table of docs/collective-algorithms.md that says which algorithm is taken from how many bytes on.
namespace fairway::collectives {

struct Link {
  const char* name = "";
  const Costs* costs = nullptr;
  std::uint64_t most_piece = 0;  // longest message, however few ranks there are; 0: mapped_piece()
};
inline constexpr Link kLinks[] = {
    {"kMapped", &kMapped, 0}, {"kSameHost", &kSameHost, 64U << 10}, {"kNetwork", &kNetwork, 512U << 10}};
inline constexpr int kTableRanks[] = {2, 4, 8, 16, 32};

// "one_shot, 639 recursive_doubling, 799 direct": the first for nothing, the others from so many bytes on; ">64K": from
// one more than 64 KiB.
std::string choices(CollectiveKind kind, int size, const Link& link);
std::string row(CollectiveKind kind, const Link& link);

}  // namespace fairway::collectives
