#include "module.h"
#include "transfers.h"

// EngineOptions from Python's keywords.
namespace fairway::python {
namespace {

std::vector<std::string> words(const py::object& given, const char* name) {
  if (given.is_none()) return {};
  if (py::isinstance<py::str>(given)) return {value_of<std::string>(given, name)};
  return value_of<std::vector<std::string>>(given, name);
}

// Takes options[name], when it is there, as a T.
template <class T>
void option(py::dict& options, const char* name, T& to) {
  if (!options.contains(name)) return;
  const py::object value = options[name];
  options.attr("pop")(name);
  if constexpr (std::is_same_v<T, std::vector<std::string>>)
    to = words(value, name);
  else if (!value.is_none())
    to = value_of<T>(value, name);
}

template <class Duration>
void seconds(py::dict& options, const char* name, Duration& to) {
  double value = std::chrono::duration<double>(to).count();
  option(options, name, value);
  if (!(value >= 0 && value <= 1e6))
    raise(ErrorCode::invalid_argument, std::string("option '") + name + "' is seconds, 0 to 10^6");
  to = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

void refuse_rest(const py::dict& options, const char* of) {
  for (const auto& [key, value] : options)
    raise(ErrorCode::invalid_argument, std::string(of) + " has no option '" + text_of(key, "an option's name") + "'");
}

void read_rdma(const py::object& given, RdmaOptions& to) {
  if (given.is_none()) return;
  if (!py::isinstance<py::dict>(given))
    raise(ErrorCode::invalid_argument, std::string("rdma is a dict of options, not ") + Py_TYPE(given.ptr())->tp_name);
  py::dict options(given.attr("copy")());
  option(options, "devices", to.devices);
  option(options, "gid_index", to.gid_index);
  option(options, "queue_pairs", to.queue_pairs);
  option(options, "service_level", to.service_level);
  option(options, "traffic_class", to.traffic_class);
  option(options, "hop_limit", to.hop_limit);
  option(options, "timeout", to.timeout);
  option(options, "retries", to.retries);
  option(options, "partition", to.partition);
  option(options, "mtu", to.mtu);
  option(options, "connection_manager", to.connection_manager);
  std::string on_demand = "when_short";
  option(options, "on_demand", on_demand);
  to.on_demand =
      choice<OnDemand>(on_demand, "on_demand",
                       {{"off", OnDemand::off}, {"when_short", OnDemand::when_short}, {"always", OnDemand::always}});
  refuse_rest(options, "rdma");
}

}  // namespace

EngineOptions engine_options(const py::dict& given) {
  py::dict options(given.attr("copy")());
  EngineOptions to;
  option(options, "name", to.name);
  option(options, "listen", to.listen);
  option(options, "job_key", to.job_key);
  option(options, "directory", to.directory);
  option(options, "workers", to.workers);
  option(options, "max_transfers", to.max_transfers);
  option(options, "max_regions", to.max_regions);
  option(options, "max_remote_regions", to.max_remote_regions);
  option(options, "max_peers", to.max_peers);
  option(options, "max_counters", to.max_counters);
  option(options, "notifications_per_peer", to.notifications_per_peer);
  option(options, "unexpected_bytes_per_peer", to.unexpected_bytes_per_peer);
  option(options, "prove_paths", to.prove_paths);
  option(options, "strict_isolation", to.strict_isolation);
  option(options, "keep_links_awake", to.keep_links_awake);
  option(options, "transports", to.transports);
  option(options, "interfaces", to.interfaces);
  option(options, "providers", to.providers);
  option(options, "machine", to.machine);
  seconds(options, "spin", to.spin);
  seconds(options, "peer_timeout", to.peer_timeout);
  std::string progress = "threads";
  option(options, "progress", progress);
  to.progress = choice<Progress>(progress, "progress", {{"threads", Progress::threads}, {"caller", Progress::caller}});
  if (options.contains("loopback")) {
    const py::object value = options.attr("pop")("loopback");
    if (!value.is_none()) to.loopback = value_of<PyLoopback>(value, "loopback").meeting_place;
  }
  if (options.contains("rdma")) read_rdma(options.attr("pop")("rdma"), to.rdma);
  refuse_rest(options, "Engine");
  return to;
}

PyEngine engine_of(std::shared_ptr<Engine> engine, std::string name) {
  auto session = std::make_shared<Session>(std::move(engine));
  auto tracker = std::make_shared<Tracker>(session);
  return {std::move(session), std::move(tracker), std::move(name)};
}

PyEngine open_engine(const py::kwargs& given) {
  const EngineOptions to = engine_options(given);
  auto opened = [&] {
    const Unlocked unlocked;
    return Engine::open(to);
  }();
  return engine_of(std::make_shared<Engine>(take(std::move(opened))), to.name);
}

}  // namespace fairway::python
