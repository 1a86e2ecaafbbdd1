#include "render/links.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "render/phrases.h"

namespace fairway::render {
namespace {

using topology::DeviceLink;
using topology::LinkKind;
using topology::Machine;
using topology::NodeKind;

const topology::Fact<std::uint32_t>& in_use(const DeviceLink& link) {
  return link.active ? link.active : link.count;
}

// The value that all entries of a map share; none if they differ.
template <class Value>
std::optional<Value> common(const std::map<std::uint32_t, Value>& values) {
  if (values.empty()) return {};
  for (const auto& [key, value] : values) {
    if (value != values.begin()->second) return {};
  }
  return values.begin()->second;
}

std::string name_of(LinkKind kind, const std::set<std::uint32_t>& generations) {
  if (kind == LinkKind::xgmi) return "xGMI";
  return generations.size() == 1 ? fmt::format("NVLink {}", *generations.begin()) : "NVLink";
}

LinkFabric gather(const Machine& machine, LinkKind kind) {
  LinkFabric fabric;
  fabric.kind = kind;
  std::set<std::uint32_t> switches;
  std::set<std::uint32_t> generations;
  std::map<std::uint32_t, std::uint32_t> links;  // by GPU
  std::map<std::uint32_t, double> gbs;
  std::set<std::uint32_t> pair_counts;
  std::set<double> per_link;
  for (const DeviceLink& link : machine.links) {
    if (link.kind != kind) continue;
    if (link.generation) generations.insert(*link.generation);
    if (link.gbs_per_link) per_link.insert(*link.gbs_per_link);
    if (link.active && link.count && *link.active < *link.count) fabric.degraded = true;
    const std::uint32_t up = in_use(link).value_or(0);
    const auto credit = [&](topology::NodeRef end) {
      if (end.kind != NodeKind::gpu) return;
      links[end.index] += up;
      gbs[end.index] += up * link.gbs_per_link.value_or(0);
    };
    credit(link.a);
    credit(link.b);
    for (const topology::NodeRef end : {link.a, link.b}) {
      if (end.kind == NodeKind::nv_switch) switches.insert(end.index);
    }
    if (link.a.kind == NodeKind::gpu && link.b.kind == NodeKind::gpu) {
      fabric.pairs.push_back(link);
      pair_counts.insert(up);
    }
  }
  for (const auto& [gpu, n] : links) fabric.gpus.push_back(gpu);
  fabric.switches.assign(switches.begin(), switches.end());
  fabric.switches_seen = switches.size() > 1 || std::ranges::any_of(switches, [&](std::uint32_t i) {
                           return machine.nv_switches[i].pci.valid();
                         });
  fabric.name = name_of(kind, generations);
  fabric.links_of_gpu = common(links);
  fabric.gbs_of_gpu = common(gbs);
  if (fabric.gbs_of_gpu && *fabric.gbs_of_gpu <= 0) fabric.gbs_of_gpu.reset();
  if (per_link.size() == 1) fabric.gbs_per_link = *per_link.begin();
  const std::size_t n = fabric.gpus.size();
  const bool all_pairs = fabric.pairs.size() == n * (n - 1) / 2 && pair_counts.size() == 1;
  fabric.uniform = fabric.links_of_gpu && ((!switches.empty() && fabric.pairs.empty()) || (n > 2 && all_pairs));
  return fabric;
}

std::string pair_line(const Machine& machine, const LinkFabric& fabric, const DeviceLink& link) {
  std::string out = fmt::format("{} -- {}  {}", topology::node_name(machine, link.a),
                                topology::node_name(machine, link.b), fabric.name);
  const auto& links = in_use(link);
  if (links) out += fmt::format(" x{}", *links);
  if (links && link.gbs_per_link) out += fmt::format("  {} GB/s", rate(*links * *link.gbs_per_link));
  if (link.active && link.count && *link.active < *link.count)
    out += fmt::format("  ({} of {} up)", *link.active, *link.count);
  return out;
}

}  // namespace

std::vector<LinkFabric> link_fabrics(const Machine& machine) {
  std::vector<LinkFabric> fabrics;
  for (const LinkKind kind : {LinkKind::nvlink, LinkKind::xgmi}) {
    LinkFabric fabric = gather(machine, kind);
    if (!fabric.gpus.empty()) fabrics.push_back(std::move(fabric));
  }
  return fabrics;
}

std::string describe(const LinkFabric& fabric) {
  std::string out = fmt::format("{}: {}", fabric.name, count(fabric.gpus.size(), "GPU"));
  if (fabric.links_of_gpu) {
    out += fmt::format(", {}", count(*fabric.links_of_gpu, "link"));
    if (fabric.gbs_of_gpu) out += fmt::format(" = {} GB/s", rate(*fabric.gbs_of_gpu));
    out += " each";
  }
  if (!fabric.switches.empty()) {
    out += fabric.switches_seen ? fmt::format(", through {}", count(fabric.switches.size(), "NVSwitch", "NVSwitches"))
                                : ", through NVSwitches";
  } else if (fabric.uniform && !fabric.pairs.empty()) {
    const auto& links = in_use(fabric.pairs[0]);
    out += ", every pair direct";
    if (links && fabric.gbs_per_link) {
      out += fmt::format(" by {} ({} GB/s)", count(*links, "link"), rate(*links * *fabric.gbs_per_link));
    }
  } else {
    out += fmt::format(", {} direct", count(fabric.pairs.size(), "pair"));
  }
  if (fabric.degraded) out += "; some links are down";
  return out;
}

std::vector<std::string> link_lines(const Machine& machine) {
  std::vector<std::string> lines;
  for (const LinkFabric& fabric : link_fabrics(machine)) {
    if (fabric.uniform) {
      lines.push_back(describe(fabric));
      continue;
    }
    for (const DeviceLink& link : machine.links) {
      if (link.kind == fabric.kind) lines.push_back(pair_line(machine, fabric, link));
    }
  }
  for (const DeviceLink& link : machine.links) {
    if (link.kind != LinkKind::c2c) continue;
    LinkFabric c2c;
    c2c.name = "C2C";
    lines.push_back(pair_line(machine, c2c, link));
  }
  return lines;
}

}  // namespace fairway::render
