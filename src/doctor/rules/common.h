#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "doctor/cost.h"
#include "doctor/rule.h"
#include "topology/assess.h"
#include "topology/pci.h"
#include "topology/text.h"

// What the families of rules share.
namespace fairway::doctor {

using topology::Machine;
using topology::NodeKind;
using topology::NodeRef;
using topology::PathKind;

inline std::string name_of(const Machine& machine, NodeRef node) {
  return topology::node_name(machine, node);
}
inline NodeRef nic_ref(std::uint32_t nic) {
  return {NodeKind::nic, nic};
}
inline NodeRef gpu_ref(std::uint32_t gpu) {
  return {NodeKind::gpu, gpu};
}
inline NodeRef pci_ref(topology::Ref<topology::PciDevice> pci) {
  return {NodeKind::pci, pci.index};
}
inline std::string pci_fact(const Machine& machine, topology::Ref<topology::PciDevice> pci, std::string_view what) {
  return fmt::format("pci.{}.{}", machine.pci[pci.index].bus_id.to_string(), what);
}
inline std::string gpu_fact(const Machine& machine, std::uint32_t gpu, std::string_view what) {
  return fmt::format("gpu.{}.{}", machine.gpus[gpu].ordinal, what);
}
// What `nvidia-smi -i` takes: its number, or its bus id where that is not known.
std::string smi_id(const Machine& machine, std::uint32_t gpu);
// "GPU4, GPU5 and 2 others".
std::string some_names(const Machine& machine, const std::vector<NodeRef>& nodes);
// "GPU4-7": names that count up are folded.
std::string folded_names(const Machine& machine, const std::vector<NodeRef>& nodes);
// "mlx5_0,mlx5_1", as NCCL_IB_HCA takes them.
std::string joined_names(const Machine& machine, const std::vector<std::uint32_t>& nics);
// A fact as evidence.
Evidence evidence_of(const Facts& facts, const std::string& name, std::string_view said_as = {});
// `level` if a path crosses the device, else a note.
Level level_on_path(const Machine& machine, NodeRef device, Level level);
// Indices of NVIDIA's GPUs.
std::vector<std::uint32_t> nvidia_gpus(const Machine& machine);
bool is_ethernet(const topology::RdmaPort& port);
// A rail and its port. The port is borrowed from the machine.
struct RailPort {
  std::uint32_t nic = 0;
  const topology::RdmaPort* port = nullptr;
};
// The rails whose port is recorded, and those of them on Ethernet.
std::vector<RailPort> rail_ports(const Machine& machine);
std::vector<RailPort> roce_ports(const Machine& machine);
// A rail and its PCI function.
struct RailFunction {
  std::uint32_t nic = 0;
  topology::Ref<topology::PciDevice> pci;
};
// The rails whose PCI function is recorded; of one vendor, or of all (0).
std::vector<RailFunction> rail_functions(const Machine& machine, std::uint32_t vendor_id = 0);
// A fact as a number. If it is unknown the result says why.
std::optional<double> number_of(const RuleInput& input, const std::string& fact, RuleResult& result);
// Hardware NICs by type and board, where either is recorded.
std::map<std::string, std::vector<std::uint32_t>> alike_nics(const Machine& machine);
// The interfaces that have a wire of their own: of a bond its legs. "INTERFACE" where none is recorded.
std::vector<std::string> wires_of(const Machine& machine, std::uint32_t nic);
// The interface that has the NIC's addresses: of a bond its own. "INTERFACE" where none is recorded.
std::string interface_of(const Machine& machine, std::uint32_t nic);
// The NIC whose wire an interface is.
std::optional<std::uint32_t> nic_of_wire(const Machine& machine, const std::string& interface);
// The interfaces of which drivers' statistics are known, also those of no rail.
std::vector<std::string> interfaces_with_statistics(const Facts& facts);
// One statistic of an interface: how much it grew since the baseline, or all of it.
struct Statistic {
  std::string fact;
  double now = 0;
  double value = 0;
  bool grown = false;                      // since the baseline
  [[nodiscard]] std::string text() const;  // "grew by 3 since the baseline", "is 3"
};
Statistic statistic(const RuleInput& input, const std::string& interface, std::string_view counter);
// A finding for each of these counters that is not 0: one reading does not say when it happened, so a warning only
// where it grew, and of a NIC. `mend` adds what to do; its NIC is none where the interface is of no known one.
void add_counted(const RuleInput& input, const std::string& interface, std::span<const char* const> counters,
                 std::string_view cause, const std::function<void(Finding&, std::optional<std::uint32_t> nic)>& mend,
                 RuleResult& result);
bool is_mellanox(const Machine& machine, std::uint32_t nic);
// The command that prints the lossless priorities of an interface, with the NIC's own tool.
std::string show_pfc(const Machine& machine, std::uint32_t nic, const std::string& interface);
// Rails by the network of their first routable address: "10.1.0.0/16".
std::map<std::string, std::vector<NodeRef>> rail_networks(const Machine& machine);
// A finding about one NIC and the paths through it.
Finding nic_finding(const Machine& machine, std::uint32_t nic, std::string title);
// The paths between GPUs and rails.
std::vector<predict::Flow> gpu_flows(const Machine& machine);
// The cost by two measured rates of one path.
void set_measured(Finding& finding, double now_gbps, double mended_gbps);
// How much a counter grew since `before`; none if either lacks it or it was reset.
std::optional<std::uint64_t> growth(const topology::RdmaPort* before, const topology::RdmaPort& now,
                                    std::string_view counter);
const topology::RdmaPort* port_before(const RuleInput& input, const std::string& device, std::uint32_t number);
std::optional<std::uint64_t> counter_of(const topology::RdmaPort& port, std::string_view name);
// What a command of a fix takes away while it runs, and so which sentence stands behind it.
enum class Interrupts : std::uint8_t {
  gpus,  // jobs on GPUs end
  port,  // the port goes away for up to a minute, for ssh too
};
std::string interrupting(std::string command, Interrupts what, std::string_view remark = {});
// The reset of one GPU, by its bus id where that is known: numbers move when a GPU is lost.
std::string reset_of(const Machine& machine, std::uint32_t gpu, std::string_view remark = {});
// Whether a PCI function is a virtual one (SR-IOV), whose DevCtl has no sizes and no ordering bit: the physical
// function's count.
bool is_virtual_function(const RuleInput& input, topology::Ref<topology::PciDevice> pci);
// Commands that add an option to the kernel's command line.
std::vector<std::string> add_kernel_option(std::string_view option);
// The GPU and the NIC of a measured row.
std::optional<std::uint32_t> gpu_of(const Measurement& row);
std::optional<std::uint32_t> nic_of(const Machine& machine, const Measurement& row);
std::string row_text(const Machine& machine, const Measurement& row);
Evidence evidence_of(const Machine& machine, const Measurement& row);
// The predicted rate of a flow, Gb/s.
std::optional<double> expected_gbps(const RuleInput& input, const predict::Flow& flow);

}  // namespace fairway::doctor
