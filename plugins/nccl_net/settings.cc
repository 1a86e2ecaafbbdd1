#include "nccl_net/settings.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

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
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), read);
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

bool is_loopback(const std::string& listen) {
  return listen.starts_with("127.") || listen.starts_with("[::1]") || listen.starts_with("localhost");
}

}  // namespace

bool Settings::beyond_this_host() const {
  return !is_loopback(engine.listen);
}

Result<Settings> read_settings(const Environment& environment) {
  Settings settings;
  EngineOptions& engine = settings.engine;
  Reader reader(environment);
  read_key(reader, engine);
  if (const auto listen = reader.text("FAIRWAY_LISTEN"); !listen.empty()) {
    engine.listen = listen;
    const std::size_t bracket = engine.listen.rfind(']');
    if (engine.listen.find(':', bracket == std::string::npos ? 0 : bracket) == std::string::npos) engine.listen += ":0";
    if (engine.listen.starts_with("0.0.0.0") || engine.listen.starts_with("[::]"))
      reader.fail(refuse("FAIRWAY_LISTEN", listen, "an address of this host that the others reach, not every one"));
  }
  if (settings.beyond_this_host() && engine.job_key.empty())
    reader.fail(
        {ErrorCode::invalid_argument, "FAIRWAY_LISTEN is \"" + engine.listen +
                                          "\", which other hosts reach: set FAIRWAY_JOB_KEY, the same on every host"});
  engine.transports = split(reader.text("FAIRWAY_TRANSPORTS"));
  engine.interfaces = split(reader.text("FAIRWAY_INTERFACES"));
  settings.rails = split(reader.text("FAIRWAY_RAILS"));
  if (!settings.rails.empty() && !engine.interfaces.empty())
    reader.fail({ErrorCode::invalid_argument, "both FAIRWAY_RAILS and FAIRWAY_INTERFACES are set: keep one"});
  reader.flag("FAIRWAY_STRICT_ISOLATION", engine.strict_isolation);
  reader.number("FAIRWAY_PEER_TIMEOUT_MS", 10, 600000,
                [&](std::uint64_t ms) { engine.peer_timeout = std::chrono::milliseconds(ms); });
  reader.number("FAIRWAY_CONNECT_TIMEOUT_MS", 10, 3600000,
                [&](std::uint64_t ms) { settings.connect_timeout = std::chrono::milliseconds(ms); });
  reader.number("FAIRWAY_SPIN_US", 0, 1000000, [&](std::uint64_t us) { engine.spin = std::chrono::microseconds(us); });
  reader.number("FAIRWAY_WORKERS", 1, 64,
                [&](std::uint64_t count) { engine.workers = static_cast<std::uint32_t>(count); });
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

}  // namespace fairway::nccl
