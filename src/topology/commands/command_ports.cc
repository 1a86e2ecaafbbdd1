#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/contradict.h"
#include "topology/sysfs.h"
#include "topology/text.h"

// What the tools for InfiniBand and RDMA say of ports: ibstat, ibstatus, show_gids, rdma.
namespace fairway::topology {
namespace {

// Where these tools read it.
constexpr auto kIbstat = Source::sysfs;
constexpr auto kShowGids = Source::sysfs;
constexpr auto kRdmaTool = Source::netlink;

// "Initializing", "4: ACTIVE", "DOWN" as sysfs has them.
std::string state_name(std::string_view word) {
  if (const auto colon = word.find(": "); colon != word.npos) word = word.substr(colon + 2);
  const auto low = text::lower(text::trim(word));
  return low == "active"                          ? "ACTIVE"
         : low == "down"                          ? "DOWN"
         : low == "initializing" || low == "init" ? "INIT"
         : low == "armed"                         ? "ARMED"
                                                  : text::quote(text::trim(word));
}

std::string physical_name(std::string_view word) {
  if (const auto colon = word.find(": "); colon != word.npos) word = word.substr(colon + 2);
  const auto low = text::lower(text::trim(word));
  return low == "linkup" || low == "link_up" ? "LinkUp"
         : low == "polling"                  ? "Polling"
         : low == "disabled"                 ? "Disabled"
                                             : text::quote(text::trim(word));
}

class PortReader {
 public:
  PortReader(Source source, RdmaByName& devices) : source_(source), devices_(devices) {}

  bool begin(std::string_view device, std::uint32_t number) {
    auto* const found = number == 0 || number > 255 ? nullptr : devices_.find_or_add(device);
    if (found == nullptr) return false;
    device_ = found;
    number_ = number;
    return true;
  }
  [[nodiscard]] RdmaDevice& device() const { return *device_; }
  [[nodiscard]] RdmaPort& port() const { return port_numbered(device(), number_); }

  // Where sources differ a port that is down to one of them counts as down: one of them is of another time.
  void learn_state(const std::string& state) {
    auto& known = port().state;
    if (is_cut_word(text::lower(state), {"active", "down", "init", "initializing", "armed"})) return;
    if (!known.learn(state, source_) && *known == "ACTIVE") known.set(state, source_);
  }
  void learn_physical(const std::string& state) {
    if (is_cut_word(state, {"linkup", "polling", "disabled", "sleep", "linkerrorrecovery"})) return;
    auto& known = port().physical_state;
    if (known && *known == "LinkUp") known.forget();
    known.learn(state, source_);
  }
  // The rate of a port that is not up is no rate.
  void learn_rate(double gbps) {
    if (gbps > 0 && gbps < 100000 && port().state.value_or("") == "ACTIVE") port().rate_gbps.learn(gbps, source_);
  }

 private:
  Source source_;
  RdmaByName& devices_;
  RdmaDevice* device_ = nullptr;  // until the next is added
  std::uint32_t number_ = 1;
};

// "key: value", of a line of any indent.
std::pair<std::string_view, std::string_view> key_value(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == line.npos) return {text::trim(line), {}};
  return {text::trim(line.substr(0, colon)), text::trim(line.substr(colon + 1))};
}

// The text between the first two quotes.
std::string_view quoted_name(std::string_view line) {
  const auto open = line.find('\'');
  const auto close = open == line.npos ? open : line.find('\'', open + 1);
  return close == line.npos ? std::string_view{} : line.substr(open + 1, close - open - 1);
}

std::optional<std::uint32_t> small_number(std::string_view value) {
  const auto hex = value.starts_with("0x") ? text::to_hex(value) : text::to_unsigned(value);
  if (!hex || *hex > 0xffffffffU) return {};
  return static_cast<std::uint32_t>(*hex);
}

void add_counter(Machine& machine, std::vector<Counter>& counters, std::string_view name, std::uint64_t value,
                 Source source) {
  const auto quoted = text::quote(name);
  if (std::ranges::any_of(counters, [&](const auto& one) { return one.name == quoted; })) return;
  if (counters.size() >= kCounterLimit.most) return leave_out(machine, kCounterLimit);
  counters.push_back({quoted, value, source});
}

}  // namespace

// "CA 'mlx5_0'", its fields, "Port 1:" and the port's. Where a grep left out the ports' headings, a field that comes
// again is the next port's.
std::size_t read_ibstat(std::string_view content, const std::string&, Machine& machine) {
  RdmaByName devices(machine, machine.rdma, kRdmaLimit);
  PortReader reader(kIbstat, devices);
  std::string_view name;
  bool in_port = false;
  std::uint32_t unheaded = 0;         // ports of this device so far that no heading numbers
  std::set<std::string_view> fields;  // of the last of them
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto trimmed = text::trim(line);
    if (trimmed.starts_with("CA '")) {
      name = quoted_name(trimmed);
      in_port = false;
      unheaded = 0;
      if (!name.empty() && !reader.begin(name, 1)) name = {};
      read += name.empty() ? 0 : 1;
      continue;
    }
    if (name.empty()) continue;
    const auto [key, value] = key_value(trimmed);
    if ((key == "State" || key == "Physical state" || key == "Rate") && (!in_port || unheaded > 0)) {
      if (!in_port || fields.contains(key)) {
        in_port = reader.begin(name, ++unheaded);
        fields.clear();
      }
      fields.insert(key);
    }
    if (key.starts_with("Port ") && value.empty()) {
      const auto number = text::to_u32(text::trim(key.substr(5)));
      in_port = number && reader.begin(name, *number);
      unheaded = 0;
    } else if (key == "CA type" && !value.empty()) {
      reader.device().hca_type.learn(text::quote(value), kIbstat);
    } else if (key == "Firmware version") {
      reader.device().firmware.learn(text::quote(value), kIbstat);
    } else if (key == "Node GUID") {
      reader.device().node_guid.learn(text::quote(value), kIbstat);
    } else if (in_port && key == "State") {
      reader.learn_state(state_name(value));
    } else if (in_port && key == "Physical state") {
      reader.learn_physical(physical_name(value));
    } else if (in_port && key == "Rate") {
      if (const auto rate = text::leading_double(value)) reader.learn_rate(*rate);
    } else if (in_port && key == "Link layer") {
      reader.port().link_layer.learn(text::quote(value), kIbstat);
    } else if (in_port && key == "Base lid") {
      if (const auto lid = small_number(value)) reader.port().lid.learn(*lid, kIbstat);
    } else if (in_port && key == "SM lid") {
      if (const auto lid = small_number(value)) reader.port().sm_lid.learn(*lid, kIbstat);
    }
  }
  return read;
}

// "Infiniband device 'mlx5_0' port 1 status:" and the port's fields.
std::size_t read_ibstatus(std::string_view content, const std::string&, Machine& machine) {
  RdmaByName devices(machine, machine.rdma, kRdmaLimit);
  PortReader reader(kIbstat, devices);
  bool in_port = false;
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto trimmed = text::trim(line);
    if (trimmed.starts_with("Infiniband device '")) {
      const auto at = trimmed.find("port ");
      const auto number = at == trimmed.npos ? std::nullopt : text::leading_unsigned(trimmed.substr(at + 5));
      in_port = number &&
                reader.begin(quoted_name(trimmed), static_cast<std::uint32_t>(std::min<std::uint64_t>(*number, 256)));
      read += in_port ? 1 : 0;
      continue;
    }
    if (!in_port) continue;
    const auto [key, value] = key_value(trimmed);
    if (key == "state") reader.learn_state(state_name(value));
    if (key == "phys state") reader.learn_physical(physical_name(value));
    if (key == "link_layer") reader.port().link_layer.learn(text::quote(value), kIbstat);
    if (key != "rate") continue;
    const auto rate = parse_port_rate(value);
    if (!rate) continue;
    reader.learn_rate(rate->gbps);
    if (reader.port().rate_gbps && *reader.port().rate_gbps == rate->gbps) {
      reader.port().lanes.learn(rate->lanes, kIbstat);
      reader.port().speed_name.learn(text::quote(rate->speed_name), kIbstat);
    }
  }
  return read;
}

// "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0"
std::size_t read_rdma_link(std::string_view content, const std::string&, Machine& machine) {
  RdmaByName devices(machine, machine.rdma, kRdmaLimit);
  PortReader reader(kRdmaTool, devices);
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    // Before iproute2 5.0 the name stood behind an index: "1/1: mlx5_0/1: state ACTIVE".
    if (words.size() < 4) continue;
    auto name = words[1];
    if (name.ends_with(':')) name.remove_suffix(1);
    const auto slash = name.rfind('/');
    const auto number = slash == name.npos ? std::nullopt : text::to_u32(name.substr(slash + 1));
    if (!number || !reader.begin(name.substr(0, slash), *number)) continue;
    ++read;
    for (std::size_t i = 2; i + 1 < words.size(); i += 2) {
      if (words[i] == "state") reader.learn_state(state_name(words[i + 1]));
      if (words[i] == "physical_state") reader.learn_physical(physical_name(words[i + 1]));
      if (words[i] == "netdev") reader.port().interface.learn(text::quote(words[i + 1]), kRdmaTool);
      if (words[i] == "lid") {
        if (const auto lid = small_number(words[i + 1])) reader.port().lid.learn(*lid, kRdmaTool);
      }
    }
  }
  return read;
}

// "link mlx5_1/1 rx_write_requests 88123 out_of_sequence 0 ..."; -p breaks it into several lines.
std::size_t read_rdma_statistic(std::string_view content, const std::string&, Machine& machine) {
  RdmaByName devices(machine, machine.rdma, kRdmaLimit);
  PortReader reader(kRdmaTool, devices);
  std::size_t read = 0;
  bool in_port = false;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    std::size_t next = 0;
    if (words.size() > 1 && words[0] == "link") {
      const auto slash = words[1].rfind('/');
      const auto number = slash == words[1].npos ? std::nullopt : text::to_u32(words[1].substr(slash + 1));
      in_port = number && reader.begin(words[1].substr(0, slash), *number);
      read += in_port ? 1 : 0;
      next = 2;
    }
    for (; in_port && next + 1 < words.size(); next += 2) {
      const auto value = text::to_unsigned(words[next + 1]);
      if (value) add_counter(machine, reader.port().hw_counters, words[next], *value, kRdmaTool);
    }
  }
  return read;
}

bool read_port_file(std::string_view device, std::string_view file, std::string_view value, Machine& machine,
                    RdmaByName& devices) {
  const auto parts = text::split(file, '/');
  PortReader reader(Source::sysfs, devices);
  if (parts.size() == 1) {
    const auto field = parts[0];
    if (field != "fw_ver" && field != "hca_type" && field != "board_id") return false;
    if (!reader.begin(device, 1)) return false;
    auto& one = reader.device();
    (field == "fw_ver"     ? one.firmware
     : field == "hca_type" ? one.hca_type
                           : one.board_id)
        .learn(text::quote(value), Source::sysfs);
    return true;
  }
  const auto number = parts.size() > 2 && parts[0] == "ports" ? text::to_u32(parts[1]) : std::nullopt;
  if (!number) return false;
  const auto field = parts[2];
  const bool counts = parts.size() == 4 && (field == "counters" || field == "hw_counters");
  const auto count = counts ? text::to_unsigned(value) : std::nullopt;
  const auto rate = field == "rate" ? parse_port_rate(value) : std::nullopt;
  const bool word = field == "state" || field == "phys_state" || field == "link_layer";
  if ((!word && !rate && !count) || !reader.begin(device, *number)) return false;
  auto& port = reader.port();
  if (count && parts[3] != "lifespan")
    add_counter(machine, field == "counters" ? port.counters : port.hw_counters, parts[3], *count, Source::sysfs);
  if (field == "state") reader.learn_state(state_name(value));
  if (field == "phys_state") reader.learn_physical(physical_name(value));
  if (field == "link_layer") port.link_layer.learn(text::quote(value), Source::sysfs);
  // The files come in any order.
  if (rate && port.state.value_or("ACTIVE") == "ACTIVE") {
    port.rate_gbps.learn(rate->gbps, Source::sysfs);
    port.lanes.learn(rate->lanes, Source::sysfs);
    port.speed_name.learn(text::quote(rate->speed_name), Source::sysfs);
  }
  if (field == "state" && *port.state != "ACTIVE" && port.rate_gbps.source == Source::sysfs) port.rate_gbps.forget();
  return true;
}

// "mlx5_0  1  3  0000:0000:0000:0000:0000:ffff:0a00:0001  10.0.0.1  v2  ens1f0np0"
std::size_t read_show_gids(std::string_view content, const std::string&, Machine& machine) {
  RdmaByName devices(machine, machine.rdma, kRdmaLimit);
  PortReader reader(kShowGids, devices);
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    if (words.size() < 4) continue;
    const auto number = text::to_u32(words[1]);
    const auto index = text::to_u32(words[2]);
    if (!number || !index || words[3].find(':') == words[3].npos || !reader.begin(words[0], *number)) continue;
    auto& port = reader.port();
    if (std::ranges::any_of(port.gids, [&](const Gid& gid) { return gid.index == *index; })) continue;
    if (port.gids.size() >= kGidLimit.most) {
      leave_out(machine, kGidLimit);
      continue;
    }
    ++read;
    Gid gid;
    gid.index = *index;
    gid.address.set(text::quote(words[3]), kShowGids);
    for (std::size_t i = 4; i < words.size(); ++i) {
      const bool version = words[i] == "v1" || words[i] == "v2";
      if (version) gid.type.set(fmt::format("RoCE {}", words[i]), kShowGids);
      if (!version || i + 1 >= words.size()) continue;
      gid.interface.set(text::quote(words[i + 1]), kShowGids);
      port.interface.learn(*gid.interface, kShowGids);
      port.link_layer.learn("Ethernet", kShowGids);
    }
    gid.scope.set(gid_scope(words[3], gid.type.known()), kShowGids);
    port.gids.push_back(std::move(gid));
  }
  return read;
}

// "mlxlink -d mlx5_0 -m": a name, or a bus id; else a device's name in the file's.
std::string device_of_mlxlink(const Output& output, const Machine& machine) {
  const auto words = text::words(output.command);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "-d" && words[i] != "--device") continue;
    const auto bus = BusId::parse(words[i + 1]);
    if (!bus) return text::quote(words[i + 1]);
    const auto pci = find_pci(machine, *bus);
    for (const auto& nic : machine.nics) {
      if (pci && nic.rdma && !nic.functions.empty() && nic.functions.front() == pci)
        return machine.rdma[nic.rdma.index].name;
    }
    return bus->to_string();
  }
  std::string found;
  for (const auto& device : machine.rdma) {
    if (output.file.find(device.name) != std::string::npos && device.name.size() > found.size()) found = device.name;
  }
  return found;
}

// "State                              : Active", "Physical state  : LinkUp", "Speed  : 200G"
std::string read_mlxlink(const Output& output, Machine& machine) {
  const auto name = device_of_mlxlink(output, machine);
  if (name.empty() || BusId::parse(name) || name.front() == '/') return {};
  RdmaByName devices(machine, machine.rdma, kRdmaLimit);
  PortReader reader(Source::sysfs, devices);
  std::string gave;
  double gbps = 0;
  for (const auto line : text::lines(output.text)) {
    const auto [key, value] = key_value(line);
    if (value.empty()) continue;
    if (key == "State") {
      if (!reader.begin(name, 1)) return {};
      const auto state = std::string(value == "Active" ? "ACTIVE" : "DOWN");
      reader.learn_state(state);
      gave = fmt::format("{}: {}", name, state == "ACTIVE" ? "active" : text::lower(value));
    } else if (key == "Physical state" && !gave.empty()) {
      reader.learn_physical(physical_name(value));
    } else if (key == "Speed" && value.ends_with('G') && !gave.empty()) {
      gbps = text::leading_double(value).value_or(0);
      reader.learn_rate(gbps);
    }
  }
  return gbps > 0 ? fmt::format("{}, {:g} Gb/s", gave, gbps) : gave;
}

}  // namespace fairway::topology
