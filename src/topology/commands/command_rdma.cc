#include <algorithm>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/sysfs.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr auto kDevinfo = Source::ibv_devinfo;

// The text without ibv_devinfo's number behind it: "PORT_ACTIVE (4)".
std::string_view without_number(std::string_view value) {
  const auto open = value.rfind(" (");
  return open == value.npos || !value.ends_with(')') ? value : value.substr(0, open);
}

void add_attribute(Machine& machine, std::vector<Attribute>& list, std::string_view name, std::string_view value) {
  const auto quoted = text::quote(name);
  for (auto& attribute : list) {
    if (attribute.name != quoted) continue;
    // Flags are on lines below their heading: join them.
    if (attribute.value && !value.empty())
      attribute.value.set(*attribute.value + " " + text::quote(value, 120), kDevinfo);
    return;
  }
  if (list.size() >= kAttributeLimit.most) return leave_out(machine, kAttributeLimit);
  list.push_back({quoted, {text::quote(value, 120), kDevinfo}});
}

class DevinfoReader {
 public:
  explicit DevinfoReader(Machine& machine) : machine_(machine), devices_(machine, machine.rdma, kRdmaLimit) {}

  void read_line(std::string_view line) {
    const auto trimmed = text::trim(line);
    const auto colon = trimmed.find(':');
    if (trimmed.empty()) return;
    if (colon == trimmed.npos) {
      // A capability flag of the heading above.
      if (device_ != nullptr && !heading_.empty()) add_attribute(machine_, target(), heading_, trimmed);
      return;
    }
    const auto key = text::trim(trimmed.substr(0, colon));
    const auto value = text::trim(trimmed.substr(colon + 1));
    if (key == "hca_id") {
      device_ = devices_.find_or_add(value);
      port_ = nullptr;
      heading_.clear();
      return;
    }
    if (device_ == nullptr) return;
    if (key == "port") {
      const auto number = text::to_u32(value);
      finish_port();
      numbered_ = true;
      port_ = number && *number > 0 && *number < 256 ? &port_numbered(*device_, *number) : nullptr;
      heading_.clear();
      return;
    }
    heading_ = value.empty() ? std::string(key) : std::string();
    if (key.starts_with("GID[")) return read_gid(key, value);
    // `ibv_devinfo | egrep 'hca_id|state|mtu'` leaves out the lines that number ports; each has one state.
    if (port_ == nullptr && is_of_port(key)) {
      port_ = &port_numbered(*device_, 1);
      numbered_ = false;
    } else if (!numbered_ && key == "state" && port_->number < 255) {
      const auto next = port_->number + 1;
      finish_port();
      port_ = &port_numbered(*device_, next);
    }
    if (port_ != nullptr) {
      read_port_field(key, value);
    } else {
      read_device_field(key, value);
    }
  }

  // The rate needs width and speed, which are on two lines.
  void finish_port() {
    if (port_ != nullptr && lanes_ > 0 && lane_gbps_ > 0) {
      const double rate = lanes_ * lane_gbps_;
      port_->rate_gbps.learn(rate, kDevinfo);
      port_->lanes.learn(lanes_, kDevinfo);
    }
    lanes_ = 0;
    lane_gbps_ = 0;
  }

 private:
  std::vector<Attribute>& target() { return port_ != nullptr ? port_->attributes : device_->attributes; }

  static bool is_of_port(std::string_view key) {
    constexpr std::string_view kOfPorts[] = {"state",  "phys_state", "max_mtu",    "active_mtu",   "port_lid",
                                             "sm_lid", "port_lmc",   "link_layer", "active_width", "active_speed"};
    return std::ranges::find(kOfPorts, key) != std::end(kOfPorts);
  }

  void read_device_field(std::string_view key, std::string_view value) {
    if (key == "transport") {
      device_->transport.learn(text::quote(without_number(value)), kDevinfo);
    } else if (key == "fw_ver") {
      device_->firmware.learn(text::quote(value), kDevinfo);
    } else if (key == "node_guid") {
      device_->node_guid.learn(text::quote(value), kDevinfo);
    } else if (key == "sys_image_guid") {
      device_->system_guid.learn(text::quote(value), kDevinfo);
    } else if (key == "board_id") {
      device_->board_id.learn(text::quote(value), kDevinfo);
    } else {
      add_attribute(machine_, device_->attributes, key, value);
    }
  }

  void read_port_field(std::string_view key, std::string_view value) {
    const auto number = text::leading_unsigned(value);
    const auto learn_number = [&](Fact<std::uint32_t>& fact) {
      if (number && *number <= 0xffffffffU) fact.learn(static_cast<std::uint32_t>(*number), kDevinfo);
    };
    if (key == "state") {
      auto state = without_number(value);
      if (state.starts_with("PORT_")) state.remove_prefix(5);
      // A paste may end within the word.
      constexpr std::string_view kStates[] = {"ACTIVE", "DOWN", "INIT", "ARMED", "ACTIVE_DEFER", "NOP"};
      if (std::ranges::find(kStates, state) != std::end(kStates)) port_->state.learn(text::quote(state), kDevinfo);
    } else if (key == "phys_state") {
      const auto state = without_number(value);
      port_->physical_state.learn(state == "LINK_UP" ? "LinkUp" : text::quote(state), kDevinfo);
    } else if (key == "link_layer") {
      port_->link_layer.learn(text::quote(value), kDevinfo);
    } else if (key == "max_mtu") {
      learn_number(port_->max_mtu);
    } else if (key == "active_mtu") {
      learn_number(port_->active_mtu);
    } else if (key == "port_lid") {
      learn_number(port_->lid);
    } else if (key == "sm_lid") {
      learn_number(port_->sm_lid);
    } else if (key == "port_lmc") {
      if (const auto lmc = text::to_hex(value); lmc && *lmc <= 7)
        port_->lmc.learn(static_cast<std::uint32_t>(*lmc), kDevinfo);
    } else if (key == "active_width") {
      const auto lanes = text::leading_unsigned(value);  // "2X (16)"
      lanes_ = lanes && *lanes <= 64 ? static_cast<std::uint32_t>(*lanes) : 0;
    } else if (key == "active_speed") {
      const auto gbps = text::leading_double(value);  // "100.0 Gbps (128)": of one lane
      lane_gbps_ = gbps && *gbps > 0 && *gbps < 10000 && value.find("Gbps") != value.npos ? *gbps : 0;
    } else {
      add_attribute(machine_, port_->attributes, key, value);
    }
  }

  // "GID[  2]: 0000:...:000e, RoCE v1"
  void read_gid(std::string_view key, std::string_view value) {
    if (port_ == nullptr) return;
    if (port_->gids.size() >= kGidLimit.most) return leave_out(machine_, kGidLimit);
    const auto index = text::to_u32(text::trim(key.substr(4, key.size() - 5)));
    const auto comma = value.rfind(", ");
    if (!index) return;
    Gid gid;
    gid.index = *index;
    const auto address = text::trim(comma == value.npos ? value : value.substr(0, comma));
    gid.address.set(text::quote(address), kDevinfo);
    if (comma != value.npos) gid.type.set(text::quote(text::trim(value.substr(comma + 2))), kDevinfo);
    gid.scope.set(gid_scope(address, port_->link_layer.value_or("") == "Ethernet"), kDevinfo);
    for (const auto& known : port_->gids) {
      if (known.index == gid.index) return;
    }
    port_->gids.push_back(std::move(gid));
  }

  Machine& machine_;
  RdmaByName devices_;
  RdmaDevice* device_ = nullptr;  // until the next is added
  RdmaPort* port_ = nullptr;
  bool numbered_ = true;  // whether lines "port: 1" tell ports apart
  std::string heading_;
  std::uint32_t lanes_ = 0;
  double lane_gbps_ = 0;
};

}  // namespace

RdmaPort& port_numbered(RdmaDevice& device, std::uint32_t number) {
  const auto known = std::ranges::find(device.ports, number, &RdmaPort::number);
  if (known != device.ports.end()) return *known;
  device.ports.emplace_back().number = number;
  return device.ports.back();
}

std::size_t read_ibv_devinfo(std::string_view content, const std::string&, Machine& machine) {
  DevinfoReader reader(machine);
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    if (text::trim(line).starts_with("hca_id:")) {
      reader.finish_port();
      ++read;
    }
    reader.read_line(line);
  }
  reader.finish_port();
  return read;
}

// "    mlx5_0          \t58a2e10300123456"; of `ibstat -l` the names alone.
std::size_t read_ibv_devices(std::string_view content, const std::string&, Machine& machine) {
  RdmaByName devices(machine, machine.rdma, kRdmaLimit);
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    if (words.empty() || words.size() > 2 || words[0].starts_with("-") || words[0] == "device") continue;
    const bool name = std::ranges::all_of(words[0], [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    if (!name || (words.size() == 2 && (words[1].size() != 16 || !text::to_hex(words[1])))) continue;
    if (devices.find_or_add(words[0]) != nullptr) ++read;
  }
  return read;
}

// "mlx5_bond_0 port 1 ==> bond0 (Up)"; with -v "0000:18:00.0 mlx5_0 (MT4129 - ...) ... port 1 (DOWN  ) ==> ens1 (Down)"
std::size_t read_ibdev2netdev(std::string_view content, const std::string&, Machine& machine) {
  RdmaByName devices(machine, machine.rdma, kRdmaLimit);
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    const auto arrow = std::ranges::find(words, "==>");
    const auto heads = std::find(words.begin(), arrow, "port");
    if (heads == words.begin() || arrow - heads < 2 || words.end() - arrow < 2) continue;
    const bool by_bus = BusId::parse(words[0]).has_value() && heads - words.begin() > 1;
    const auto number = text::to_u32(heads[1]);
    if (!number || *number == 0 || *number > 255) continue;
    auto* const device = devices.find_or_add(words[by_bus ? 1 : 0]);
    if (device == nullptr) continue;
    ++read;
    auto& port = port_numbered(*device, *number);
    const auto interface = text::quote(arrow[1]);
    port.interface.learn(interface, Source::ibdev2netdev);
    const auto own = arrow - heads > 2 ? heads[2] : std::string_view{};
    if (own.starts_with("(ACTIVE") || own.starts_with("(DOWN")) {
      port.state.learn(own.starts_with("(ACTIVE") ? "ACTIVE" : "DOWN", Source::ibdev2netdev);
      continue;
    }
    // Of InfiniBand the state is that of IP over it, which may be down while the port is up.
    const bool told = words.end() - arrow > 2;
    const bool up = told && arrow[2] == "(Up)";
    if (told && (up || !interface.starts_with("ib"))) port.state.learn(up ? "ACTIVE" : "DOWN", Source::ibdev2netdev);
  }
  return read;
}

}  // namespace fairway::topology
