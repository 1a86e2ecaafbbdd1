#include "nccl_net/settings.h"

#include <bit>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

namespace fairway::nccl {
namespace {

Status refuse(const char* name, std::string_view value, const std::string& wanted) {
  return {ErrorCode::invalid_argument, std::string(name) + " is \"" + std::string(value) + "\": it takes " + wanted};
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    if (comma != 0) parts.emplace_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return parts;
}

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::string_view text(const char* name) const {
    const char* value = environment_(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
  }
  void number(const char* name, std::uint64_t least, std::uint64_t most,
              const std::function<void(std::uint64_t)>& set) {
    const std::string_view value = text(name);
    if (value.empty()) return;
    std::uint64_t read = 0;
    const std::string_view digits = value.starts_with("0x") ? value.substr(2) : value;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), read, digits.size() == value.size() ? 10 : 16);
    if (error != std::errc() || end != value.data() + value.size() || read < least || read > most)
      return fail(refuse(name, value, "a number from " + std::to_string(least) + " to " + std::to_string(most)));
    set(read);
  }
  void flag(const char* name, bool& to) {
    const std::string_view value = text(name);
    if (value.empty()) return;
    if (value != "0" && value != "1") return fail(refuse(name, value, "0 or 1"));
    to = value == "1";
  }
  void fail(Status status) {
    if (status_) status_ = std::move(status);
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const Environment& environment_;
  Status status_;
};

void read_key(Reader& reader, EngineOptions& engine) {
  engine.job_key = reader.text("FAIRWAY_JOB_KEY");
  const std::string file(reader.text("FAIRWAY_JOB_KEY_FILE"));
  if (file.empty()) return;
  if (!engine.job_key.empty())
    return reader.fail(
        {ErrorCode::invalid_argument, "both FAIRWAY_JOB_KEY and FAIRWAY_JOB_KEY_FILE are set: keep one"});
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream key;
  key << stream.rdbuf();
  engine.job_key = key.str();
  while (!engine.job_key.empty() && engine.job_key.back() == '\n') engine.job_key.pop_back();
  if (engine.job_key.empty())
    reader.fail(refuse("FAIRWAY_JOB_KEY_FILE", file, "the path of a readable file with the key in it"));
}

struct RdmaNumber {
  const char* variable;
  std::uint32_t RdmaOptions::*field;
  std::uint32_t least, most;
};
constexpr RdmaNumber kRdmaNumbers[] = {{"FAIRWAY_RDMA_QUEUE_PAIRS", &RdmaOptions::queue_pairs, 1, 32},
                                       {"FAIRWAY_RDMA_TRAFFIC_CLASS", &RdmaOptions::traffic_class, 0, 255},
                                       {"FAIRWAY_RDMA_SERVICE_LEVEL", &RdmaOptions::service_level, 0, 15},
                                       {"FAIRWAY_RDMA_HOP_LIMIT", &RdmaOptions::hop_limit, 1, 255},
                                       {"FAIRWAY_RDMA_PKEY", &RdmaOptions::partition, 1, 0xffff},
                                       {"FAIRWAY_RDMA_TIMEOUT", &RdmaOptions::timeout, 1, 31},
                                       {"FAIRWAY_RDMA_RETRIES", &RdmaOptions::retries, 1, 7}};

// EngineOptions fields and the variables that set them.
constexpr std::pair<std::string_view, std::string_view> kVariables[] = {
    {"rdma.gid_index", "FAIRWAY_RDMA_GID"},
    {"rdma.queue_pairs", "FAIRWAY_RDMA_QUEUE_PAIRS"},
    {"rdma.partition", "FAIRWAY_RDMA_PKEY"},
    {"rdma.mtu", "FAIRWAY_RDMA_MTU"},
    {"transports", "FAIRWAY_TRANSPORTS"},
    {"listen", "FAIRWAY_LISTEN"},
    {"job_key", "FAIRWAY_JOB_KEY"},
    {"strict_isolation", "FAIRWAY_STRICT_ISOLATION"},
    {"peer_timeout", "FAIRWAY_PEER_TIMEOUT_MS"},
    {"workers", "FAIRWAY_WORKERS"},
};

void read_rdma(Reader& reader, RdmaOptions& rdma) {
  rdma.devices = split(reader.text("FAIRWAY_RDMA_DEVICES"));
  reader.number("FAIRWAY_RDMA_GID", 0, 255, [&](std::uint64_t index) { rdma.gid_index = static_cast<int>(index); });
  for (const RdmaNumber& each : kRdmaNumbers)
    reader.number(each.variable, each.least, each.most,
                  [&](std::uint64_t value) { rdma.*each.field = static_cast<std::uint32_t>(value); });
  reader.number("FAIRWAY_RDMA_MTU", 256, 4096, [&](std::uint64_t bytes) {
    rdma.mtu = static_cast<std::uint32_t>(bytes);
    if (!std::has_single_bit(rdma.mtu))
      reader.fail(refuse("FAIRWAY_RDMA_MTU", reader.text("FAIRWAY_RDMA_MTU"), "256, 512, 1024, 2048 or 4096"));
  });
  reader.number("FAIRWAY_RDMA_CM", 0, 1, [&](std::uint64_t value) { rdma.connection_manager = value == 1; });
  const std::string_view paging = reader.text("FAIRWAY_RDMA_ON_DEMAND");
  if (paging == "off") rdma.on_demand = OnDemand::off;
  if (paging == "always") rdma.on_demand = OnDemand::always;
  if (!paging.empty() && paging != "off" && paging != "when-short" && paging != "always")
    reader.fail(refuse("FAIRWAY_RDMA_ON_DEMAND", paging, "off, when-short or always"));
}

void read_address(Reader& reader, std::string_view listen, EngineOptions& engine) {
  engine.listen = listen;
  const std::size_t bracket = engine.listen.rfind(']');
  if (engine.listen.find(':', bracket == std::string::npos ? 0 : bracket) == std::string::npos) engine.listen += ":0";
  if (engine.listen.starts_with("0.0.0.0") || engine.listen.starts_with("[::]"))
    reader.fail(refuse("FAIRWAY_LISTEN", listen, "one address of this host that other hosts reach, not a wildcard"));
}

// With a key, ranks on other hosts are expected. Without one, only this host may connect.
void read_listen(Reader& reader, const Environment& environment, const std::function<HostNetwork()>& host,
                 Settings& settings) {
  EngineOptions& engine = settings.engine;
  const auto listen = reader.text("FAIRWAY_LISTEN");
  if (listen == "auto" || (listen.empty() && !engine.job_key.empty())) {
    auto own = own_address(environment, host());
    if (!own) return reader.fail(own.status());
    engine.listen = own->ipv6 ? "[" + own->address + "]:0" : own->address + ":0";
    settings.why_there = std::move(own->why);
  } else if (!listen.empty()) {
    read_address(reader, listen, engine);
  }
  if (settings.beyond_this_host() && engine.job_key.empty())
    reader.fail({ErrorCode::invalid_argument, "FAIRWAY_LISTEN is \"" + std::string(listen) +
                                                  "\", which other hosts can reach: set FAIRWAY_JOB_KEY to the same "
                                                  "key on every host (`fairway nccl env` makes one)"});
}

bool is_loopback(const std::string& listen) {
  return listen.starts_with("127.") || listen.starts_with("[::1]") || listen.starts_with("localhost");
}

}  // namespace

bool Settings::beyond_this_host() const {
  return !is_loopback(engine.listen);
}

Result<Settings> read_settings(const Environment& environment, const std::function<HostNetwork()>& host) {
  Settings settings;
  EngineOptions& engine = settings.engine;
  Reader reader(environment);
  read_key(reader, engine);
  read_listen(reader, environment, host, settings);
  engine.transports = split(reader.text("FAIRWAY_TRANSPORTS"));
  engine.interfaces = split(reader.text("FAIRWAY_INTERFACES"));
  settings.rails = split(reader.text("FAIRWAY_RAILS"));
  if (!settings.rails.empty() && !engine.interfaces.empty())
    reader.fail({ErrorCode::invalid_argument, "both FAIRWAY_RAILS and FAIRWAY_INTERFACES are set: keep one"});
  read_rdma(reader, engine.rdma);
  if (!settings.rails.empty() && !engine.rdma.devices.empty())
    reader.fail({ErrorCode::invalid_argument, "both FAIRWAY_RAILS and FAIRWAY_RDMA_DEVICES are set: keep one"});
  reader.flag("FAIRWAY_STRICT_ISOLATION", engine.strict_isolation);
  reader.number("FAIRWAY_PEER_TIMEOUT_MS", 10, 600000,
                [&](std::uint64_t ms) { engine.peer_timeout = std::chrono::milliseconds(ms); });
  reader.number("FAIRWAY_CONNECT_TIMEOUT_MS", 10, 3600000,
                [&](std::uint64_t ms) { settings.connect_timeout = std::chrono::milliseconds(ms); });
  reader.number("FAIRWAY_SPIN_US", 0, 1000000, [&](std::uint64_t us) { engine.spin = std::chrono::microseconds(us); });
  engine.progress =
      Progress::caller;  // NCCL's threads poll; a thread between them and the bytes would cost two hand-offs
  reader.number("FAIRWAY_WORKERS", 0, 64, [&](std::uint64_t count) {
    if (count != 0) engine.progress = Progress::threads;
    engine.workers = static_cast<std::uint32_t>(std::max<std::uint64_t>(count, 1));
  });
  reader.number("FAIRWAY_ENGINES", 1, 16,
                [&](std::uint64_t count) { settings.engines = static_cast<std::uint32_t>(count); });
  if (settings.engines > 1 && settings.has_own_port())
    reader.fail({ErrorCode::invalid_argument, "FAIRWAY_LISTEN is \"" + engine.listen +
                                                  "\", a port that only one engine can have, and FAIRWAY_ENGINES is " +
                                                  std::to_string(settings.engines) + ": leave the port out, or set 1"});
  const auto memory = reader.text("FAIRWAY_GPU_MEMORY");
  settings.gpu_memory = memory == "on";
  if (!memory.empty() && memory != "on" && memory != "off")
    reader.fail(refuse("FAIRWAY_GPU_MEMORY", memory, "on or off"));
  // A communicator of n ranks has up to 2 n connections for each of up to 64 channels, with three buffers each.
  engine.max_peers = 4096;
  engine.max_transfers = 8192;
  engine.max_regions = 32768;
  engine.max_remote_regions = 65536;
  engine.notifications_per_peer = 256;
  if (!reader.status()) return reader.status();
  return settings;
}

Status in_variables(const Status& status, const Settings& settings) {
  std::string message = status.message();
  const auto say = [&](std::string_view field, std::string_view variable) {
    const std::string name = "EngineOptions::" + std::string(field);
    for (std::size_t at = message.find(name); at != std::string::npos; at = message.find(name, at + 1))
      message.replace(at, name.size(), variable);
  };
  for (const auto& [field, variable] : kVariables) say(field, variable);
  say("rdma.devices", settings.rails.empty() ? "FAIRWAY_RDMA_DEVICES" : "FAIRWAY_RAILS");
  say("interfaces", settings.rails.empty() ? "FAIRWAY_INTERFACES" : "FAIRWAY_RAILS");
  return {status.code(), message};
}

}  // namespace fairway::nccl
