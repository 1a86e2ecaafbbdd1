#include "unit/collectives/schedule_model.h"

#include <algorithm>
#include <random>

namespace fairway::collectives {
namespace {

constexpr std::uint64_t kUnset = 0xDEADDEADDEADDEADU;

bool has_output(const Shape& shape) {
  const bool rooted = shape.kind == CollectiveKind::reduce || shape.kind == CollectiveKind::gather;
  return shape.kind != CollectiveKind::barrier && (!rooted || shape.rank == shape.root);
}

}  // namespace

ScheduleModel::ScheduleModel(Shape shape, std::vector<std::vector<std::size_t>> blocks, std::vector<int> order)
    : shape_(shape), blocks_(std::move(blocks)), order_(std::move(order)) {}

std::uint64_t ScheduleModel::value(int rank, std::uint64_t index) const {
  std::uint64_t x = static_cast<std::uint64_t>(rank + 1) * 0x9E3779B97F4A7C15U + index * 0xBF58476D1CE4E5B9U;
  x ^= x >> 31;
  return x * 0x94D049BB133111EBU;
}

std::uint64_t ScheduleModel::sum(std::uint64_t index) const {
  std::uint64_t total = value(0, index) * factor(0);
  for (int rank = 1; rank < shape_.size; ++rank) total = combined(total, value(rank, index) * factor(rank));
  return total;
}

void ScheduleModel::prepare() {
  const auto n = static_cast<std::size_t>(shape_.size);
  ranks_ = std::vector<Rank>(n);
  between_.assign(n * n, {});
  messages_ = 0;
  wrong_.clear();
  for (std::size_t r = 0; r < n; ++r) {
    Rank& rank = ranks_[r];
    rank.shape = shape_;
    rank.shape.rank = static_cast<int>(r);
    std::size_t in = shape_.count * n, out = shape_.count * n;  // the most that any kind needs
    if (shape_.kind == CollectiveKind::all_to_allv) {
      in = out = 0;
      for (std::size_t p = 0; p < n; ++p) {
        rank.send_counts.push_back(blocks_[r][p]);
        rank.receive_counts.push_back(blocks_[p][r]);
        rank.send_offsets.push_back(in);
        rank.receive_offsets.push_back(out);
        in += blocks_[r][p];
        out += blocks_[p][r] + 1;  // with a gap, which stays
      }
      rank.shape.send = {rank.send_counts, rank.send_offsets};
      rank.shape.receive = {rank.receive_counts, rank.receive_offsets};
    }
    rank.input.resize(in);
    for (std::size_t i = 0; i < in; ++i) rank.input[i] = value(static_cast<int>(r), i);
    rank.output.assign(out, kUnset);
    if (shape_.in_place) {
      const bool gathers = shape_.kind == CollectiveKind::all_gather || shape_.kind == CollectiveKind::gather;
      if (gathers) {
        rank.output.assign(out, kUnset);
        std::copy_n(rank.input.begin(), shape_.count, rank.output.begin() + static_cast<long>(r * shape_.count));
      }
    }
    make_schedule_along(order_, rank.shape, rank.schedule);
    rank.scratch.assign(rank.schedule.scratch_bytes / 8, kUnset);
  }
}

// In place, input and output are one memory: the output's for gathers, else the input's.
std::uint64_t* ScheduleModel::at(Rank& rank, Place place, std::uint64_t bytes) {
  std::vector<std::uint64_t>* memory = &rank.scratch;
  std::uint64_t index = place.at / 8;
  const CollectiveKind kind = shape_.kind;
  if (place.buffer != Buffer::scratch) {
    memory = place.buffer == Buffer::input ? &rank.input : &rank.output;
    const auto mine = static_cast<std::uint64_t>(rank.shape.rank) * shape_.count;
    if (shape_.in_place && (kind == CollectiveKind::all_gather || kind == CollectiveKind::gather)) {
      const bool moves = kind == CollectiveKind::all_gather || rank.shape.rank == shape_.root;
      if (place.buffer == Buffer::input && moves) {
        memory = &rank.output;
        index += mine;
      }
    } else if (shape_.in_place && place.buffer == Buffer::output) {
      const bool scatters =
          kind == CollectiveKind::reduce_scatter || (kind == CollectiveKind::scatter && rank.shape.rank == shape_.root);
      if (kind != CollectiveKind::scatter || scatters) memory = &rank.input;
      if (scatters) index += mine;
    }
  }
  if (place.at % 8 != 0 || bytes % 8 != 0 || index + bytes / 8 > memory->size()) {
    wrong_ = "rank " + std::to_string(rank.shape.rank) + " leaves its memory";
    return nullptr;
  }
  static std::uint64_t nothing = 0;
  return memory->empty() ? &nothing : memory->data() + index;
}

std::string ScheduleModel::wrong_step(const Step& step, const Message& message) {
  if (message.values.size() * 8 == step.bytes && message.of == step.of) return {};
  return "a message of " + std::to_string(message.values.size() * 8) + " bytes where " + std::to_string(step.bytes) +
         " are expected";
}

bool ScheduleModel::step(int number, unsigned room) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  if (rank.next == rank.schedule.steps.size()) return false;
  const Step& step = rank.schedule.steps[rank.next];
  const std::uint64_t count = step.bytes / 8;
  const auto queue = [&](int from, int to) -> std::deque<Message>& {
    return between_[static_cast<std::size_t>(from * shape_.size + to)];
  };
  const bool moves = step.kind == Step::Kind::send || step.kind == Step::Kind::receive ||
                     step.kind == Step::Kind::reduce || step.kind == Step::Kind::reduce_first;
  if (moves && (step.peer < 0 || step.peer >= shape_.size || step.peer == number)) {
    wrong_ = "a message to nobody";
    return false;
  }
  if (moves && step.bytes > shape_.piece_bytes) {
    wrong_ = "a message longer than a piece";
    return false;
  }
  if (step.kind == Step::Kind::send) {
    auto& out = queue(number, step.peer);
    if (out.size() >= room) return false;
    const std::uint64_t* from = at(rank, step.from, step.bytes);
    if (from == nullptr) return false;
    out.push_back({step.of, {from, from + count}});
    ++messages_;
  } else {
    Message message;
    if (moves) {
      auto& in = queue(step.peer, number);
      if (in.empty()) return false;
      message = std::move(in.front());
      in.pop_front();
      if (wrong_ = wrong_step(step, message); !wrong_.empty()) return false;
    }
    std::uint64_t* into = at(rank, step.into, step.bytes);
    if (into == nullptr) return false;
    const bool reads = step.kind != Step::Kind::receive && step.kind != Step::Kind::finish;
    const std::uint64_t* from = reads ? at(rank, step.from, step.bytes) : nullptr;
    if (reads && from == nullptr) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      switch (step.kind) {
        case Step::Kind::receive: into[i] = message.values[i]; break;
        case Step::Kind::reduce: into[i] = combined(from[i], message.values[i]); break;
        case Step::Kind::reduce_first: into[i] = combined(message.values[i], from[i]); break;
        case Step::Kind::fold: into[i] = combined(into[i], from[i]); break;
        case Step::Kind::copy: into[i] = from[i]; break;
        case Step::Kind::finish: into[i] ^= 1; break;  // shows that it is done, once
        case Step::Kind::scale: into[i] = from[i] * factor(number); break;
        case Step::Kind::send: break;
        default: wrong_ = "a step of types that are combined in f32"; return false;
      }
    }
  }
  ++rank.next;
  return true;
}

std::vector<std::uint64_t> ScheduleModel::expected(const Rank& rank) const {
  std::vector<std::uint64_t> all;
  const auto n = static_cast<std::uint64_t>(shape_.size), c = shape_.count;
  const auto me = static_cast<std::uint64_t>(rank.shape.rank);
  const std::uint64_t finished = shape_.average && shape_.size > 1 ? 1 : 0;
  switch (shape_.kind) {
    case CollectiveKind::barrier: break;
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
      for (std::uint64_t i = 0; i < c; ++i) all.push_back(sum(i) ^ finished);
      break;
    case CollectiveKind::broadcast:
      for (std::uint64_t i = 0; i < c; ++i) all.push_back(value(shape_.root, i));
      break;
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
      for (std::uint64_t i = 0; i < n * c; ++i) all.push_back(value(static_cast<int>(i / c), i % c));
      break;
    case CollectiveKind::scatter:
      for (std::uint64_t i = 0; i < c; ++i) all.push_back(value(shape_.root, me * c + i));
      break;
    case CollectiveKind::reduce_scatter:
      for (std::uint64_t i = 0; i < c; ++i) all.push_back(sum(me * c + i) ^ finished);
      break;
    case CollectiveKind::all_to_all:
      for (std::uint64_t i = 0; i < n * c; ++i) all.push_back(value(static_cast<int>(i / c), me * c + i % c));
      break;
    case CollectiveKind::all_to_allv:
      for (std::size_t p = 0; p < n; ++p) {
        for (std::size_t i = 0; i < blocks_[p][me]; ++i)
          all.push_back(value(static_cast<int>(p), ranks_[p].send_offsets[me] + i));
        all.push_back(kUnset);
      }
      break;
  }
  return all;
}

std::string ScheduleModel::compare_rank(const Rank& rank) const {
  const std::vector<std::uint64_t> want = has_output(rank.shape) ? expected(rank) : std::vector<std::uint64_t>();
  auto& self = const_cast<ScheduleModel&>(*this);
  const std::uint64_t* got =
      self.at(self.ranks_[static_cast<std::size_t>(rank.shape.rank)], {Buffer::output, 0}, want.size() * 8);
  if (got == nullptr) return wrong_;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (got[i] != want[i])
      return "rank " + std::to_string(rank.shape.rank) + " has a wrong value at " + std::to_string(i);
  if (!shape_.in_place)
    for (std::size_t i = 0; i < rank.input.size(); ++i)
      if (rank.input[i] != value(rank.shape.rank, i))
        return "rank " + std::to_string(rank.shape.rank) + " has changed its input";
  return {};
}

std::string ScheduleModel::compare() const {
  for (const auto& queue : between_)
    if (!queue.empty()) return "a message was never received";
  for (const Rank& rank : ranks_)
    if (std::string wrong = compare_rank(rank); !wrong.empty()) return wrong;
  return {};
}

std::string ScheduleModel::run(Order order, std::uint64_t seed, unsigned room) {
  prepare();
  std::mt19937_64 random(seed);
  std::vector<int> turns(static_cast<std::size_t>(shape_.size));
  for (int i = 0; i < shape_.size; ++i) turns[static_cast<std::size_t>(i)] = i;
  if (order == Order::last_that_can) std::reverse(turns.begin(), turns.end());
  for (bool moved = true; moved && wrong_.empty();) {
    moved = false;
    if (order == Order::random) std::shuffle(turns.begin(), turns.end(), random);
    for (const int rank : turns) {
      // A rank goes on as far as it can, or does one step.
      while (step(rank, room)) {
        moved = true;
        if (order == Order::round_robin || order == Order::random) break;
      }
      if (moved && order != Order::round_robin && order != Order::random) break;
    }
  }
  if (!wrong_.empty()) return wrong_;
  for (const Rank& rank : ranks_)
    if (rank.next != rank.schedule.steps.size())
      return "deadlock: rank " + std::to_string(rank.shape.rank) + " stands at step " + std::to_string(rank.next);
  return compare();
}

}  // namespace fairway::collectives
