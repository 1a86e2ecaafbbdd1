// Which algorithm an operation on host memory takes, and why.
#include <fmt/format.h>

#include "collectives/state.h"

namespace fairway {

using namespace collectives;  // NOLINT(google-build-using-namespace)

std::string Communicator::State::explain(const Collective& call) const {
  const std::uint64_t bytes = call.count * width_of(call), all = all_bytes(call.kind, bytes, size());
  const Algorithm taken = chosen(call);
  const std::string what = fmt::format("{} of {} bytes: by {}: ", to_string(call.kind), all, to_string(taken));
  if (call.algorithm != Algorithm::automatic) return what + "the call names it";
  const bool ordered = is_ordered(call);
  const auto others = algorithms_of(call.kind, ordered);
  if (others.size() == 1 && near.groups < 2) return what + "there is no other";
  if (!ordered && ways.fastest(call.kind, all) != Algorithm::automatic) return what + ways.why(call.kind, all);
  std::string costs_text;
  for (const Algorithm each : others)
    costs_text += fmt::format("{}{} {:.1f} us", costs_text.empty() ? "" : ", ", to_string(each),
                              cost_of(call.kind, each, size(), bytes, piece_bytes, costs) / 1e3);
  if (near.groups > 1 && has_algorithm(call.kind, Algorithm::hierarchical, ordered))
    costs_text += fmt::format(", hierarchical {:.1f} us", cost_in_levels(near, bytes, piece_bytes, costs) / 1e3);
  return what +
         fmt::format("by the model of costs {}; {}", costs_text,
                     ordered ? "what is combined in the order of ranks is not measured" : ways.why(call.kind, all));
}

}  // namespace fairway
