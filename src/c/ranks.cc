#include "c/collective.h"

using namespace fairway;
using namespace fairway::c;

namespace {

// What the arrays of a fairway_progress lie in.
struct HeldProgress : fairway_progress {
  std::vector<RankProgress> own;
  std::vector<std::string> own_hangs;
  std::vector<fairway_rank_progress> own_ranks;
  std::vector<const char*> texts;
};

// Pointers and the texts behind them, in one block for fairway_free.
char** block_of(const std::vector<std::string>& texts) {
  std::size_t bytes = (texts.size() + 1) * sizeof(char*);
  for (const std::string& text : texts) bytes += text.size() + 1;
  auto** const block = static_cast<char**>(std::malloc(bytes));
  if (block == nullptr) throw std::bad_alloc();
  char* at = reinterpret_cast<char*>(block + texts.size() + 1);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    block[i] = at;
    std::memcpy(at, texts[i].c_str(), texts[i].size() + 1);
    at += texts[i].size() + 1;
  }
  block[texts.size()] = nullptr;
  return block;
}

fairway_rank_progress progress_of(const RankProgress& rank) {
  return {rank.name.c_str(),
          rank.group,
          rank.process,
          rank.operation,
          rank.rank,
          rank.size,
          static_cast<int32_t>(rank.kind),
          rank.waits_for,
          static_cast<uint8_t>(rank.lives),
          static_cast<uint8_t>(rank.stopped),
          static_cast<uint8_t>(rank.inside),
          rank.phase.c_str(),
          rank.seconds,
          rank.stream,
          rank.call};
}

}  // namespace

extern "C" {

FAIRWAY_API fairway_code fairway_exchange_addresses(const char* folder, int32_t rank, int32_t size, const char* address,
                                                    int64_t timeout_us, char*** out, fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return guarded(error, [&]() -> Status {
    if (folder == nullptr || address == nullptr || out == nullptr)
      return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    const auto addresses = exchange_addresses(folder, rank, size, address, timeout_of(timeout_us));
    if (addresses) *out = block_of(*addresses);
    return addresses.status();
  });
}

FAIRWAY_API fairway_code fairway_progress_of_ranks(double patience_seconds, fairway_progress** out,
                                                   fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    auto held = std::make_unique<HeldProgress>();
    held->own = progress_of_ranks();
    held->own_hangs = who_hangs(held->own, patience_seconds);
    for (const RankProgress& rank : held->own) held->own_ranks.push_back(progress_of(rank));
    for (const std::string& text : held->own_hangs) held->texts.push_back(text.c_str());
    static_cast<fairway_progress&>(*held) = {sizeof(fairway_progress), held->own_ranks.data(), held->texts.data(),
                                             held->own_ranks.size(), held->texts.size()};
    *out = held.release();
    return {};
  });
}
FAIRWAY_API void fairway_progress_free(fairway_progress* progress) {
  delete static_cast<HeldProgress*>(progress);
}

}  // extern "C"
