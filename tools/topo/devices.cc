// fairway topo nics, fairway topo hca: questions about single devices.
#include <fmt/format.h>

#include "bench/rows.h"
#include "render/json.h"
#include "render/reports.h"
#include "topo.h"
#include "topology/assess.h"
#include "topology/text.h"

namespace fairway::tool {
namespace {

struct NicOptions {
  std::string gpu;
  int numa = -1;
  bool json = false;
};

std::string known_gpus(const topology::Machine& machine) {
  std::vector<std::string> names;
  for (const topology::Gpu& gpu : machine.gpus) names.push_back(topology::gpu_name(machine, gpu));
  return names.empty() ? "this machine has no GPU" : "there are " + render::fold_names(names);
}

topology::Ref<topology::Gpu> gpu_of(const topology::Machine& machine, const topology::BusId& bus) {
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    const auto pci = machine.gpus[i].pci;
    if (pci && machine.pci[pci.index].bus_id == bus) return topology::Ref<topology::Gpu>(i);
  }
  return {};
}

Exit print_or_fail(Tool& tool, const Result<std::string>& text) {
  return text ? tool.print(*text) : tool.fail(text.status());
}

Exit run_nics(Tool& tool, const TopoInput& input, const NicOptions& options) {
  const bool by_gpu = !options.gpu.empty();
  if (by_gpu && options.numa >= 0) return tool.misused("--gpu and --numa exclude each other");
  std::string_view digits = options.gpu;
  if (topology::text::starts_with_nocase(digits, "gpu")) digits.remove_prefix(3);
  const auto ordinal = topology::text::to_u32(digits);
  const auto bus = topology::BusId::parse(options.gpu);
  if (by_gpu && !ordinal && !bus)
    return tool.misused(fmt::format("--gpu takes a number or a bus id, as in --gpu 3, not '{}'", options.gpu));
  Result<topology::Machine> machine = read_machine(input);
  if (!machine) return cannot_read(tool, input, machine.status());
  const render::TextStyle style = text_style(tool);
  const auto expect = expect_rates(*machine, input);
  if (!expect) return tool.unreadable(expect.status());
  const auto show = [&](topology::NodeRef memory, const std::string& name,
                        const std::vector<topology::NicChoice>& choices) {
    if (options.json) return print_or_fail(tool, render::nic_choices_json(*machine, memory, name, choices, *expect));
    return tool.print(render::nic_choices_text(*machine, memory, name, choices, *expect, style));
  };
  if (by_gpu) {
    const auto gpu = ordinal ? topology::find_gpu(*machine, *ordinal) : gpu_of(*machine, *bus);
    if (!gpu)
      return tool.fail(fmt::format("there is no GPU {}: {}", ordinal ? digits : options.gpu, known_gpus(*machine)));
    std::string name = topology::gpu_name(*machine, machine->gpus[gpu.index]);
    if (machine->gpus[gpu.index].model) name += fmt::format(" ({})", *machine->gpus[gpu.index].model);
    return show({topology::NodeKind::gpu, gpu.index}, name, topology::nics_for_gpu(*machine, gpu));
  }
  if (options.numa >= 0) {
    const auto numa = static_cast<std::uint32_t>(options.numa);
    const auto node = topology::find_numa(*machine, numa);
    if (!node) {
      return tool.fail(fmt::format("there is no NUMA node {}: this machine has {}", numa,
                                   render::count(machine->numa_nodes.size(), "NUMA node")));
    }
    return show({topology::NodeKind::numa_node, node.index}, fmt::format("NUMA node {}", numa),
                topology::nics_for_numa(*machine, numa));
  }
  if (options.json) return print_or_fail(tool, render::rails_json(*machine));
  const std::string errors = render::port_errors_text(*machine, style);
  return tool.print(render::rails_text(*machine, style) + (errors.empty() ? "" : "\n" + errors));
}

std::string hcas_json(const topology::Machine& machine, std::span<const topology::RdmaDevice> devices) {
  std::vector<bench::Fields> rows;
  for (const topology::RdmaDevice& device : devices)
    for (const render::HcaRow& row : render::hca_rows(machine, device))
      rows.push_back({{"device", device.name, true},
                      {"port", row.port == 0 ? "" : std::to_string(row.port)},
                      {"kind", row.kind, true},
                      {"name", row.name, true},
                      {"value", row.value, true},
                      {"meaning", row.meaning, true},
                      {"limit", row.limit, true}});
  return bench::json_of("fairway-topo-hca", "fairway topo hca", rows);
}

Exit run_hca(Tool& tool, const TopoInput& input, const std::string& name, bool json) {
  Result<topology::Machine> machine = read_machine(input);
  if (!machine) return cannot_read(tool, input, machine.status());
  std::vector<std::string> names;
  for (const topology::RdmaDevice& device : machine->rdma) names.push_back(device.name);
  const std::string known = names.empty() ? "this machine has none" : "there are " + render::fold_names(names);
  if (name.empty()) {
    if (names.empty()) return tool.fail("there is no RDMA device: " + known);
    if (json) return tool.print(hcas_json(*machine, machine->rdma));
    std::string out;
    for (const topology::RdmaDevice& device : machine->rdma)
      out += (out.empty() ? "" : "\n") + render::hca_text(*machine, device, text_style(tool));
    return tool.print(out);
  }
  const auto device = topology::find_rdma(*machine, name);
  if (!device) return tool.fail(fmt::format("there is no RDMA device '{}': {}", name, known));
  const topology::RdmaDevice& found = machine->rdma[device.index];
  return tool.print(json ? hcas_json(*machine, {&found, 1}) : render::hca_text(*machine, found, text_style(tool)));
}

}  // namespace

void add_topo_devices(Tool& tool, CLI::App& topo, const std::shared_ptr<TopoInput>& input) {
  CLI::App& nics = tool.add_below(
      topo, "nics", "List the NICs for a memory, best first; or every port, why it is a rail or not, and its errors");
  auto nic_options = std::make_shared<NicOptions>();
  nics.add_option("--gpu", nic_options->gpu, "For the memory of this GPU")->type_name("N");
  nics.add_option("--numa", nic_options->numa, "For the memory of this NUMA node")
      ->type_name("N")
      ->check(CLI::Range(0, 4095));
  nics.add_flag("--json", nic_options->json, "Print it as JSON");
  add_from_option(nics, *input);
  nics.footer(
      "Examples:\n"
      "  fairway topo nics                            every port: a rail or not, and why\n"
      "  fairway topo nics --gpu 3                    the NICs for GPU3, best first");
  tool.on_run(nics, [&tool, input, nic_options] { return run_nics(tool, *input, *nic_options); });

  CLI::App& hca =
      tool.add_below(topo, "hca", "Explain an RDMA device: every attribute in a sentence, and the limit it sets");
  auto name = std::make_shared<std::string>();
  hca.add_option("NAME", *name, "The device, such as mlx5_0 (default: all)");
  const auto json = std::make_shared<bool>(false);
  hca.add_flag("--json", *json, "Print it as JSON");
  add_from_option(hca, *input);
  hca.footer("Example:\n  fairway topo hca mlx5_0");
  tool.on_run(hca, [&tool, input, name, json] { return run_hca(tool, *input, *name, *json); });
}

}  // namespace fairway::tool
