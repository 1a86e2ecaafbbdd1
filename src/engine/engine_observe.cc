#include <algorithm>

#include <fmt/format.h>

#include "engine/operation.h"
#include "engine/state.h"
#include "topology/port_errors.h"
#include "topology/text.h"

// explain() and metrics(): values made by the workers that know, with the routes that transfers really take.
namespace fairway {
namespace {

constexpr Timeout kLookWithin = std::chrono::seconds(5);

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::write: return "write";
    case Operation::read: return "read";
    case Operation::send: return "send";
    case Operation::receive: return "receive";
    case Operation::fetch_add: return "fetch_add";
    case Operation::compare_swap: return "compare_swap";
  }
  return "transfer";
}

std::string describe_work(Operation operation, std::uint64_t bytes, std::uint64_t blocks) {
  if (engine::is_atomic(operation)) return name_of(operation);
  return fmt::format("{} {} bytes{}", name_of(operation), bytes,
                     blocks > 1 ? fmt::format(" in {} pieces", blocks) : "");
}

void note_method(engine::Method method, Explanation& out) {
  if (method == engine::Method::by_messages)
    out.notes.emplace_back(
        "emulated: no link has this operation, so the peer's engine does it on request, with one copy on each side");
  if (method == engine::Method::staged)
    out.notes.emplace_back(
        "staged: no link reaches both memories, so each engine copies between its GPU and pinned host memory, "
        "512 KiB at a time, and the links move the copies");
  if (method == engine::Method::none) out.notes.emplace_back("no link can do this now");
}

std::string rate(double bytes_per_second) {
  if (bytes_per_second <= 0) return "unknown";
  return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
}

// The expected rate, and what limits it.
std::string expected(const ExplainedLink& link) {
  const std::string bound = link.bound.empty() ? "" : " (" + link.bound + ")";
  if (link.expected_high <= 0) return ", expected: unknown" + bound;
  if (link.expected_low <= 0) return fmt::format(", expected: at most {:.2f} GB/s", link.expected_high / 1e9) + bound;
  return fmt::format(", expected: {:.1f} to {:.1f} GB/s", link.expected_low / 1e9, link.expected_high / 1e9) + bound;
}

}  // namespace

// If the rates of a peer's links depend on the machine, waits up to a second for its inspection, which runs once.
void Engine::State::look_at_machine(PeerId id, Explanation& out) {
  bool asks = false;
  if (!with_peer(id, [&](engine::Worker&, engine::Peer& peer) { asks = peer.asks_for_the_machine(); }) || !asks) return;
  machine.want();
  if (!wait_until(deadline(kLookWithin), [&] { return machine.ended(); }))
    out.notes.emplace_back("expected rates are not known yet: this machine is still being inspected");
  else if (const Status problem = machine.problem(); !problem)
    out.notes.push_back("expected rates are unknown: " + problem.message());
  else
    machine.close();  // its thread
}

Result<Explanation> Engine::explain(const Request& request) const {
  State& state = *state_;
  if (Status status = state.check(request); !status) return status;
  Explanation out;
  out.state = "planned";
  out.operation =
      describe_work(request.operation, engine::total_bytes(request.layout), engine::block_count(request.layout));
  state.look_at_machine(request.peer, out);
  const Status reached = state.with_peer(request.peer, [&](engine::Worker&, engine::Peer& peer) {
    engine::Peer::Ends ends = peer.ends_of(request);
    const engine::Route route = peer.as_staged(request, peer.route_for(request, ends.here), ends);
    out.peer = peer.text();
    peer.explain_links(out, &route, 0, ends, &request);
    peer.explain_way(out, route, request);
    note_method(route.method, out);
  });
  if (!reached) return reached;
  return out;
}

Result<Explanation> Engine::explain(PeerId id) const {
  Explanation out;
  out.operation = "any";
  state_->look_at_machine(id, out);
  const Status reached = state_->with_peer(id, [&](engine::Worker&, engine::Peer& peer) {
    out.peer = peer.text();
    peer.explain_links(out, nullptr, 0, {engine::kAnyNode, engine::kNoPlace, true, false});
  });
  if (!reached) return reached;
  const auto info = state_->peers.find(id);
  out.state = info && info->state == engine::PeerTable::State::ready ? "ready" : "connecting";
  return out;
}

Result<Explanation> Engine::explain(TransferId id) const {
  State& state = *state_;
  Explanation out;
  bool found = false;
  for (const auto& worker : state.workers) {
    worker->call([&](engine::Worker& owner) {
      if (found) return;
      engine::History entry;
      if (const auto past = owner.history(id)) {
        entry = *past;
        out.state = entry.status.is_ok() ? "ok" : entry.status.to_string();
      } else if (const auto current = owner.in_flight(id)) {
        entry = *current;
        out.state = "in flight";
      } else {
        return;
      }
      found = true;
      out.operation = describe_work(entry.operation, entry.bytes, 1);
      out.bytes_done = entry.bytes_done;
      out.retried_slices = entry.retried;
      out.seconds = static_cast<double>(entry.ended - entry.submitted) / 1e9;
      out.reached = out.seconds > 0 ? static_cast<double>(entry.bytes_done) / out.seconds : 0;
      note_method(entry.method == engine::Method::none && entry.bytes_done > 0 ? engine::Method::native : entry.method,
                  out);
      if (engine::Peer* peer = owner.peer_of(entry.peer)) {
        out.peer = peer->text();
        const bool outwards = entry.operation != Operation::read && entry.operation != Operation::receive;
        peer->explain_links(out, nullptr, entry.links_used, {entry.place, entry.far_place, outwards, false});
      } else if (const auto info = state.peers.find(entry.peer)) {
        out.peer = info->peer.name;
      }
    });
  }
  if (!found) return Status(ErrorCode::not_found, "neither in flight nor among the last 1,024 transfers");
  return out;
}

Metrics Engine::metrics() const {
  State& state = *state_;
  Metrics out;
  for (const auto& worker : state.workers) worker->call([&](engine::Worker& owner) { owner.collect(out); });
  out.transfers_in_use = state.transfers.used();
  {
    std::lock_guard lock(state.mutex);
    out.regions = state.local_regions.size();
  }
  out.back_pressure = state.back_pressure.load(std::memory_order_relaxed);
  return out;
}

std::vector<PortCounter> Engine::port_counters() const {
  std::vector<PortCounter> out;
  const State& state = *state_;
  if (state.workers.empty()) return out;
  for (const auto& transport : state.workers.front()->transports())  // every worker has the same ports
    for (const transport::Device& device : transport->devices()) {
      const std::size_t slash = device.name.rfind('/');
      const auto port = topology::text::to_u32(slash == std::string::npos ? "" : device.name.substr(slash + 1));
      if (!port) continue;
      for (auto& counter : topology::read_port_counters("/sys", device.name.substr(0, slash), *port))
        if (topology::tells_of_an_error(counter.name))
          out.push_back({device.name, std::move(counter.name), counter.value});
    }
  return out;
}

std::string Explanation::text() const {
  std::string text = fmt::format("{} to {}: {}\n", operation, peer.empty() ? "a peer that is gone" : peer, state);
  for (const ExplainedLink& link : links) {
    text += fmt::format("  {} {}", link.taken ? "used:    " : "not used:", link.name);
    if (link.share > 0 && link.share < 1) text += fmt::format(", {:.0f} % of the bytes", link.share * 100);
    if (link.taken) text += expected(link);
    if (!link.reason.empty()) text += ": " + link.reason;
    text += '\n';
  }
  if (seconds > 0) text += fmt::format("  {} bytes in {:.1f} us: {}\n", bytes_done, seconds * 1e6, rate(reached));
  if (retried_slices > 0) text += fmt::format("  {} slices moved to another link\n", retried_slices);
  for (const std::string& note : notes) text += "  " + note + '\n';
  return text;
}

}  // namespace fairway
