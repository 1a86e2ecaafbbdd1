#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <poll.h>

#include "collectives.h"
#include "interrupt.h"

namespace fairway::tool::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What a rank may take beyond what is measured: its operations have a timeout of their own, NCCL's have none.
constexpr std::chrono::seconds kAnswer{300}, kGpuAnswer{90};
constexpr std::chrono::seconds kAfterInterrupt{3};             // it may still finish
constexpr std::chrono::seconds kEnd{10}, kEndAfterFailure{2};  // then who has not ended is killed
constexpr int kLookMs = 200;                                   // for Ctrl-C

std::vector<std::string> words_of(int rank, int ranks, const RankPlace& place) {
  std::vector<std::string> words{"bench",   "collectives",           "--rank", fmt::format("{}", rank),
                                 "--ranks", fmt::format("{}", ranks)};
  if (place.gpu) {
    words.insert(words.end(), {"--memory", "gpu"});
    if (place.gpu->graph) words.emplace_back("--graph");
    if (place.gpu->nccl) words.insert(words.end(), {"--beside", "nccl"});
    if (!place.gpu->nccl_library.empty()) words.insert(words.end(), {"--nccl-library", place.gpu->nccl_library});
    return words;
  }
  const bool shares = place.network != nullptr && place.network->per_host() > 1;  // its host with other ranks
  words.insert(words.end(), {"--via", shares ? "shm," + place.path : place.path});
  if (place.network != nullptr) words.insert(words.end(), {"--listen", place.network->address(rank) + ":0"});
  return words;
}

std::string name_of(std::size_t rank) {
  return fmt::format("rank {}", rank);
}

}  // namespace

Result<std::unique_ptr<RankGroup>> RankGroup::start(int ranks, const RankPlace& place) {
  auto group = std::make_unique<RankGroup>();
  group->patience_ = (place.gpu ? kGpuAnswer : kAnswer) + std::chrono::seconds(static_cast<int>(10 * place.seconds));
  std::string addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    group->ranks_.push_back(std::make_unique<OtherProcess>());
    std::optional<sys::InNamespace> inside;
    if (place.network != nullptr) {
      inside.emplace(place.network->of(rank));
      if (!inside->status()) return inside->status();
    }
    const auto address = group->ranks_.back()->start(words_of(rank, ranks, place));
    if (!address) return address.status().with_context(name_of(static_cast<std::size_t>(rank)));
    addresses += (addresses.empty() ? "" : " ") + *address;
  }
  for (const auto& rank : group->ranks_)
    if (Status status = rank->say(addresses + "\n"); !status) return status;
  const auto joined = group->hear_all(group->patience_);
  if (!joined) return joined.status();
  for (const std::string& ms : *joined) group->join_ms_ = std::max(group->join_ms_, std::strtod(ms.c_str(), nullptr));
  return group;
}

RankGroup::~RankGroup() {
  for (const auto& rank : ranks_) rank->close_input();
  const auto deadline = Clock::now() + (failed_ ? kEndAfterFailure : kEnd);
  for (const auto& rank : ranks_)
    rank->end_by(std::chrono::duration_cast<milliseconds>(std::max(deadline - Clock::now(), Clock::duration(0))));
}

Result<Timed> RankGroup::run(const CollectiveOrder& order) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (Status status = ranks_[rank]->say(text_of(order) + "\n"); !status) return status.with_context(name_of(rank));
  const auto lines = hear_all(patience_);
  if (!lines) return lines.status();
  Timed all;
  for (const std::string& line : *lines) {
    Timed one;
    std::istringstream(line) >> one.us >> one.wrong >> one.algorithm;
    all.us = std::max(all.us, one.us);
    all.wrong += one.wrong;
    all.algorithm = one.algorithm;
  }
  return all;
}

// A line of each, or what became of the first that has none: the others may wait for it for ever.
Result<std::vector<std::string>> RankGroup::hear_all(milliseconds patience) {
  failed_ = true;
  std::vector<std::string> lines(ranks_.size());
  std::vector<std::size_t> open;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) open.push_back(rank);
  auto deadline = Clock::now() + patience;
  while (!open.empty()) {
    if (Interrupt::came()) deadline = std::min(deadline, Clock::now() + kAfterInterrupt);
    std::vector<pollfd> outputs;
    for (const std::size_t rank : open) outputs.push_back({ranks_[rank]->output(), POLLIN, 0});
    if (::poll(outputs.data(), outputs.size(), kLookMs) < 0 && errno != EINTR)
      return Status(ErrorCode::system_error, "cannot wait for the ranks");
    std::vector<std::size_t> left;
    Status failed;  // who has ended rather than who misses it
    for (const std::size_t rank : open) {
      const auto line = ranks_[rank]->hear(milliseconds(0));
      if (!line && line.status().code() == ErrorCode::timed_out)
        left.push_back(rank);
      else if (!line)
        return line.status().with_context(name_of(rank));
      else if (line->starts_with(kCannot))
        failed = failed ? Status(ErrorCode::system_error, line->substr(kCannot.size())) : failed;
      else
        lines[rank] = *line;
    }
    if (!failed) return failed;
    open = std::move(left);
    if (open.empty() || Clock::now() < deadline) continue;
    if (Interrupt::came()) return Interrupt::status();
    std::string silent;
    for (const std::size_t rank : open) silent += fmt::format("{}{}", silent.empty() ? "" : ", ", rank);
    return Status(ErrorCode::timed_out,
                  fmt::format("no answer within {} s of rank {}", patience.count() / 1000, silent));
  }
  failed_ = false;
  return lines;
}

}  // namespace fairway::tool::bench
