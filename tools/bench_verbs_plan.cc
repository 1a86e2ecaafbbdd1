#include <algorithm>

#include <fmt/format.h>

#include "bench.h"
#include "bench_verbs.h"

namespace fairway::tool::bench::raw {
namespace {

constexpr std::uint64_t kFootprint = 4 << 20;  // of a batch, where that is enough operations and not too many
constexpr std::uint64_t kFewest = 4, kMost = 1024;

}  // namespace

std::string name_of(Type type) {
  return type == Type::rc ? "RC" : type == Type::uc ? "UC" : "UD";
}

std::string name_of(Action action) {
  switch (action) {
    case Action::write: return "write";
    case Action::write_immediate: return "write_immediate";
    case Action::read: return "read";
    case Action::send: return "send";
    case Action::fetch_add: return "fetch_add";
    case Action::compare_swap: return "compare_swap";
  }
  return {};
}

std::string text_of(const Shape& shape) {
  return fmt::format("{} {} of {}", name_of(shape.type), name_of(shape.action), size_text(shape.size));
}

std::uint32_t Shape::slots() const {
  const std::uint64_t by_size = std::clamp(kFootprint / stride(), kFewest, kMost);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(by_size, std::uint64_t{queue_pairs} * post_list));
}

std::uint32_t Shape::most_on_one_pair() const {
  const std::uint32_t lists = (slots() + post_list - 1) / post_list;
  const std::uint32_t in_lists = (lists + queue_pairs - 1) / queue_pairs * post_list;
  return std::max(in_lists, (slots() + queue_pairs - 1) / queue_pairs);
}

Status allowed(Type type, Action action, bool events) {
  const bool anything = type == Type::rc;
  const bool unreliable =
      type == Type::uc && (action == Action::write || action == Action::write_immediate || action == Action::send);
  if (!anything && !unreliable && action != Action::send)
    return {ErrorCode::invalid_argument,
            fmt::format("{0} {1} is no operation: queue pairs of type {0} carry {2}; take --type {3}", name_of(type),
                        name_of(action), type == Type::uc ? "write, write_immediate and send" : "send alone",
                        action == Action::write || action == Action::write_immediate ? "RC or UC" : "RC")};
  if (events && type == Type::uc && action == Action::write)
    return {ErrorCode::invalid_argument,
            "UC write with --events cannot be: nothing but its bytes says that it arrived; take write_immediate"};
  return {};
}

Status fits(const Shape& shape, std::uint32_t path_mtu) {
  const auto no = [&](const std::string& why) {
    return Status(ErrorCode::invalid_argument, text_of(shape) + " cannot be: " + why);
  };
  if (shape.type == Type::ud && shape.size > path_mtu)
    return no(fmt::format("a datagram has at most the path's MTU, {} bytes", path_mtu));
  if (shape.gathers > 1 && shape.atomic()) return no("an atomic has one piece of memory, and --sge asks for more");
  if (shape.gathers > shape.size) return no(fmt::format("--sge asks for {} pieces", shape.gathers));
  if (shape.slots() * shape.stride() > kMostMemory)
    return no(fmt::format("{} on their way at once need more than 1 GiB: take fewer queue pairs, or a shorter list",
                          shape.slots()));
  return {};
}

Counts Counts::since(const Counts& earlier) const {
  return {doorbells - earlier.doorbells,     requests - earlier.requests,
          completions - earlier.completions, receive_doorbells - earlier.receive_doorbells,
          receives - earlier.receives,       sleeps - earlier.sleeps};
}

void Counts::add(const Counts& other) {
  doorbells += other.doorbells;
  requests += other.requests;
  completions += other.completions;
  receive_doorbells += other.receive_doorbells;
  receives += other.receives;
  sleeps += other.sleeps;
}

}  // namespace fairway::tool::bench::raw
