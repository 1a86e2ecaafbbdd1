#include "module.h"

namespace fairway::python {
namespace {

py::dict latency_of(const Latency& in) {
  py::dict out;
  out["count"] = in.count;
  out["p50_ns"] = in.p50_ns;
  out["p90_ns"] = in.p90_ns;
  out["p99_ns"] = in.p99_ns;
  out["max_ns"] = in.max_ns;
  return out;
}

}  // namespace

py::dict metrics_of(const Engine& engine) {
  const Metrics metrics = unlocked([&] { return engine.metrics(); });
  py::list peers;
  for (const PeerMetrics& peer : metrics.peers) {
    py::dict one;
    one["id"] = py::make_tuple(peer.peer.slot, peer.peer.generation);
    one["name"] = peer.name;
    one["transfers_ok"] = peer.transfers_ok;
    one["transfers_failed"] = peer.transfers_failed;
    one["bytes"] = peer.bytes;
    one["notifications"] = peer.notifications;
    one["in_flight"] = peer.in_flight;
    one["latency"] = latency_of(peer.latency);
    peers.append(one);
  }
  py::list links;
  for (const LinkMetrics& link : metrics.links) {
    py::dict one;
    one["name"] = link.name;
    one["peer"] = py::make_tuple(link.peer.slot, link.peer.generation);
    one["up"] = link.up;
    one["bytes_out"] = link.bytes_out;
    one["slices"] = link.slices;
    one["errors"] = link.errors;
    one["retries"] = link.retries;
    one["failures"] = link.failures;
    one["in_flight"] = link.in_flight;
    links.append(one);
  }
  py::list transports;
  for (const TransportMetrics& transport : metrics.transports) {
    py::dict one;
    one["name"] = transport.name;
    one["system_calls"] = transport.system_calls;
    one["copied_bytes"] = transport.copied_bytes;
    transports.append(one);
  }
  py::dict out;
  out["peers"] = peers;
  out["links"] = links;
  out["transports"] = transports;
  out["transfers_in_use"] = metrics.transfers_in_use;
  out["regions"] = metrics.regions;
  out["back_pressure"] = metrics.back_pressure;
  return out;
}

py::dict port_counters_of(const Engine& engine) {
  py::dict out;
  for (const PortCounter& counter : unlocked([&] { return engine.port_counters(); }))
    out[py::make_tuple(counter.port, counter.name)] = counter.value;
  return out;
}

void bind_observe(py::module_& module) {
  py::class_<ExplainedLink>(module, "ExplainedLink", "One way that was taken, or refused, with the reason.")
      .def_readonly("name", &ExplainedLink::name)
      .def_readonly("taken", &ExplainedLink::taken)
      .def_readonly("reason", &ExplainedLink::reason)
      .def_readonly("share", &ExplainedLink::share, "of the bytes, 0 to 1")
      .def_readonly("expected_low", &ExplainedLink::expected_low, "bytes per second; 0: unknown")
      .def_readonly("expected_high", &ExplainedLink::expected_high)
      .def_readonly("bound", &ExplainedLink::bound, "what limits it")
      .def("__repr__", [](const ExplainedLink& l) {
        return "<fairway.ExplainedLink " + l.name + (l.taken ? " taken" : " not taken: " + l.reason) + ">";
      });
  py::class_<Explanation>(module, "Explanation", "Which way bytes take or took and why; print it.")
      .def_readonly("operation", &Explanation::operation)
      .def_readonly("peer", &Explanation::peer)
      .def_readonly("state", &Explanation::state)
      .def_readonly("links", &Explanation::links)
      .def_readonly("notes", &Explanation::notes)
      .def_readonly("bytes_done", &Explanation::bytes_done)
      .def_readonly("seconds", &Explanation::seconds)
      .def_readonly("reached", &Explanation::reached, "bytes per second; 0: unknown")
      .def_readonly("retried_slices", &Explanation::retried_slices)
      .def("__str__", &Explanation::text)
      .def("__repr__", &Explanation::text);
}

}  // namespace fairway::python
