#include "rdma_flags.h"

#include <array>
#include <cctype>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arguments.h"

namespace fairway::tool {
namespace {

constexpr const char* kHeading = "RDMA NICs";

const std::map<std::string, OnDemand> kOnDemand{
    {"off", OnDemand::off}, {"when-short", OnDemand::when_short}, {"always", OnDemand::always}};

struct Number {
  const char* flag;
  const char* type;
  std::uint32_t RdmaOptions::*field;
  std::uint32_t least, most;
  const char* sentence;
};
constexpr Number kNumbers[] = {
    {"--queue-pairs", "COUNT", &RdmaOptions::queue_pairs, 1, 32,
     "Queue pairs to each port of the peer (default: 1, or 1 for each leg of a bond)"},
    {"--traffic-class", "CLASS", &RdmaOptions::traffic_class, 0, 255, "RoCE traffic class: DSCP and ECN bits"},
    {"--service-level", "LEVEL", &RdmaOptions::service_level, 0, 15, "InfiniBand service level, or RoCE priority"},
    {"--hop-limit", "HOPS", &RdmaOptions::hop_limit, 1, 255, "IP hop limit of RoCE packets"},
    {"--pkey", "KEY", &RdmaOptions::partition, 1, 0xffff,
     "InfiniBand partition key, for example 0x8001 (default: the port's first)"},
    {"--ack-timeout", "EXPONENT", &RdmaOptions::timeout, 1, 31,
     "Retransmit an unacknowledged packet after 4.096 us << EXPONENT"},
    {"--retries", "COUNT", &RdmaOptions::retries, 1, 7, "Retransmissions before the link is declared down"},
};

// Fields of EngineOptions and the flags that commands have for them.
constexpr std::pair<const char*, const char*> kFlags[] = {
    {"rdma.devices", "--rdma-device"},
    {"rdma.gid_index", "--gid"},
    {"rdma.queue_pairs", "--queue-pairs"},
    {"rdma.traffic_class", "--traffic-class"},
    {"rdma.service_level", "--service-level"},
    {"rdma.hop_limit", "--hop-limit"},
    {"rdma.partition", "--pkey"},
    {"rdma.timeout", "--ack-timeout"},
    {"rdma.retries", "--retries"},
    {"rdma.mtu", "--mtu"},
    {"rdma.on_demand", "--on-demand"},
    {"rdma.connection_manager", "--rdma-cm"},
    {"directory", "--directory"},
    {"job_key", "--key"},
    {"listen", "--listen"},
    {"machine", "--from"},
    {"transports", "--via"},
};

}  // namespace

void add_rdma_flags(CLI::App& command, RdmaOptions& options) {
  add_list(command, "--rdma-device", options.devices,
           "Use only these devices or ports: mlx5_0,mlx5_1/1 (default: all that are up)")
      ->group(kHeading);
  command.add_option("--gid", options.gid_index, "GID index of each port (default: the first routable RoCE v2 GID)")
      ->type_name("INDEX")
      ->check(CLI::Range(0, 255))
      ->group(kHeading);
  for (const Number& each : kNumbers)
    command.add_option(each.flag, options.*each.field, each.sentence)
        ->type_name(each.type)
        ->check(CLI::Range(each.least, each.most))
        ->capture_default_str()
        ->group(kHeading);
  command.add_option("--mtu", options.mtu, "Path MTU in bytes (default: the largest that both ports support)")
      ->check(CLI::IsMember(std::vector<std::uint32_t>{256, 512, 1024, 2048, 4096}))
      ->group(kHeading);
  command
      .add_flag("--rdma-cm", options.connection_manager, "Connect RoCE queue pairs by rdma_cm, as iWARP's always are")
      ->group(kHeading);
  command
      .add_option_function<std::string>(
          "--on-demand", [&options](const std::string& word) { options.on_demand = kOnDemand.at(word); },
          "On-demand paging instead of pinning: never, when the locked-memory limit is reached, or always (default: "
          "when-short)")
      ->check(one_of({"off", "when-short", "always"}))
      ->group(kHeading);
}

std::vector<std::string> words_of(const RdmaOptions& options) {
  const RdmaOptions usual;
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const auto& value) {
    words.insert(words.end(), {flag, fmt::format("{}", value)});
  };
  if (!options.devices.empty()) add("--rdma-device", fmt::format("{}", fmt::join(options.devices, ",")));
  if (options.gid_index != usual.gid_index) add("--gid", options.gid_index);
  for (const Number& each : kNumbers)
    if (options.*each.field != usual.*each.field) add(each.flag, options.*each.field);
  if (options.mtu != usual.mtu) add("--mtu", options.mtu);
  if (options.connection_manager) words.emplace_back("--rdma-cm");
  for (const auto& [word, value] : kOnDemand)
    if (options.on_demand == value && value != usual.on_demand) add("--on-demand", word);
  return words;
}

namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

std::string in_flags(std::string message, const CLI::App& command) {
  for (const auto& [field, flag] : kFlags)
    if (command.get_option_no_throw(flag) != nullptr)
      replace_all(message, std::string("EngineOptions::") + field, flag);
  // Options without a flag of this command are described in words.
  constexpr std::string_view kOptions = "EngineOptions::";
  for (std::size_t at = message.find(kOptions); at != std::string::npos; at = message.find(kOptions)) {
    message.replace(at, kOptions.size(), "the engine's ");
    for (at += 13; at < message.size() && (std::isalnum(static_cast<unsigned char>(message[at])) != 0 ||
                                           message[at] == '_' || message[at] == '.');
         ++at)
      if (message[at] == '_') message[at] = ' ';
  }
  for (const char* each : {"read", "write", "atomic"})
    replace_all(message, std::string("Access::") + each, std::string(each) + " access");
  return message;
}

}  // namespace fairway::tool
