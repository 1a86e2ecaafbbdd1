#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "topology/assess.h"
#include "topology/pci.h"

namespace fairway::topology {
namespace {

// The share of a rate that the slower of two values loses.
double lost_share(double a, double b) {
  const double high = std::max(a, b);
  return high > 0 ? 1.0 - std::min(a, b) / high : 0.0;
}

std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(bool value) {
  return value ? "yes" : "no";
}
std::string text_of(const CpuSet& value) {
  return value.to_list();
}
template <class T>
requires std::is_arithmetic_v<T> std::string text_of(T value) {
  return fmt::format("{}", value);
}

// Two different quantities with four digits each, or as many as tell them apart.
std::pair<std::string, std::string> texts_apart(double a, double b, const char* unit) {
  std::pair<std::string, std::string> texts;
  for (int digits = 4; digits <= 17; ++digits) {
    texts = {fmt::format("{:.{}g} {}", a, digits, unit), fmt::format("{:.{}g} {}", b, digits, unit)};
    if (texts.first != texts.second) break;
  }
  return texts;
}

class Differ {
 public:
  Differ(const Machine& a, const Machine& b) : a_(a), b_(b) {}

  std::vector<Difference> run() {
    compare_gpus();
    compare_pci_links();
    compare_nics();
    compare_device_links();
    compare_classes();
    compare_host();
    std::ranges::stable_sort(out_, std::greater{}, &Difference::cost);
    return std::move(out_);
  }

 private:
  // Whether both are PCI devices of one vendor and number.
  [[nodiscard]] bool same_ids(Ref<PciDevice> a, Ref<PciDevice> b) const {
    if (!a || !b) return false;
    const auto& one = a_.pci[a.index];
    const auto& other = b_.pci[b.index];
    return one.vendor_id && one.device_id && other.vendor_id && other.device_id && *one.vendor_id == *other.vendor_id &&
           *one.device_id == *other.device_id;
  }

  void add(double cost, const std::string& subject, const char* field, std::string a, std::string b, std::string why,
           bool b_is_better = false) {
    auto text = fmt::format("{}: {} is {} in the one and {} in the other", subject, field, a, b);
    if (!why.empty()) text += ": " + why;
    out_.push_back({cost, subject, field, std::move(a), std::move(b), std::move(text), std::move(why), b_is_better});
  }

  // A fact that one side lacks is not a difference.
  template <class T>
  void fact(double cost, const std::string& subject, const char* field, const Fact<T>& a, const Fact<T>& b,
            const std::string& why = {}) {
    if (a && b && !(*a == *b)) add(cost, subject, field, text_of(*a), text_of(*b), why);
  }

  void rate(const std::string& subject, const char* field, const char* unit, const Fact<double>& a,
            const Fact<double>& b) {
    if (!a || !b || std::abs(*a - *b) <= 0.001 * std::max(*a, *b)) return;
    const double cost = lost_share(*a, *b);
    auto [one, two] = texts_apart(*a, *b, unit);
    add(cost, subject, field, std::move(one), std::move(two),
        fmt::format("the slower loses {:.0f} % of it", 100 * cost), *b > *a);
  }

  void missing(double cost, const std::string& subject, bool in_a, const char* why) {
    add(cost, subject, "presence", in_a ? "there" : "missing", in_a ? "missing" : "there", why, !in_a);
  }

  // Endpoints by a name that both machines have, since bus ids may differ between boards.
  static std::map<std::string, Ref<PciDevice>> endpoints(const Machine& machine) {
    std::map<std::string, Ref<PciDevice>> out;
    for (const auto& gpu : machine.gpus) {
      if (gpu.pci) out[gpu_name(machine, gpu)] = gpu.pci;
    }
    for (const auto& nic : machine.nics) {
      if (!nic.functions.empty()) out["NIC " + nic.name] = nic.functions.front();
    }
    return out;
  }

  // The slowest link from a device to the CPU, and where.
  static Fact<double> slowest_upwards(const Machine& machine, Ref<PciDevice> device) {
    Fact<double> least;
    for (std::size_t depth = 0; device && depth <= kMaxPciDepth; ++depth) {
      const auto gbs = current_gbs(machine.pci[device.index].link);
      if (gbs && (!least || *gbs < *least)) least = gbs;
      device = machine.pci[device.index].parent;
    }
    return least;
  }

  void compare_gpus() {
    for (const auto& gpu : a_.gpus) {
      const auto other = find_gpu(b_, gpu.ordinal);
      if (!other) {
        missing(1.0, gpu_name(a_, gpu), true, "the other lacks all that it does");
        continue;
      }
      const auto& twin = b_.gpus[other.index];
      // Two sources may have two names for one device: its ids decide where both have them.
      if (!same_ids(gpu.pci, twin.pci)) fact(0.5, gpu_name(a_, gpu), "model", gpu.model, twin.model);
      rate(gpu_name(a_, gpu), "memory", "GB", bytes(gpu.memory_bytes), bytes(twin.memory_bytes));
      if (const auto one = bytes(gpu.bar1_bytes), two = bytes(twin.bar1_bytes); one && two && *one != *two) {
        auto [first, second] = texts_apart(*one, *two, "GB");
        add(0.3, gpu_name(a_, gpu), "BAR1 size", std::move(first), std::move(second),
            "a small window limits how much of its memory NICs reach at once", *two > *one);
      }
      fact(0.5, gpu_name(a_, gpu), "GPUDirect RDMA", gpu.gpudirect_rdma, twin.gpudirect_rdma,
           "without it every transfer is staged in host memory");
      fact(0.4, gpu_name(a_, gpu), "NUMA node", numa_of(a_, gpu_node(a_, gpu)), numa_of(b_, gpu_node(b_, twin)));
    }
    for (const auto& gpu : b_.gpus) {
      if (!find_gpu(a_, gpu.ordinal)) missing(1.0, gpu_name(b_, gpu), false, "the one lacks all that it does");
    }
  }

  static Fact<double> bytes(const Fact<std::uint64_t>& value) {
    return value ? Fact<double>(static_cast<double>(*value) / 1e9, value.source) : Fact<double>{};
  }
  static NodeRef gpu_node(const Machine& machine, const Gpu& gpu) {
    return {NodeKind::gpu, static_cast<std::uint32_t>(&gpu - machine.gpus.data())};
  }

  void compare_pci_links() {
    const auto in_a = endpoints(a_);
    const auto in_b = endpoints(b_);
    for (const auto& [name, device] : in_a) {
      const auto twin = in_b.find(name);
      if (twin == in_b.end()) continue;
      const auto& one = a_.pci[device.index].link;
      const auto& two = b_.pci[twin->second.index].link;
      const auto width_cost = one.width && two.width ? lost_share(*one.width, *two.width) : 0.0;
      const auto speed_cost = one.speed_gts && two.speed_gts ? lost_share(*one.speed_gts, *two.speed_gts) : 0.0;
      if (width_cost > 0) {
        add(width_cost, name, "PCIe width", fmt::format("x{}", *one.width), fmt::format("x{}", *two.width),
            fmt::format("the narrower loses {:.0f} % of every transfer's rate", 100 * width_cost),
            *two.width > *one.width);
      }
      if (speed_cost > 0) {
        // An idle GPU lowers its link speed: no proof.
        const bool idle = is_gpu(a_.pci[device.index]);
        add(idle ? 0.1 * speed_cost : speed_cost, name, "PCIe speed", fmt::format("{:g} GT/s", *one.speed_gts),
            fmt::format("{:g} GT/s", *two.speed_gts),
            idle ? "an idle GPU lowers its link: compare under load"
                 : fmt::format("the slower loses {:.0f} % of every transfer's rate", 100 * speed_cost),
            *two.speed_gts > *one.speed_gts);
      }
      if (width_cost == 0 && speed_cost == 0)
        rate(name, "slowest PCIe link to the CPU", "GB/s", slowest_upwards(a_, device),
             slowest_upwards(b_, twin->second));
      fact(0.05, name, "PCIe maximum width", one.max_width, two.max_width);
      fact(0.05, name, "PCIe maximum speed", one.max_speed_gts, two.max_speed_gts);
    }
  }

  void compare_nics() {
    const auto find_nic = [](const Machine& machine, const std::string& name) -> const Nic* {
      for (const auto& nic : machine.nics) {
        if (nic.name == name) return &nic;
      }
      return nullptr;
    };
    for (const auto& nic : a_.nics) {
      const auto subject = "NIC " + nic.name;
      const auto* twin = find_nic(b_, nic.name);
      if (twin == nullptr) {
        missing(nic.rdma ? 0.9 : 0.2, subject, true, "the other lacks its share of the network");
        continue;
      }
      rate(subject, "network rate", "Gb/s", nic_capacity_gbps(a_, nic), nic_capacity_gbps(b_, *twin));
      const auto function = [](const Nic& one) {
        return one.functions.empty() ? Ref<PciDevice>{} : one.functions.front();
      };
      if (!same_ids(function(nic), function(*twin))) fact(0.1, subject, "model", nic.model, twin->model);
      const NodeRef here{NodeKind::nic, static_cast<std::uint32_t>(&nic - a_.nics.data())};
      const NodeRef there{NodeKind::nic, static_cast<std::uint32_t>(twin - b_.nics.data())};
      fact(0.4, subject, "NUMA node", numa_of(a_, here), numa_of(b_, there));
      if (nic.rdma && twin->rdma) compare_rdma(a_.rdma[nic.rdma.index], b_.rdma[twin->rdma.index]);
      if (nic.bond && twin->bond) compare_bonds(subject, a_.bonds[nic.bond.index], b_.bonds[twin->bond.index]);
    }
    for (const auto& nic : b_.nics) {
      if (find_nic(a_, nic.name) == nullptr)
        missing(nic.rdma ? 0.9 : 0.2, "NIC " + nic.name, false, "the one lacks its share of the network");
    }
  }

  void compare_rdma(const RdmaDevice& one, const RdmaDevice& two) {
    fact(0.02, one.name, "firmware", one.firmware, two.firmware);
    for (std::size_t i = 0; i < std::min(one.ports.size(), two.ports.size()); ++i) {
      const auto& x = one.ports[i];
      const auto& y = two.ports[i];
      fact(0.95, one.name, "port state", x.state, y.state, "a port that is not ACTIVE carries nothing");
      fact(0.6, one.name, "link layer", x.link_layer, y.link_layer,
           "InfiniBand and Ethernet ports cannot talk to each other");
      if (x.active_mtu && y.active_mtu && *x.active_mtu != *y.active_mtu) {
        // Headers of a packet: about 96 bytes beside each MTU of payload.
        const double cost = lost_share(*x.active_mtu / (*x.active_mtu + 96.0), *y.active_mtu / (*y.active_mtu + 96.0));
        add(cost, one.name, "MTU", fmt::format("{}", *x.active_mtu), fmt::format("{}", *y.active_mtu),
            fmt::format("the smaller loses about {:.0f} % to headers", 100 * cost), *y.active_mtu > *x.active_mtu);
      }
    }
  }

  void compare_bonds(const std::string& subject, const Bond& one, const Bond& two) {
    fact(0.2, subject, "bond mode", one.mode, two.mode);
    fact(0.15, subject, "bond hash policy", one.hash_policy, two.hash_policy, "flows spread over the legs differently");
    if (one.legs.size() != two.legs.size()) {
      const double cost = lost_share(static_cast<double>(one.legs.size()), static_cast<double>(two.legs.size()));
      add(cost, subject, "bond legs", fmt::format("{}", one.legs.size()), fmt::format("{}", two.legs.size()), {},
          two.legs.size() > one.legs.size());
    }
  }

  // NVLink and xGMI by pairs of GPUs.
  void compare_device_links() {
    const auto total = [](const Machine& machine) {
      std::map<std::string, std::uint32_t> sums;
      for (const auto& link : machine.links) {
        for (const auto end : {link.a, link.b}) {
          if (end.kind == NodeKind::gpu)
            sums[gpu_name(machine, machine.gpus[end.index])] += link.active ? *link.active : link.count.value_or(0);
        }
      }
      return sums;
    };
    const auto in_a = total(a_);
    const auto in_b = total(b_);
    for (const auto& [name, links] : in_a) {
      const auto twin = in_b.find(name);
      const auto other = twin == in_b.end() ? 0U : twin->second;
      const bool there =
          std::ranges::any_of(b_.gpus, [&, &name = name](const Gpu& gpu) { return gpu_name(b_, gpu) == name; });
      if (other == links || !there) continue;  // a missing one is reported elsewhere
      const double cost = lost_share(links, other);
      add(cost, name, "GPU links that are up", fmt::format("{}", links), fmt::format("{}", other),
          fmt::format("{:.0f} % of its rate to other GPUs is lost", 100 * cost), other > links);
    }
  }

  void compare_classes() {
    const auto classes = [](const Machine& machine) {
      const auto matrix = path_matrix(machine);
      std::map<std::pair<std::string, std::string>, PathClass> out;
      for (std::size_t r = 0; r < matrix.ends.size(); ++r) {
        for (std::size_t c = r + 1; c < matrix.ends.size(); ++c) {
          out[{node_name(machine, matrix.ends[r]), node_name(machine, matrix.ends[c])}] = matrix.at(r, c);
        }
      }
      return out;
    };
    const auto in_a = classes(a_);
    const auto in_b = classes(b_);
    for (const auto& [pair, one] : in_a) {
      const auto twin = in_b.find(pair);
      if (twin == in_b.end() || twin->second == one) continue;
      const auto& two = twin->second;
      if (one.kind == PathKind::unknown || two.kind == PathKind::unknown) continue;
      // A farther class costs up to 0.6 (SYS against PIX). Link counts are compared with the GPUs.
      if (one.kind == two.kind) continue;
      const double cost = 0.1 * std::abs(static_cast<double>(one.kind) - static_cast<double>(two.kind));
      add(std::min(cost, 0.6), pair.first + " - " + pair.second, "path class", one.to_string(), two.to_string(), {},
          two.kind < one.kind);
    }
  }

  void compare_host() {
    const auto count = [this](const char* what, std::size_t one, std::size_t two, double cost) {
      if (one != two && one > 0 && two > 0)
        add(cost, "machine", what, fmt::format("{}", one), fmt::format("{}", two), {});
    };
    count("packages", a_.packages.size(), b_.packages.size(), 0.3);
    count("NUMA nodes", a_.numa_nodes.size(), b_.numa_nodes.size(), 0.3);
    const auto memory = [&](const std::string& subject, const Fact<std::uint64_t>& here,
                            const Fact<std::uint64_t>& there) {
      // Firmware reserves a varying amount: within 2 % is equal.
      const auto one = bytes(here), two = bytes(there);
      if (!one || !two || lost_share(*one, *two) <= 0.02) return false;
      auto [first, second] = texts_apart(*one, *two, "GB");
      add(0.5 * lost_share(*one, *two), subject, "memory", std::move(first), std::move(second),
          "a memory module may be missing", *two > *one);
      return true;
    };
    bool a_node_differs = false;
    for (const auto& node : a_.numa_nodes) {
      const auto other = find_numa(b_, node.os_index);
      if (!other) continue;
      const auto subject = fmt::format("NUMA node {}", node.os_index);
      const auto& twin = b_.numa_nodes[other.index];
      fact(0.1, subject, "CPUs", node.cpus, twin.cpus);
      if (memory(subject, node.memory_bytes, twin.memory_bytes)) a_node_differs = true;
    }
    if (!a_node_differs) memory("machine", a_.memory_bytes, b_.memory_bytes);
    fact(0.0, "machine", "product", a_.product, b_.product);
    fact(0.0, "machine", "kernel", a_.kernel, b_.kernel);
    fact(0.01, "machine", "GPU driver", a_.gpu_driver, b_.gpu_driver);
  }

  const Machine& a_;
  const Machine& b_;
  std::vector<Difference> out_;
};

}  // namespace

std::vector<Difference> diff(const Machine& a, const Machine& b) {
  return Differ(a, b).run();
}

}  // namespace fairway::topology
