#include "sim/group_contents.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <span>
#include <utility>

#include "collectives/host/schedule.h"

namespace fairway::sim {
namespace {

using collectives::Buffer;
using collectives::Place;
using collectives::Schedule;
using collectives::Step;

// An element of 8 bytes: which one of a rank's input it is, and of which ranks it is combined, a bit each.
struct Name {
  std::uint64_t index = 0, ranks = 0;
};

bool combines(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
}

// Elements of a rank's input that are one block by name.
std::uint64_t block_elements(const FollowedCall& followed) {
  const GroupCall& call = followed.call;
  const auto ranks = static_cast<std::uint64_t>(call.ranks);
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      if (call.algorithm == Algorithm::hierarchical) {
        const int last = call.ranks - (call.ranks - 1) / call.per_host * call.per_host;
        return call.count /
               static_cast<std::uint64_t>(collectives::parts_in_levels(std::min(call.per_host, last), call.bytes()));
      }
      return call.algorithm == Algorithm::direct || call.algorithm == Algorithm::ring ? call.count / ranks : call.count;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce: return std::min(call.count, call.piece / 8);
    default: return call.count;
  }
}

// "0+1", or "0..3" of three and more in a row.
std::string text_of(std::uint64_t ranks) {
  std::string text;
  for (int from = 0; from < 64; ++from) {
    if ((ranks >> from & 1U) == 0) continue;
    const int to = from + std::countr_one(ranks >> from) - 1;
    for (int rank = from; rank <= to; rank = to - from > 1 && rank == from ? to : rank + 1)
      text += (text.empty() ? "" : rank == to && to - from > 1 ? ".." : "+") + std::to_string(rank);
    from = to;
  }
  return text;
}

class Run {
 public:
  explicit Run(const FollowedCall& followed)
      : followed_(followed), call_(followed.call), size_(static_cast<std::size_t>(call_.ranks)), ranks_(size_) {
    between_.resize(size_ * size_);
    contents_.resize(size_ * size_);
    for (int rank = 0; rank < call_.ranks; ++rank) groups_.push_back(rank / call_.per_host);
    for (int rank = 0; rank < call_.ranks; ++rank) prepare(rank);
  }

  Result<std::vector<std::vector<Content>>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < size_; ++rank)
        while (step(rank)) moved = true;
    }
    for (const Rank& rank : ranks_)
      if (rank.next != rank.schedule.steps.size())
        return Status(ErrorCode::protocol_error, "the schedules of a collective wait for each other");
    return std::move(contents_);
  }

 private:
  // The last message that was not combined when it came.
  struct Received {
    const Name* into = nullptr;
    std::size_t pair = 0, number = 0;
  };
  struct Rank {
    Schedule schedule;
    std::size_t next = 0;
    Received received;
    std::vector<Name> input, output, scratch;
  };
  struct Message {
    std::vector<Name> names;
    std::size_t number = 0;  // of those from that rank to this one
  };

  void prepare(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    collectives::Shape shape;
    shape.kind = call_.kind;
    shape.algorithm = call_.algorithm;
    shape.rank = number;
    shape.size = call_.ranks;
    shape.root = call_.root;
    shape.count = call_.count;
    shape.element_bytes = 8;
    shape.piece_bytes = call_.piece;
    shape.in_place = followed_.in_place;
    if (call_.per_host > 1) shape.groups = groups_;
    collectives::make_schedule(shape, rank.schedule);
    rank.input.resize(call_.count * size_);
    for (std::uint64_t i = 0; i < rank.input.size(); ++i) rank.input[i] = {i, std::uint64_t{1} << number};
    rank.output = followed_.in_place ? rank.input : std::vector<Name>(rank.input.size());
    rank.scratch.resize(rank.schedule.scratch_bytes / 8 + 1);
  }

  static std::span<Name> at(Rank& rank, Place place, std::uint64_t bytes) {
    std::vector<Name>& buffer = place.buffer == Buffer::input    ? rank.input
                                : place.buffer == Buffer::output ? rank.output
                                                                 : rank.scratch;
    return std::span(buffer).subspan(place.at / 8, bytes / 8);
  }

  // What is combined is the same element of other ranks.
  static void combine(std::span<Name> into, std::span<const Name> from, std::span<const Name> with) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = {from[i].index, from[i].ranks | with[i].ranks};
  }

  bool step(std::size_t number) {
    Rank& rank = ranks_[number];
    if (rank.next == rank.schedule.steps.size()) return false;
    const Step& step = rank.schedule.steps[rank.next];
    if (step.kind == Step::Kind::send) {
      const std::size_t pair = number * size_ + static_cast<std::size_t>(step.peer);
      const auto names = at(rank, step.from, step.bytes);
      between_[pair].push_back({{names.begin(), names.end()}, contents_[pair].size()});
      contents_[pair].push_back(content_of(names, static_cast<int>(number)));
    } else if (collectives::takes(step.kind)) {
      const std::size_t pair = static_cast<std::size_t>(step.peer) * size_ + number;
      if (between_[pair].empty()) return false;
      const Message message = std::move(between_[pair].front());
      between_[pair].pop_front();
      const auto into = at(rank, step.into, step.bytes);
      if (step.kind == Step::Kind::receive) {
        std::copy_n(message.names.begin(), into.size(), into.begin());
        rank.received = {into.data(), pair, message.number};
      } else {
        combine(into, at(rank, step.from, step.bytes), message.names);
        contents_[pair][message.number].combined = true;
      }
    } else if (step.kind == Step::Kind::copy) {
      const auto from = at(rank, step.from, step.bytes);
      std::copy(from.begin(), from.end(), at(rank, step.into, step.bytes).begin());
    } else if (step.kind == Step::Kind::fold) {
      const auto into = at(rank, step.into, step.bytes);
      combine(into, into, at(rank, step.from, step.bytes));
      const Received& last = rank.received;
      if (last.into == into.data()) contents_[last.pair][last.number].combined = true;
    }
    ++rank.next;
    return true;
  }

  [[nodiscard]] Content content_of(std::span<const Name> names, int sender) const {
    Content content;
    content.bytes = names.size() * 8;
    const std::uint64_t block = std::max<std::uint64_t>(1, block_elements(followed_));
    std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;  // block, ranks
    for (const Name& name : names) {
      const std::pair one(name.index / block, name.ranks);
      if (std::find(seen.begin(), seen.end(), one) != seen.end()) continue;
      content.text += (seen.empty() ? "" : ", ") + text_of(one.first, one.second, sender);
      seen.push_back(one);
    }
    if (seen.size() == 1) content.one = one_of(seen[0].first, seen[0].second);
    return content;
  }

  [[nodiscard]] std::string letter(std::uint64_t block) const {
    return blocks_of(followed_) == 1 ? std::string() : std::string(1, static_cast<char>('A' + block));
  }
  [[nodiscard]] std::string text_of(std::uint64_t block, std::uint64_t ranks, int sender) const {
    if (call_.kind == CollectiveKind::all_gather || call_.kind == CollectiveKind::gather) return sim::text_of(ranks);
    if (call_.kind == CollectiveKind::all_to_all) return sim::text_of(ranks) + "→" + std::to_string(block);
    std::string name = letter(block);
    if (!combines(call_.kind)) return name;
    if (std::popcount(ranks) == call_.ranks) return "Σ" + name;
    if (ranks == std::uint64_t{1} << sender && !name.empty()) return name;
    return name + (name.empty() ? "" : " ") + sim::text_of(ranks);
  }
  [[nodiscard]] int one_of(std::uint64_t block, std::uint64_t ranks) const {
    const bool by_block = blocks_of(followed_) > 1 && call_.kind != CollectiveKind::all_to_all;
    if (by_block || call_.kind == CollectiveKind::broadcast) return static_cast<int>(block);
    return std::has_single_bit(ranks) ? std::countr_zero(ranks) : -1;
  }

  const FollowedCall& followed_;
  const GroupCall& call_;
  const std::size_t size_;
  std::vector<int> groups_;
  std::vector<Rank> ranks_;
  std::vector<std::deque<Message>> between_;
  std::vector<std::vector<Content>> contents_;
};

}  // namespace

int blocks_of(const FollowedCall& followed) {
  const GroupCall& call = followed.call;
  if (call.kind == CollectiveKind::reduce_scatter || call.kind == CollectiveKind::scatter ||
      call.kind == CollectiveKind::all_to_all)
    return call.ranks;
  const std::uint64_t block = block_elements(followed);
  return block == 0 ? 1 : static_cast<int>((call.count + block - 1) / block);
}

Result<std::vector<std::vector<Content>>> contents_of(const FollowedCall& followed) {
  return Run(followed).run();
}

}  // namespace fairway::sim
