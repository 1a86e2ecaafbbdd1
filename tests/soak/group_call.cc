#include "group_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "collectives/host/choose.h"
#include "group_values.h"

namespace fairway::tool::soak::groups {
namespace {

constexpr std::size_t kAround = 64;  // bytes on both sides that must stay
constexpr std::byte kFence{0xA5};
constexpr std::array<std::size_t, 5> kCustomBytes = {1, 3, 8, 24, 16};  // the last one's is not commutative

std::size_t log_uniform(Draws& draws, std::uint64_t most) {
  const double bits = std::log2(static_cast<double>(most) + 1) * static_cast<double>(draws.below(1 << 20)) / (1 << 20);
  return static_cast<std::size_t>(std::exp2(bits)) - 1 + draws.below(2);
}

Collective without_memory(const Drawn& drawn, std::size_t count) {
  Collective call{.kind = drawn.kind, .count = count, .type = drawn.type, .reduction = drawn.reduction};
  call.root = drawn.root;
  call.algorithm = drawn.algorithm;
  call.reproducible = drawn.reproducible;
  if (combines(drawn.kind) && drawn.reduction == Reduction::custom) {
    const auto width = std::find(kCustomBytes.begin(), kCustomBytes.end(), drawn.custom_bytes);
    call.custom = {drawn.reproducible ? compose : combine_bytes, const_cast<std::size_t*>(&*width), drawn.custom_bytes};
  }
  return call;
}

// A count at which another algorithm is taken than just below, if there is one between two random ones.
std::size_t switch_point(Draws& draws, const Drawn& drawn, const Communicator& group, std::size_t most) {
  const auto taken = [&](std::size_t count) { return group.chosen(without_memory(drawn, count)); };
  std::size_t low = log_uniform(draws, most), high = log_uniform(draws, most);
  if (low > high) std::swap(low, high);
  if (taken(low) == taken(high)) return high;
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (taken(middle) == taken(low) ? low : high) = middle;
  }
  return high;
}

std::size_t beside(Draws& draws, std::size_t count) {
  const std::size_t more = count + draws.below(3);
  return more == 0 ? 0 : more - 1;
}

std::size_t draw_count(Draws& draws, const Drawn& drawn, const Communicator& group, std::uint64_t largest) {
  const std::size_t width = width_of(drawn);
  // Large ones are rare: most of a soak's time would go into them.
  const std::uint64_t limit = draws.one_in(40) ? largest : std::min<std::uint64_t>(largest, 96 << 10);
  const std::size_t most = static_cast<std::size_t>(limit) / width;
  const std::size_t pieces = std::array<std::size_t, 4>{256, 4096, 65536, 16384}[draws.below(4)] / width;
  switch (draws.below(4)) {
    case 0: return beside(draws, switch_point(draws, drawn, group, most));
    case 1: return beside(draws, pieces * (1 + draws.below(3)));
    default: return log_uniform(draws, draws.one_in(3) ? most : std::min<std::size_t>(most, 600));
  }
}

// What a rank sends to each other one of a random size; between two blocks may lie what belongs to none.
struct Sends {
  std::vector<std::size_t> counts, offsets;
  std::size_t all = 0;
};
Sends sends_of(const Drawn& drawn, std::size_t rank, std::size_t size) {
  Sends sends;
  for (std::size_t other = 0; other < size; ++other) {
    const std::uint64_t bits = mix(drawn.salt + 131 * rank + other);
    sends.counts.push_back(static_cast<std::size_t>(bits >> 8) % (drawn.count + 1));
    sends.offsets.push_back(sends.all);
    sends.all += sends.counts.back() + bits % 3;
  }
  return sends;
}

}  // namespace

Drawn draw_call(Draws& draws, const Communicator& group, std::uint64_t largest) {
  Drawn drawn;
  drawn.kind = static_cast<CollectiveKind>(draws.below(10));
  drawn.type = static_cast<DataType>(draws.below(14));
  drawn.reduction = static_cast<Reduction>(draws.below(6));
  drawn.root = static_cast<int>(draws.below(static_cast<std::uint64_t>(group.size())));
  drawn.reproducible = draws.one_in(3);
  drawn.salt = draws.next();
  const std::size_t custom = draws.below(4);
  const bool is_plain = drawn.type == DataType::f32 || drawn.type == DataType::f64;
  drawn.real = draws.one_in(2) && drawn.reproducible && is_plain && combines(drawn.kind);
  if (drawn.reduction == Reduction::custom) drawn.custom_bytes = kCustomBytes[drawn.reproducible ? 4 : custom];
  const std::uint64_t any = draws.next();
  if (draws.one_in(4)) {
    const bool narrow = drawn.type == DataType::f8e4m3 || drawn.type == DataType::f8e5m2;
    const bool ordered =
        combines(drawn.kind) && (drawn.reproducible || (narrow && drawn.reduction != Reduction::custom));
    const auto all = collectives::algorithms_of(drawn.kind, ordered);
    drawn.algorithm = all[any % all.size()];
  }
  drawn.count = draw_count(draws, drawn, group, largest);
  return drawn;
}

Call::Call(const Drawn& drawn, int rank, int size)
    : drawn_(drawn), rank_(rank), size_(size), width_(width_of(drawn)), call_(without_memory(drawn, drawn.count)) {
  place();
  expect();
}

void Call::place() {
  const auto n = static_cast<std::size_t>(size_), own = static_cast<std::size_t>(rank_);
  const bool root = rank_ == drawn_.root;
  Draws draws(drawn_.salt + own + 1);  // this rank's own
  std::size_t in = 0, out = 0;         // elements
  bool may_be_in_place = false;
  switch (drawn_.kind) {
    case CollectiveKind::barrier: break;
    case CollectiveKind::all_reduce: in = out = drawn_.count, may_be_in_place = true; break;
    case CollectiveKind::reduce: in = drawn_.count, out = root ? in : 0, may_be_in_place = root; break;
    case CollectiveKind::broadcast: out = drawn_.count, in = root ? out : 0, may_be_in_place = root; break;
    case CollectiveKind::all_gather: in = drawn_.count, out = n * in, may_be_in_place = true; break;
    case CollectiveKind::gather: in = drawn_.count, out = root ? n * in : 0, may_be_in_place = root; break;
    case CollectiveKind::scatter: out = drawn_.count, in = root ? n * out : 0, may_be_in_place = root; break;
    case CollectiveKind::reduce_scatter: out = drawn_.count, in = n * out, may_be_in_place = true; break;
    case CollectiveKind::all_to_all: in = out = n * drawn_.count, may_be_in_place = true; break;
    case CollectiveKind::all_to_allv: {
      Sends sends = sends_of(drawn_, own, n);
      in = sends.all;
      for (std::size_t other = 0; other < n; ++other) {
        receive_counts_.push_back(sends_of(drawn_, other, n).counts[own]);
        receive_offsets_.push_back(out);
        out += receive_counts_.back() + draws.below(3);
      }
      send_counts_ = std::move(sends.counts);
      send_offsets_ = std::move(sends.offsets);
      call_.count = 0;
      call_.send = {send_counts_, send_offsets_};
      call_.receive = {receive_counts_, receive_offsets_};
      break;
    }
  }
  // Of all_to_all it is a matter of all ranks.
  const bool chance = draws.one_in(2), together = drawn_.salt % 2 == 0;
  const bool in_place = may_be_in_place && (drawn_.kind == CollectiveKind::all_to_all ? together : chance);
  input_at_ = kAround + draws.below(16);
  output_at_ = kAround + draws.below(16);
  output_.assign(output_at_ + (in_place ? std::max(in, out) : out) * width_ + kAround, kFence);
  if (in_place) {
    const std::size_t block = own * drawn_.count * width_;
    input_at_ = output_at_;
    if (drawn_.kind == CollectiveKind::all_gather || drawn_.kind == CollectiveKind::gather) input_at_ += block;
    if (drawn_.kind == CollectiveKind::scatter || drawn_.kind == CollectiveKind::reduce_scatter) output_at_ += block;
  } else {
    input_.assign(input_at_ + in * width_ + kAround, kFence);
  }
  std::vector<std::byte>& holds = in_place ? output_ : input_;
  for (std::size_t i = 0; i < in; ++i) give(drawn_, rank_, i, holds.data() + input_at_ + i * width_);
  const bool takes = out != 0 || draws.one_in(2), gives = in != 0 || draws.one_in(2);
  call_.input = gives ? holds.data() + input_at_ : nullptr;
  call_.output = takes ? output_.data() + output_at_ : nullptr;
}

void Call::expect() {
  want_input_ = input_;
  want_output_ = output_;
  const auto n = static_cast<std::size_t>(size_), own = static_cast<std::size_t>(rank_);
  const std::size_t count = drawn_.count;
  const bool root = rank_ == drawn_.root;
  const auto at = [&](std::size_t element) { return want_output_.data() + output_at_ + element * width_; };
  const auto take = [&](std::size_t to, std::size_t from, std::size_t first, std::size_t elements) {
    for (std::size_t i = 0; i < elements; ++i) give(drawn_, static_cast<int>(from), first + i, at(to + i));
  };
  const auto combine = [&](std::size_t first) {
    for (std::size_t i = 0; i < count; ++i) reduce(drawn_, size_, first + i, at(i));
  };
  switch (drawn_.kind) {
    case CollectiveKind::barrier: break;
    case CollectiveKind::all_reduce: combine(0); break;
    case CollectiveKind::reduce:
      if (root) combine(0);
      break;
    case CollectiveKind::reduce_scatter: combine(own * count); break;
    case CollectiveKind::broadcast: take(0, static_cast<std::size_t>(drawn_.root), 0, count); break;
    case CollectiveKind::scatter: take(0, static_cast<std::size_t>(drawn_.root), own * count, count); break;
    case CollectiveKind::gather:
      if (!root) break;
      [[fallthrough]];
    case CollectiveKind::all_gather:
      for (std::size_t from = 0; from < n; ++from) take(from * count, from, 0, count);
      break;
    case CollectiveKind::all_to_all:
      for (std::size_t from = 0; from < n; ++from) take(from * count, from, own * count, count);
      break;
    case CollectiveKind::all_to_allv:
      for (std::size_t from = 0; from < n; ++from)
        take(receive_offsets_[from], from, sends_of(drawn_, from, n).offsets[own], receive_counts_[from]);
      break;
  }
}

std::string Call::wrong() const {
  const auto compare = [&](const char* what, const std::vector<std::byte>& is, const std::vector<std::byte>& want,
                           std::size_t begin) -> std::string {
    if (is == want) return {};
    const auto differs = std::mismatch(is.begin(), is.end(), want.begin());
    const auto at = static_cast<std::ptrdiff_t>(differs.first - is.begin()) - static_cast<std::ptrdiff_t>(begin);
    return fmt::format("{}: byte {} of its {} is {:#04x} and should be {:#04x}", text(), at, what,
                       std::to_integer<unsigned>(*differs.first), std::to_integer<unsigned>(*differs.second));
  };
  std::string found = compare("output", output_, want_output_, output_at_);
  return found.empty() ? compare("input", input_, want_input_, input_at_) : found;
}

std::uint64_t Call::bytes() const {
  return output_.size() + input_.size();
}

std::string Call::text() const {
  return fmt::format("{} of {} {} ({}{}{}) by {}, root {}, on rank {} of {}{}", to_string(drawn_.kind), drawn_.count,
                     to_string(drawn_.type), to_string(drawn_.reduction),
                     drawn_.reduction == Reduction::custom ? fmt::format(", {} bytes", width_) : "",
                     drawn_.reproducible ? ", reproducible" : "", to_string(drawn_.algorithm), drawn_.root, rank_,
                     size_, input_.empty() ? ", in place" : "");
}

}  // namespace fairway::tool::soak::groups
