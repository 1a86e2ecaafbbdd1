#include "engine/path_explainer.h"

#include <algorithm>
#include <utility>

#include "engine/tables/route.h"

namespace fairway::engine {
namespace {

constexpr std::uint16_t kNoTransport = 0xffff;

}  // namespace

Method PathExplainer::plan(Explanation& out, const Request& request) {
  TransferEnds ends = rates_.ends_of(request);
  const Route route = as_staged(request, routes_.route_for(request, ends.here), ends);
  links(out, &route, 0, ends, &request);
  path(out, route, request);
  return route.method;
}

// Empty: nothing is missing.
std::string PathExplainer::why_without(const Request& request, std::size_t link) {
  const std::uint16_t transport = links_[link].transport;
  const Routes::Memories memories = routes_.memories(request);
  if ((memories.without >> transport & 1) == 0) {
    std::string why;
    const bool partly = (memories.partly >> transport & 1) != 0;
    if (partly && !routes_.has_memories(links_[link], request, &why)) return why;
    if (is_atomic(request.operation)) return {};
    const Routes::Unreached far = routes_.unreached(request);
    return (far.without >> transport & 1) == 0 ? std::string() : "it does not reach both memories: " + far.why;
  }
  const std::uint64_t blocks = is_atomic(request.operation) ? 0 : block_count(request.layout);
  for (std::uint64_t i = 0; i < blocks; ++i)
    if (const Status why = peer_.locals().why_without(block_at(request.layout, i).local, transport); !why)
      return "it refused this memory: " + why.message();
  return "the peer's memory is not registered with it: its device there refused it";
}

void PathExplainer::links(Explanation& out, const Route* chosen, std::uint64_t used, const TransferEnds& ends,
                          const Request* request) {
  const auto rate = [&](std::uint8_t i) {
    const std::uint64_t known = links_[i].rate(ends.here);
    return static_cast<double>(known > 0 ? known : kUnknownRate);
  };
  double total = 0;
  if (chosen != nullptr)
    for (const std::uint8_t i : chosen->chosen()) total += rate(i);
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    ExplainedLink line;
    line.name = link.text;
    rates_.expect(link, ends, line);
    const bool planned =
        chosen != nullptr && std::find(chosen->chosen().begin(), chosen->chosen().end(), i) != chosen->chosen().end();
    line.taken = planned || (used >> i & 1);
    if (planned && total > 0) line.share = rate(static_cast<std::uint8_t>(i)) / total;
    if (planned && chosen->method == Method::by_messages)
      line.reason = "emulated by messages, with one copy on each side";
    if (planned && chosen->method == Method::staged)
      line.reason =
          (link.capabilities->memory_kinds & kDeviceBit) == 0
              ? "does not take a device's memory: staged, its bytes are copied through host memory"
              : why_without(*request, i) + "; staged, it moves between this side's memory and the peer's host memory";
    if (!line.taken) {
      switch (link.state) {
        case LinkState::proving: line.reason = "not verified yet"; break;
        case LinkState::ready:
          if (request != nullptr) line.reason = why_without(*request, i);
          if (chosen != nullptr && line.reason.empty())
            line.reason =
                link.one_of_way ? "another socket of its interface takes it: both ends have few cores" : "slower";
          break;
        case LinkState::closing: line.reason = "down, being closed: " + link.down_reason.message(); break;
        case LinkState::closed: line.reason = "down: " + link.why_down(); break;
      }
    }
    out.links.push_back(std::move(line));
  }
  for (const std::uint16_t transport : links_.connecting())
    out.links.push_back({std::string(peer_.transports()[transport]->name()), false, "not connected yet", 0, 0, 0, {}});
  for (const std::string& refusal : links_.refusals())
    out.links.push_back({refusal.substr(0, refusal.find(':')),
                         false,
                         refusal.substr(std::min(refusal.size(), refusal.find(':') + 2)),
                         0,
                         0,
                         0,
                         {}});
}

// For a staged transfer: the links to the peer's host memory, straight from this side's device memory where possible.
Route PathExplainer::as_staged(const Request& request, const Route& route, TransferEnds& ends) {
  if (route.method != Method::staged) return route;
  const RegionId local = block_at(request.layout, 0).local;
  const auto leased = staging_.reached_from(local);
  if (!leased) return route;
  Request inner;
  inner.operation = op_of(request.operation) == transport::Op::write ? Operation::write : Operation::read;
  inner.peer = peer_.id();
  inner.layout = Extent{{local, 0, 1}, {*leased, 0}};
  Route direct = routes_.route_for(inner, rates_.place_of(local));
  if (direct.method != Method::native) return route;
  direct.method = Method::staged;
  ends.there = rates_.place_of(*leased);
  return direct;
}

void PathExplainer::path(Explanation& out, const Route& route, const Request& request) {
  if (const std::string why = pool_.why_slow(); route.method == Method::staged && !why.empty())
    out.notes.push_back("the host memory to stage in is not pinned, which is slow: " + why);
  if (route.method != Method::native || request.operation == Operation::send || request.operation == Operation::receive)
    return;
  const RemoteRegionId region =
      is_atomic(request.operation) ? request.target.region : block_at(request.layout, 0).remote;
  std::uint16_t last = kNoTransport;
  for (const std::uint8_t i : route.chosen()) {
    const std::uint16_t transport = links_[i].transport;
    if (std::exchange(last, transport) == transport) continue;
    const auto handle = peer_.remotes().handle(peer_.owner(), region, transport);
    std::string path = handle ? "" : "cannot reach the region: " + handle.status().message();
    const std::uint64_t local = is_atomic(request.operation)
                                    ? kNotRegistered
                                    : peer_.locals().handle(block_at(request.layout, 0).local, transport);
    if (handle) (void)peer_.transports()[transport]->reach(links_[i].id, local, *handle, &path);
    const std::string name(peer_.transports()[transport]->name());
    if (!path.empty()) out.notes.push_back(name + ": " + path);
  }
}

}  // namespace fairway::engine
