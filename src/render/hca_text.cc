#include <fmt/format.h>

#include "render/hca_words.h"
#include "render/reports.h"
#include "topology/text.h"

namespace fairway::render {
namespace {

using topology::Fact;
using topology::RdmaDevice;
using topology::RdmaPort;

std::string trimmed(const Fact<std::string>& value) {
  const std::string text = value.value_or("unknown");
  return std::string(topology::text::trim(text));
}

// What a counter of the InfiniBand specification (PortCounters) ends at, by its name; 0 for those of 64 bits.
std::uint64_t most_of(std::string_view name) {
  if (name == "local_link_integrity_errors" || name == "excessive_buffer_overrun_errors") return 15;
  if (name == "link_downed" || name == "link_error_recovery" || name == "port_rcv_remote_physical_errors" ||
      name == "port_xmit_constraint_errors" || name == "port_rcv_constraint_errors")
    return name == "port_rcv_remote_physical_errors" ? 0xffff : 0xff;
  if (name == "symbol_error" || name == "port_rcv_errors" || name == "port_rcv_switch_relay_errors" ||
      name == "port_xmit_discards" || name == "VL15_dropped")
    return 0xffff;
  return name == "port_xmit_wait" ? 0xffffffff : 0;
}

class HcaText {
 public:
  explicit HcaText(const TextStyle& style) : style_(style) {}

  void head(const std::string& text) { out_ += style_.ink(Ink::bold, text) + "\n"; }

  // "  max_qp  131072   what it is; for Fairway: what follows"
  void row(std::string_view name, const std::string& value, std::string_view meaning, std::string_view limit = {}) {
    rows_.push_back({port_, "attribute", std::string(name), value, std::string(meaning), std::string(limit)});
    std::string text(meaning);
    if (!limit.empty()) text += fmt::format("; for Fairway: {}", limit);
    constexpr std::size_t kName = 24;
    constexpr std::size_t kValue = 16;
    out_ += "  " + pad(name, kName) + " " + style_.ink(Ink::accent, pad(value, kValue)) + " ";
    std::size_t margin = kName + kValue + 4;
    if (columns_of(name) > kName || columns_of(value) > kValue) out_ += "\n" + pad("", margin);
    bool is_first = true;
    for (const std::string& line : wrap(text, style_.columns > margin + 30 ? style_.columns - margin : 30)) {
      out_ += (is_first ? "" : pad("", margin)) + line + "\n";
      is_first = false;
    }
  }

  template <class T>
  void fact(std::string_view name, const Fact<T>& fact, std::string_view meaning, std::string_view limit = {}) {
    row(name, fact ? fmt::format("{}", *fact) : "unknown", meaning, limit);
  }

  void attributes(const std::vector<topology::Attribute>& attributes) {
    for (const topology::Attribute& attribute : attributes) {
      const AttributeWords* words = find_attribute_words(attribute.name);
      row(attribute.name, trimmed(attribute.value),
          words ? words->meaning : "no explanation here; see the vendor's manual", words ? words->limit : "");
    }
  }

  void counters(const std::vector<topology::Counter>& counters, const char* title) {
    if (counters.empty()) return;
    out_ += fmt::format("  {}\n", title);
    for (const topology::Counter& counter : counters) {
      // Counters of few bits stop at their maximum: the true number is unknown.
      const auto most = most_of(counter.name);
      const bool is_stuck = most != 0 && counter.value == most;
      rows_.push_back({port_, "counter", counter.name, std::to_string(counter.value),
                       is_stuck ? "at its end: this or more" : "", ""});
      out_ += fmt::format("    {} {}{}\n", pad(counter.name, 34), counter.value,
                          is_stuck ? "  (at its end: this or more)" : "");
    }
  }

  void port(const RdmaPort& port) {
    port_ = port.number;
    out_ += "\n";
    head(fmt::format("Port {}", port.number));
    fact("state", port.state, "ACTIVE: ready for traffic; INIT, ARMED: waits for a subnet manager; DOWN: no link",
         port.state && *port.state != "ACTIVE" ? "no traffic until it is ACTIVE" : "");
    fact("physical state", port.physical_state,
         "LinkUp: there is a signal; Polling: it looks for one; Disabled: switched off");
    fact("link layer", port.link_layer, "Ethernet here means RoCE, whatever the transport is called");
    row("rate", port.rate_gbps ? gigabits(*port.rate_gbps) : "unknown", "lanes x rate of a lane, per direction",
        port.rate_gbps
            ? fmt::format("{} GB/s of raw bits; about 0.975 of it is payload at MTU 4096", rate(*port.rate_gbps / 8))
            : "");
    fact("lanes", port.lanes, "2X is two lanes; the rate counts all of them");
    fact("speed", port.speed_name, "name of the lane's speed");
    fact("interface", port.interface, "the network interface of this port; of a bonded port the bond's");
    fact("active MTU", port.active_mtu, "bytes of payload in one packet",
         port.active_mtu && *port.active_mtu < 4096 ? "more headers per byte than at 4096; raise the interface's MTU"
                                                    : "");
    fact("largest MTU", port.max_mtu, "bytes of payload in one packet, at most");
    fact("LID", port.lid, "address within an InfiniBand subnet; 0 on RoCE");
    fact("subnet manager's LID", port.sm_lid, "who manages the subnet; 0 on RoCE");
    fact("LMC", port.lmc, "2 to this power addresses of the port, for several paths");
    std::string pkeys;
    for (const std::uint32_t pkey : port.pkeys.value_or({}))
      pkeys += fmt::format("{}0x{:04x}", pkeys.empty() ? "" : " ", pkey);
    row("partition keys", pkeys.empty() ? "unknown" : pkeys,
        "partitions that the port is in; peers need one in common");
    attributes(port.attributes);
    if (!port.gids.empty()) out_ += "  GIDs: addresses; RoCE v2 is the one that routers pass on\n";
    for (const topology::Gid& gid : port.gids) {
      rows_.push_back({port_, "gid", std::to_string(gid.index), gid.address.value_or(""), gid.type.value_or(""), ""});
      out_ +=
          fmt::format("    {:>3}  {} {} {}{}\n", gid.index, pad(gid.type.value_or("?"), 8),
                      pad(gid.scope.value_or("?"), 11), pad(gid.interface.value_or(""), 10), gid.address.value_or(""));
    }
    counters(port.counters, "Counters");
    counters(port.hw_counters, "The vendor's counters");
  }

  std::string take() { return std::move(out_); }
  std::vector<HcaRow> take_rows() { return std::move(rows_); }

 private:
  const TextStyle& style_;
  std::uint32_t port_ = 0;
  std::string out_;
  std::vector<HcaRow> rows_;
};

void explain(const topology::Machine& machine, const RdmaDevice& device, HcaText& text) {
  text.head(device.name);
  text.fact("type", device.hca_type, "the vendor's number of the model");
  text.fact("firmware", device.firmware, "version on the device");
  text.fact("board", device.board_id, "the vendor's number of the board");
  text.fact("transport", device.transport, "verbs says InfiniBand for RoCE too; EFA is unspecified");
  if (device.software.value_or(false)) {
    text.row("software", "yes", "a driver that plays an RDMA device in the CPU", "for tests; no faster than TCP");
  }
  for (const topology::Nic& nic : machine.nics) {
    if (!nic.rdma || &machine.rdma[nic.rdma.index] != &device) continue;
    if (nic.bond) {
      const topology::Bond& bond = machine.bonds[nic.bond.index];
      const auto one = topology::bond_one_flow_gbps(machine, bond);
      text.row("bond", fmt::format("{} legs", bond.legs.size()),
               fmt::format("{}, {}", bond.mode.value_or("mode unknown"), bond.hash_policy.value_or("hash unknown")),
               one ? fmt::format("one flow gets one leg, {}; several queue pairs use both", gigabits(*one)) : "");
    }
  }
  text.attributes(device.attributes);
  for (const RdmaPort& port : device.ports) text.port(port);
}

}  // namespace

std::string hca_text(const topology::Machine& machine, const RdmaDevice& device, const TextStyle& style) {
  HcaText text(style);
  explain(machine, device, text);
  return text.take();
}

std::vector<HcaRow> hca_rows(const topology::Machine& machine, const RdmaDevice& device) {
  const TextStyle plain;
  HcaText text(plain);
  explain(machine, device, text);
  return text.take_rows();
}

}  // namespace fairway::render
