#include "predict/flow.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "topology/devices.h"
#include "topology/text.h"

namespace fairway::predict {
namespace {

namespace text = topology::text;

Status no_such(std::string_view input, std::string_view kind, std::size_t count) {
  if (count == 0) {
    return {ErrorCode::not_found, fmt::format("'{}': this machine has no {}", text::quote(input), kind)};
  }
  return {ErrorCode::not_found, fmt::format("'{}': this machine has {} 0 to {}", text::quote(input), kind, count - 1)};
}

// Numbers may have gaps, of a GPU that is lost or of a part of a machine.
template <class Number>
Status no_such_number(std::string_view input, std::string_view kind, std::size_t count, Number number) {
  bool whole = true;
  std::string list;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string one = number(static_cast<std::uint32_t>(i));
    whole = whole && one == std::to_string(i);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", one);
  }
  if (whole) return no_such(input, kind, count);
  return {ErrorCode::not_found, fmt::format("'{}': this machine has {} {}", text::quote(input), kind, list)};
}

Result<Endpoint> nic_endpoint(const topology::Machine& machine, std::string_view input, std::uint32_t index,
                              std::string_view leg) {
  Endpoint endpoint{EndpointKind::nic, index, {}};
  if (leg.empty()) return endpoint;
  std::optional<std::uint32_t> number;
  if (leg.starts_with("leg")) number = text::to_u32(leg.substr(3));
  const auto& nic = machine.nics[index];
  const auto legs = nic.bond ? machine.bonds[nic.bond.index].legs.size() : 0;
  if (!number) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("'{}': after the NIC comes /leg0, /leg1, ...", text::quote(input)));
  }
  if (*number >= legs) {
    return Status(ErrorCode::not_found, fmt::format("'{}': {} has {} bond legs", text::quote(input), nic.name, legs));
  }
  endpoint.leg = *number;
  return endpoint;
}

}  // namespace

Result<Endpoint> parse_endpoint(const topology::Machine& machine, std::string_view input) {
  const auto lower = text::lower(text::trim(input));
  std::string_view word = lower;
  if (word == "remote") return Endpoint{EndpointKind::remote, 0, {}};
  std::string_view leg;
  if (const auto slash = word.find('/'); slash != word.npos) {
    leg = word.substr(slash + 1);
    word = word.substr(0, slash);
  }
  // A device's own name comes before the numbered words: a device may be called "nic3".
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    if (text::lower(machine.nics[i].name) == word) return nic_endpoint(machine, input, i, leg);
  }
  const auto number_after = [&word](std::string_view prefix) -> std::optional<std::uint32_t> {
    if (!word.starts_with(prefix)) return {};
    return text::to_u32(word.substr(prefix.size()));
  };
  if (const auto n = number_after("nic")) {
    if (*n >= machine.nics.size()) return no_such(input, "NICs", machine.nics.size());
    return nic_endpoint(machine, input, *n, leg);
  }
  if (leg.empty()) {
    if (const auto n = number_after("gpu")) {
      const auto gpu = topology::find_gpu(machine, *n);
      if (!gpu)
        return no_such_number(input, "GPUs", machine.gpus.size(), [&](std::uint32_t i) {
          return argument_of(machine, Endpoint{EndpointKind::gpu, i, {}}).substr(3);
        });
      return Endpoint{EndpointKind::gpu, gpu.index, {}};
    }
    for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) {
      if (word == argument_of(machine, Endpoint{EndpointKind::gpu, i, {}})) return Endpoint{EndpointKind::gpu, i, {}};
    }
    auto n = number_after("numa");
    if (!n) n = number_after("host");
    if (n) {
      const auto numa = topology::find_numa(machine, *n);
      if (!numa)
        return no_such_number(input, "NUMA nodes", machine.numa_nodes.size(),
                              [&](std::uint32_t i) { return std::to_string(machine.numa_nodes[i].os_index); });
      return Endpoint{EndpointKind::host_memory, numa.index, {}};
    }
  }
  return Status(ErrorCode::invalid_argument,
                fmt::format("'{}' is no end of a path: say gpu3, nic0, a NIC's name, nic0/leg1, numa1 or remote",
                            text::quote(input)));
}

std::string to_string(const topology::Machine& machine, const Endpoint& endpoint) {
  switch (endpoint.kind) {
    case EndpointKind::gpu: return topology::gpu_name(machine, machine.gpus[endpoint.index]);
    case EndpointKind::nic:
      return endpoint.leg ? fmt::format("{}/leg{}", machine.nics[endpoint.index].name, *endpoint.leg)
                          : machine.nics[endpoint.index].name;
    case EndpointKind::host_memory:
      return fmt::format("memory of NUMA node {}", machine.numa_nodes[endpoint.index].os_index);
    case EndpointKind::remote: return "remote";
  }
  return "?";
}

std::string argument_of(const topology::Machine& machine, const Endpoint& endpoint) {
  switch (endpoint.kind) {
    case EndpointKind::gpu: {
      const auto& gpu = machine.gpus[endpoint.index];
      if (topology::is_numbered(gpu)) return fmt::format("gpu{}", gpu.ordinal);
      auto bus = machine.pci[gpu.pci.index].bus_id.to_string();  // colons stand between the ends of a flow
      std::ranges::replace(bus, ':', '-');
      return "gpu" + bus;
    }
    case EndpointKind::nic: {
      // Its own name, unless a flow's colons, a shell or another NIC of that name would make something else of it.
      const auto& name = machine.nics[endpoint.index].name;
      const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
      auto out = !name.empty() && std::ranges::all_of(name, plain) ? name : std::string();
      if (const auto read = parse_endpoint(machine, out);
          !read || *read != Endpoint{EndpointKind::nic, endpoint.index, {}})
        out = fmt::format("nic{}", endpoint.index);
      return endpoint.leg ? fmt::format("{}/leg{}", out, *endpoint.leg) : out;
    }
    case EndpointKind::host_memory: return fmt::format("numa{}", machine.numa_nodes[endpoint.index].os_index);
    case EndpointKind::remote: return "remote";
  }
  return "?";
}

topology::NodeRef node_of(const Endpoint& endpoint) {
  switch (endpoint.kind) {
    case EndpointKind::gpu: return {topology::NodeKind::gpu, endpoint.index};
    case EndpointKind::nic: return {topology::NodeKind::nic, endpoint.index};
    case EndpointKind::host_memory: return {topology::NodeKind::numa_node, endpoint.index};
    case EndpointKind::remote: break;
  }
  return {};
}

std::string_view to_string(Ordering ordering) {
  switch (ordering) {
    case Ordering::relaxed: return "relaxed";
    case Ordering::strict: return "strict";
    case Ordering::unknown: break;
  }
  return "unknown";
}

std::string to_string(const topology::Machine& machine, const Flow& flow) {
  const auto from = to_string(machine, flow.from);
  const auto to = to_string(machine, flow.to);
  if (!flow.loop) return fmt::format("{} -> {}", from, to);
  return fmt::format("{} -> {} -> {}", from, machine.nics[*flow.loop].name, to);
}

std::string argument_of(const topology::Machine& machine, const Flow& flow) {
  const auto from = argument_of(machine, flow.from);
  const auto to = argument_of(machine, flow.to);
  if (!flow.loop) return fmt::format("{}:{}", from, to);
  return fmt::format("{}:{}:{}", from, argument_of(machine, Endpoint{EndpointKind::nic, *flow.loop, {}}), to);
}

}  // namespace fairway::predict
