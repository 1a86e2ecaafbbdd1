#include "engine/introspection.h"

#include <string>

#include <fmt/format.h>

#include "fairway/explain.h"

#include "engine/tables/route.h"
#include "topology/port_errors.h"
#include "topology/text.h"

namespace fairway::engine {
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
  if (is_atomic(operation)) return name_of(operation);
  return fmt::format("{} {} bytes{}", name_of(operation), bytes,
                     blocks > 1 ? fmt::format(" in {} pieces", blocks) : "");
}

void note_method(Method method, Explanation& out) {
  if (method == Method::by_messages)
    out.notes.emplace_back(
        "emulated: no link has this operation, so the peer's engine does it on request, with one copy on each side");
  if (method == Method::staged)
    out.notes.emplace_back(
        "staged: no link reaches both memories, so each engine copies between its GPU and pinned host memory, "
        "512 KiB at a time, and the links move the copies");
  if (method == Method::none) out.notes.emplace_back("no link can do this now");
}

}  // namespace

Introspection::Introspection(EngineTables& tables, MachineDiscovery::Source model, const Workers& workers,
                             Waiting& waiting)
    : tables_(tables),
      workers_(workers),
      waiting_(waiting),
      machine_(tables.runtime.executor, std::move(model), [this] {
        workers_.post_all([](Worker& each) { each.machine_known(); });
        waiting_.notice();
      }) {}

// If the rates of a peer's links depend on the machine, waits up to a second for its inspection, which runs once.
void Introspection::look_at_machine(PeerId id, Explanation& out) {
  bool asks = false;
  if (!workers_.with_peer(id, [&](Worker&, Peer& peer) { asks = peer.rates().asks_for_the_machine(); }) || !asks)
    return;
  machine_.want();
  (void)waiting_.wait_until(waiting_.deadline(kLookWithin), [&] { return machine_.ended() || waiting_.closed(); });
  if (!machine_.ended())
    out.notes.emplace_back("expected rates are not known yet: this machine is still being inspected");
  else if (const Status problem = machine_.problem(); !problem)
    out.notes.push_back("expected rates are unknown: " + problem.message());
  else
    machine_.close();  // its thread
}

Result<Explanation> Introspection::explain(const Request& request) {
  Explanation out;
  out.state = "planned";
  out.operation = describe_work(request.operation, total_bytes(request.layout), block_count(request.layout));
  if (is_of_any(request)) {
    out.peer = "any";
    out.notes.emplace_back("it takes the next message of its tag, whoever sends it, by that peer's links");
    return out;
  }
  look_at_machine(request.peer, out);
  const Status reached = workers_.with_peer(request.peer, [&](Worker&, Peer& peer) {
    out.peer = peer.text();
    note_method(peer.explainer().plan(out, request), out);
  });
  if (!reached) return reached;
  return out;
}

Result<Explanation> Introspection::explain(PeerId id) {
  Explanation out;
  out.operation = "any";
  look_at_machine(id, out);
  const Status reached = workers_.with_peer(id, [&](Worker&, Peer& peer) {
    out.peer = peer.text();
    peer.explainer().links(out, nullptr, 0, {kAnyNode, kNoPlace, true, false});
  });
  if (!reached) return reached;
  const auto info = tables_.peers.find(id);
  out.state = info && info->state == PeerTable::State::ready ? "ready" : "connecting";
  return out;
}

Result<Explanation> Introspection::explain(TransferId id) {
  Explanation out;
  std::optional<PeerId> peer;
  workers_.call_all([&](Worker& owner) {
    const auto entry = peer ? std::nullopt : owner.history(id);
    const auto current = peer || entry ? std::nullopt : owner.in_flight(id);
    if (entry || current) peer = entry ? entry->peer : current->peer;
  });
  if (peer && *peer) look_at_machine(*peer, out);  // before it says that there are no figures
  bool found = false;
  workers_.call_all([&](Worker& owner) {
    if (found) return;
    if (const auto past = owner.history(id)) {
      out.state = past->status.is_ok() ? "ok" : past->status.to_string();
      explain_as_it_went(owner, *past, out);
    } else if (const auto current = owner.in_flight(id)) {
      out.state = "in flight";
      explain_as_it_went(owner, *current, out);
    } else {
      return;
    }
    found = true;
  });
  if (!found) return Status(ErrorCode::not_found, "neither in flight nor among the last 1,024 transfers");
  return out;
}

void Introspection::explain_as_it_went(Worker& owner, const History& entry, Explanation& out) const {
  out.operation = describe_work(entry.operation, entry.bytes, 1);
  out.bytes_done = entry.bytes_done;
  out.retried_slices = entry.retried;
  out.seconds = static_cast<double>(entry.ended - entry.submitted) / 1e9;
  out.reached = out.seconds > 0 ? static_cast<double>(entry.bytes_done) / out.seconds : 0;
  note_method(entry.method == Method::none && entry.bytes_done > 0 ? Method::native : entry.method, out);
  if (!entry.peer) {
    out.peer = "any";
    out.notes.emplace_back("no message of its tag has come from any peer");
  } else if (Peer* peer = owner.peer_of(entry.peer)) {
    out.peer = peer->text();
    const bool outwards = entry.operation != Operation::read && entry.operation != Operation::receive;
    peer->explainer().links(out, nullptr, entry.links_used, {entry.place, entry.far_place, outwards, false});
  } else if (const auto info = tables_.peers.find(entry.peer)) {
    out.peer = info->peer.name;
    const GoneLinks* const gone = owner.links_of_gone(entry.peer);
    for (std::size_t i = 0; gone != nullptr && i < gone->names.size(); ++i)
      if ((entry.links_used >> i & 1) != 0) {
        ExplainedLink& link = out.links.emplace_back();
        link.name = gone->names[i];
        link.taken = true;
        link.bound = "its peer is gone";
      }
  }
}

std::vector<PortCounter> Introspection::port_counters() const {
  std::vector<PortCounter> out;
  for (const auto& transport : workers_.transports())  // every worker has the same ports
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

}  // namespace fairway::engine

namespace fairway {
namespace {

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
