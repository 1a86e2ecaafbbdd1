#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "render/reports.h"
#include "topology/text.h"

namespace fairway::render {
namespace {

using topology::Fact;
using topology::RdmaDevice;
using topology::RdmaPort;

// What an attribute of an RDMA device or port means, for readers who do not know the InfiniBand specification, and
// which limit it sets for Fairway (empty: none).
struct AttributeWords {
  std::string_view name;  // as `ibv_devinfo -v` prints it
  std::string_view meaning;
  std::string_view limit;
};

// Sources: the manual pages ibv_query_device(3), ibv_query_device_ex(3) and ibv_query_port(3) of rdma-core, and the
// InfiniBand Architecture Specification, volume 1.
constexpr auto kWords = std::to_array<AttributeWords>({
    {"max_qp", "queue pairs that may exist at once, of all programs together",
     "peers x queue pairs per peer and rail, over all processes of the host"},
    {"max_qp_wr", "work requests that one send or receive queue holds", "slices in flight on one queue pair"},
    {"max_sge", "pieces of memory that one work request can gather or scatter", "pieces joined into one message"},
    {"max_sge_rd", "pieces of local memory that one RDMA read can scatter to", "pieces that one read may fill"},
    {"max_send_sge", "pieces of memory that one send request can gather", "pieces joined into one message"},
    {"max_recv_sge", "pieces of memory that one receive can scatter to", "pieces that one receive may fill"},
    {"max_cq", "completion queues that may exist at once", "workers x devices: one queue each is enough"},
    {"max_cqe", "completions that one completion queue holds",
     "slices in flight of all queue pairs that share the queue"},
    {"max_mr", "memory regions that may be registered at once: a number, not a size",
     "regions registered on this device"},
    {"max_mr_size", "bytes that one memory region may have: a size, not a number",
     "the largest region; larger ones are cut"},
    {"max_pd", "protection domains that may exist at once", ""},
    {"page_size_cap", "page sizes that the device can map, one bit each", ""},
    {"max_qp_rd_atom", "reads and atomics of others that one queue pair serves at once",
     "reads in flight per queue pair, at the target"},
    {"max_qp_init_rd_atom", "reads and atomics of its own that one queue pair has in flight",
     "reads in flight per queue pair, at the initiator"},
    {"max_res_rd_atom", "reads and atomics of others that the whole device serves at once",
     "reads in flight of all peers"},
    {"max_ee_rd_atom", "the same for reliable datagrams, which no device offers", ""},
    {"max_ee_init_rd_atom", "the same for reliable datagrams, which no device offers", ""},
    {"max_ee", "end-to-end contexts of reliable datagrams, which no device offers", ""},
    {"max_rdd", "domains of reliable datagrams, which no device offers", ""},
    {"atomic_cap", "whether atomics exclude only this device's others (HCA) or also the CPU's (GLOB)",
     "with HCA, do not mix remote atomics and the CPU's own on one word"},
    {"pci_atomic_cap", "atomics that the device may issue on PCIe itself", "atomics on GPU memory without the CPU"},
    {"max_mw", "memory windows that may exist at once", ""},
    {"max_raw_ipv6_qp", "raw IPv6 queue pairs", ""},
    {"max_raw_ethy_qp", "raw Ethertype queue pairs", ""},
    {"max_mcast_grp", "multicast groups", ""},
    {"max_mcast_qp_attach", "queue pairs in one multicast group", ""},
    {"max_total_mcast_qp_attach", "queue pairs in all multicast groups", ""},
    {"max_ah", "address handles, for datagrams", ""},
    {"max_fmr", "fast memory regions of the old kind", ""},
    {"max_srq", "shared receive queues that may exist at once", "one per worker is enough"},
    {"max_srq_wr", "receives that one shared receive queue holds", "messages that may arrive before any is taken"},
    {"max_srq_sge", "pieces of memory of one receive in a shared queue", ""},
    {"max_pkeys", "partition keys in the table of a port", ""},
    {"local_ca_ack_delay", "how long the device may take to answer, as 4.096 us x 2 to this power",
     "the shortest sensible timeout of a queue pair"},
    {"general_odp_caps", "whether memory may be paged in on demand at all", "regions without pinning"},
    {"rc_odp_caps", "what a reliable connection can do on memory that is paged in on demand",
     "unpinned regions; SUPPORT_SRQ is paging on shared receives"},
    {"uc_odp_caps", "what an unreliable connection can do on memory that is paged in on demand", ""},
    {"ud_odp_caps", "what datagrams can do on memory that is paged in on demand", ""},
    {"xrc_odp_caps", "what XRC can do on memory that is paged in on demand", ""},
    {"completion timestamp_mask", "bits of the clock that stamps completions; 0 for none", ""},
    {"hca_core_clock", "kHz of the clock that stamps completions", ""},
    {"device_cap_flags", "a set of abilities, one bit each", ""},
    {"device_cap_flags_ex", "further abilities, one bit each", ""},
    {"max_tso", "bytes of a packet that the device cuts itself, for raw Ethernet", ""},
    {"rss caps", "receive-side scaling, for raw Ethernet", ""},
    {"max_wq_type_rq", "receive work queues, for raw Ethernet", ""},
    {"packet pacing caps", "how finely the sending rate of a queue pair can be set", ""},
    {"qp_rate_limit_min", "the lowest sending rate that a queue pair can be held to, kb/s", ""},
    {"qp_rate_limit_max", "the highest sending rate that a queue pair can be held to, kb/s", ""},
    {"tag matching caps", "matching of two-sided messages by the device", ""},
    {"cq moderation caps", "how far interrupts of completion queues can be thinned: the two lines below", ""},
    {"max_cq_count", "completions that one event may stand for",
     "how far interrupts can be thinned when workers sleep"},
    {"max_cq_period", "microseconds for which an event may be held back", "the delay that thinned interrupts may add"},
    {"maximum available device memory", "bytes of memory on the device that programs may use", ""},
    {"num_comp_vectors", "interrupts that completion queues can be spread over",
     "workers that can sleep apart from each other"},
    {"phys_port_cnt", "ports of this device", "rails of this device"},
    {"vendor_id", "the vendor's number", ""},
    {"vendor_part_id", "the vendor's number of the model", ""},
    {"hw_ver", "revision of the hardware", ""},
    // Of a port.
    {"max_msg_sz", "bytes that one message may have", "the largest slice; longer transfers are cut"},
    {"port_cap_flags", "what the port and its subnet agent can do, one bit each", ""},
    {"port_cap_flags2", "further abilities, one bit each", ""},
    {"max_vl_num", "virtual lanes of InfiniBand; RoCE has none, which prints as invalid", ""},
    {"bad_pkey_cntr", "packets refused for their partition key", "above 0: a peer is in another partition"},
    {"qkey_viol_cntr", "datagrams refused for their key", ""},
    {"sm_sl", "service level towards the subnet manager", ""},
    {"pkey_tbl_len", "partition keys of the port", ""},
    {"gid_tbl_len", "GIDs that the port can have; each address has one per RoCE version", ""},
    {"subnet_timeout", "how long an answer of the subnet manager may take, as 4.096 us x 2 to this power", ""},
    {"init_type_reply", "what the subnet manager did when the port came up", ""},
    {"flags", "further properties of the port, one bit each", ""},
});

// Null if the name is not in the table.
const AttributeWords* find_attribute_words(std::string_view name) {
  const auto* found = std::ranges::find(kWords, name, &AttributeWords::name);
  return found == kWords.end() ? nullptr : found;
}

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
