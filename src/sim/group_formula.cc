#include <algorithm>
#include <bit>

#include "collectives/host/schedule.h"
#include "sim/group.h"

namespace fairway::sim {
namespace {

constexpr std::uint64_t kHeader = 64;
constexpr double kAtOnce = 8;  // of the engine's transfers that a communicator has on their way

int log2_up(int n) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(n) - 1U));
}

class Counting {
 public:
  explicit Counting(const GroupCall& call) : call_(call), n_(static_cast<std::uint64_t>(call.ranks)) {}

  [[nodiscard]] std::uint64_t pieces(std::uint64_t bytes) const {
    return std::max<std::uint64_t>(1, (bytes + call_.piece - 1) / call_.piece);
  }
  // One block, in pieces.
  void block(std::uint64_t bytes) {
    sent_.messages += pieces(bytes);
    sent_.bytes += bytes;
  }
  void blocks(std::uint64_t bytes, std::uint64_t times) {
    for (; times > 0; --times) block(bytes);
  }
  // Of a vector cut into a part for each rank.
  [[nodiscard]] std::uint64_t part(std::uint64_t of) const {
    return 8 * (call_.count / n_ + (of % n_ < call_.count % n_ ? 1 : 0));
  }
  void parts_without(std::uint64_t one) {
    for (std::uint64_t k = 0; k < n_; ++k)
      if (k != one % n_) block(part(k));
  }
  void all_reduce(std::uint64_t rank) {
    const std::uint64_t power = std::bit_floor(n_);
    switch (call_.algorithm) {
      case Algorithm::one_shot: return blocks(call_.bytes(), n_ - 1);
      case Algorithm::direct: parts_without(rank); return blocks(part(rank), n_ - 1);
      case Algorithm::ring: parts_without(rank + 1); return parts_without(rank + 2);
      case Algorithm::hierarchical: return in_levels(rank);
      default: break;
    }
    blocks(call_.bytes(), rank >= power ? 1 : std::bit_width(power) - 1U + (rank < n_ - power ? 1 : 0));
  }
  // Hosts of so many consecutive ranks, the last one of what is left.
  void in_levels(std::uint64_t rank) {
    const auto per = static_cast<std::uint64_t>(call_.per_host), hosts = (n_ + per - 1) / per;
    const std::uint64_t last = n_ - (hosts - 1) * per, here = rank / per + 1 == hosts ? last : per;
    const auto parts =
        static_cast<std::uint64_t>(collectives::parts_in_levels(static_cast<int>(std::min(per, last)), call_.bytes()));
    const std::uint64_t place = rank % per;
    const auto part = [&](std::uint64_t k) { return 8 * (call_.count / parts + (k < call_.count % parts ? 1 : 0)); };
    for (std::uint64_t k = 0; k < parts; ++k)
      if (k != place) block(part(k));
    if (place >= parts) return;
    GroupCall between = call_;
    between.ranks = static_cast<int>(hosts);
    between.count = part(place) / 8;
    between.algorithm = collectives::algorithm_between_groups(between.ranks, part(place), call_.piece);
    const Sent others = Counting(between).of(rank / per);
    sent_.messages += others.messages;
    sent_.bytes += others.bytes - kHeader * others.messages;
    blocks(part(place), here - 1);
  }
  void bruck() {
    for (std::uint64_t distance = 1; distance < n_; distance *= 2) {
      std::uint64_t moved = std::min(distance, n_ - distance);
      if (call_.kind == CollectiveKind::all_to_all) {
        moved = 0;
        for (std::uint64_t i = 0; i < n_; ++i) moved += (i & distance) != 0 ? 1 : 0;
      }
      block(moved * call_.bytes());
    }
  }
  void broadcast(std::uint64_t v) {
    if (call_.algorithm == Algorithm::chain) return blocks(call_.bytes(), v + 1 < n_ ? 1 : 0);
    const std::uint64_t own = v == 0 ? std::bit_ceil(n_) : v & (~v + 1);
    for (std::uint64_t mask = 1; mask < own; mask *= 2) blocks(call_.bytes(), v + mask < n_ ? 1 : 0);
  }
  Sent of(std::uint64_t rank) {
    const std::uint64_t v = (rank + n_ - static_cast<std::uint64_t>(call_.root)) % n_;
    bool barrier = !call_.local;
    switch (call_.kind) {
      case CollectiveKind::barrier: break;
      case CollectiveKind::all_reduce: all_reduce(rank), barrier = false; break;
      case CollectiveKind::reduce:
      case CollectiveKind::gather: blocks(call_.bytes(), v == 0 ? 0 : 1); break;
      case CollectiveKind::broadcast: broadcast(v); break;
      case CollectiveKind::scatter: blocks(call_.bytes(), v == 0 ? n_ - 1 : 0); break;
      case CollectiveKind::all_gather:
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::all_to_all:
      case CollectiveKind::all_to_allv:
        call_.algorithm == Algorithm::bruck ? bruck() : blocks(call_.bytes(), n_ - 1);
        barrier = false;
        break;
    }
    if (barrier) sent_.messages += static_cast<std::uint64_t>(log2_up(call_.ranks));
    sent_.bytes += kHeader * sent_.messages;
    return sent_;
  }

 private:
  const GroupCall& call_;
  const std::uint64_t n_;
  Sent sent_;
};

class Timing {
 public:
  Timing(const GroupCall& call, const SteadyLink& link)
      : call_(call), link_(link), n_(call.ranks), latency_(static_cast<double>(link.latency)) {}

  [[nodiscard]] double wire(double bytes) const {
    return static_cast<double>(link_.message) + (bytes + kHeader) * 1e9 / static_cast<double>(link_.bytes_per_second);
  }
  [[nodiscard]] double pieces(double bytes) const {
    return static_cast<double>(Counting(call_).pieces(static_cast<std::uint64_t>(bytes)));
  }
  [[nodiscard]] double all(double bytes) const {  // pieces one after the other
    return pieces(bytes) * wire(0) + wire(bytes) - wire(0);
  }
  [[nodiscard]] double first(double bytes) const {  // of its pieces
    return wire(std::min(bytes, static_cast<double>(call_.piece)));
  }
  [[nodiscard]] double swap(double bytes) const {
    const double m = pieces(bytes), pairs = static_cast<double>(static_cast<std::uint64_t>(m + 1) / 2);
    return std::max(latency_ + all(bytes), pairs * latency_ + all(bytes) * pairs / m);
  }
  [[nodiscard]] double fan(double bytes) const { return latency_ + (n_ - 1) * all(bytes); }
  // Slots, in fours, with so many records on their way. Those of the first `hidden` cost nothing.
  [[nodiscard]] double given_back(double bytes, double hidden = 0) const {
    return std::max(0.0, (n_ - 1) * pieces(bytes) - hidden) / 4 * 2 * latency_ / kAtOnce;
  }
  [[nodiscard]] double rounds() const { return log2_up(call_.ranks); }
  [[nodiscard]] double barrier() const { return call_.local ? 0 : rounds() * (latency_ + wire(0)); }
  // Pieces follow the first one as fast as the busiest rank sends them, or receives them.
  [[nodiscard]] double tree(double bytes) const {
    const bool chain = call_.algorithm == Algorithm::chain;
    // A binomial tree's furthest rank is the one below n with the most binary ones.
    const double depth = chain ? n_ - 1 : std::bit_width(static_cast<unsigned>(call_.ranks)) - 1;
    const double width = chain ? 1 : rounds();
    // Who sends to several sends to the furthest subtree first, so the last one down there has waited for one message
    // for each round, which a barrier hides.
    const bool shows = call_.local && !chain && call_.kind == CollectiveKind::broadcast;
    const double waits = shows ? rounds() - depth : 0;
    const double path = depth * (latency_ + first(bytes)), rest = all(bytes) - first(bytes);
    // The root's children send when their subtrees are ready, so the further pieces of most come while it waits for the
    // deepest; a barrier shows them.
    if (call_.local && call_.kind == CollectiveKind::reduce)
      return std::max(path + rest, latency_ + width * all(bytes));
    return path + waits * first(bytes) + width * rest;
  }
  [[nodiscard]] double bruck(double bytes) const {
    double time = 0;
    for (int distance = 1; distance < call_.ranks; distance *= 2) {
      double moved = std::min(distance, call_.ranks - distance);
      if (call_.kind == CollectiveKind::all_to_all) {
        moved = 0;
        for (int i = 0; i < call_.ranks; ++i) moved += (i & distance) != 0 ? 1 : 0;
      }
      time += swap(moved * bytes);
    }
    return time;
  }
  // Owners hear from their host, then from each other, and tell their host.
  [[nodiscard]] double in_levels() const {
    const int hosts = (call_.ranks + call_.per_host - 1) / call_.per_host;
    const int least = call_.ranks - (hosts - 1) * call_.per_host;
    const int parts = collectives::parts_in_levels(std::min(call_.per_host, least), call_.bytes());
    GroupCall within = call_, between = call_;
    between.count = (call_.count + static_cast<std::uint64_t>(parts) - 1) / static_cast<std::uint64_t>(parts);
    between.ranks = hosts;
    between.algorithm = collectives::algorithm_between_groups(hosts, between.bytes(), call_.piece);
    within.ranks = call_.per_host;
    const Timing near(within, link_);
    const auto bytes = static_cast<double>(between.bytes());
    const double slots = parts > 1 ? near.given_back(bytes) : 0;  // one owner does not wait for them
    return 2 * (near.fan(bytes) + slots) + Timing(between, link_).all_reduce(bytes);
  }
  [[nodiscard]] double all_reduce(double bytes) const {
    const double part = 8 * static_cast<double>((call_.count + static_cast<std::uint64_t>(n_) - 1) /
                                                static_cast<std::uint64_t>(n_));  // the longest
    switch (call_.algorithm) {
      case Algorithm::one_shot: return fan(bytes) + given_back(bytes);
      case Algorithm::direct: return 2 * (fan(part) + given_back(part));
      case Algorithm::ring: return 2 * (n_ - 1) * swap(part);
      case Algorithm::hierarchical: return in_levels();
      default: break;
    }
    const bool power = std::has_single_bit(static_cast<unsigned>(call_.ranks));
    // Ranks beyond the power of two below. The last of their pieces comes behind two that the partner of the first
    // swap, which waits for nothing, has sent by then.
    const double beside = pieces(bytes) > 1 ? all(std::min(bytes, 2 * static_cast<double>(call_.piece))) : 0;
    const double more = power ? 0 : 2 * (latency_ + all(bytes)) + beside;
    return more + (power ? rounds() : rounds() - 1) * swap(bytes);
  }
  [[nodiscard]] double of() const {
    const auto bytes = static_cast<double>(call_.bytes());
    switch (call_.kind) {
      case CollectiveKind::barrier: return barrier();
      case CollectiveKind::all_reduce: return all_reduce(bytes);
      case CollectiveKind::reduce:
      case CollectiveKind::broadcast: return tree(bytes) + barrier();
      // The root gives slots back meanwhile, as ranks do that all get a fan: a barrier hides it, and without one the
      // fan hides as many records as are on their way at once.
      case CollectiveKind::gather: return fan(bytes) + (call_.local ? given_back(bytes, kAtOnce) : barrier());
      case CollectiveKind::scatter: return fan(bytes) + barrier();
      case CollectiveKind::all_gather:
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::all_to_all:
      case CollectiveKind::all_to_allv: break;
    }
    if (call_.algorithm == Algorithm::bruck) return bruck(bytes);
    return call_.algorithm == Algorithm::ring ? (n_ - 1) * swap(bytes) : fan(bytes) + given_back(bytes);
  }

 private:
  const GroupCall& call_;
  const SteadyLink& link_;
  const double n_, latency_;
};

}  // namespace

Sent expected_sent(const GroupCall& call, int rank) {
  return Counting(call).of(static_cast<std::uint64_t>(rank));
}

double expected_ns(const GroupCall& call, const SteadyLink& link) {
  return Timing(call, link).of() + (call.local ? 0 : static_cast<double>(link.latency));
}

}  // namespace fairway::sim
