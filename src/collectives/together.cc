// Operations of one group: neighbours that are small and alike travel as one.
#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/state.h"

namespace fairway {

using namespace collectives;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::uint64_t kTogether = 64U << 10;  // bytes that are worth two copies more

std::uint64_t bytes_of(const Collective& call) {
  return call.count * width_of(call);
}

// Every rank makes the same calls, so every rank comes to the same answer.
bool go_together(const Collective& a, const Collective& b) {
  return a.kind == CollectiveKind::all_reduce && b.kind == CollectiveKind::all_reduce && a.type == b.type &&
         a.reduction == b.reduction && a.reduction != Reduction::custom && a.algorithm == Algorithm::automatic &&
         b.algorithm == Algorithm::automatic && a.reproducible == b.reproducible && a.timeout == b.timeout;
}

}  // namespace

Status Communicator::run_all(std::span<const Collective> group) {
  if (state_ == nullptr) return State::moved();
  for (const Collective& call : group)
    if (Status status = check(call, rank(), size()); !status) return status.with_context(to_string(call.kind));
  std::vector<std::byte> memory;
  for (std::size_t from = 0, to = 0; from < group.size(); from = to) {
    std::uint64_t bytes = bytes_of(group[from]);
    for (to = from + 1; to < group.size() && go_together(group[from], group[to]); ++to) {
      const std::uint64_t next = bytes_of(group[to]);
      if (bytes > kTogether || next > kTogether - bytes) break;
      bytes += next;
    }
    if (to == from + 1) {
      if (Status status = run(group[from]); !status) return status;
      continue;
    }
    memory.resize(bytes);
    std::byte* at = memory.data();
    for (const Collective& call : group.subspan(from, to - from)) {
      if (is_premul(call))
        scale(at, call.input, call.type, call.count, call.factor);
      else if (bytes_of(call) != 0)
        std::memcpy(at, call.input, bytes_of(call));
      at += bytes_of(call);
    }
    Collective all = group[from];
    all.factor = 1;  // each has been multiplied by its own
    all.input = all.output = memory.data();
    all.count = bytes / width_of(all);
    if (Status status = run(all); !status) return status;
    at = memory.data();
    for (const Collective& call : group.subspan(from, to - from)) {
      if (bytes_of(call) != 0) std::memcpy(call.output, at, bytes_of(call));
      at += bytes_of(call);
    }
  }
  return {};
}

}  // namespace fairway
