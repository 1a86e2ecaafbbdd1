#include <algorithm>

#include "topology/catalog.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

std::optional<LinkFamily> family_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return LinkFamily::nvlink;
    case LinkKind::xgmi: return LinkFamily::xgmi;
    case LinkKind::c2c: return LinkFamily::c2c;
  }
  return {};
}

// "RTX A6000 bridge" matches models with the word A6000. Only model names have digits.
bool names_model(std::string_view device, std::string_view model) {
  const auto named = text::words(model);
  for (auto word : text::words(device)) {
    while (word.ends_with(',')) word.remove_suffix(1);
    if (word.find_first_of("0123456789") == word.npos) continue;
    for (const auto name : named) {
      // "V100-SXM2-32GB"
      if (name == word || (name.starts_with(word) && name[word.size()] == '-')) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<double> catalogue_link_gbs(LinkKind kind, std::uint32_t generation, std::string_view model) {
  const auto family = family_of(kind);
  const auto name = "NVLink " + std::to_string(generation);
  std::optional<double> common;
  bool agree = true;
  for (const auto& row : link_catalogue()) {
    if (row.family != family) continue;
    if (names_model(row.device, model) && (generation == 0 || kind != LinkKind::nvlink || row.name == name)) {
      return row.link_gbs;
    }
    if (row.name != name) continue;
    agree = agree && common.value_or(row.link_gbs) == row.link_gbs;
    common = row.link_gbs;
  }
  // A generation with the same rate on all devices.
  return kind == LinkKind::nvlink && agree ? common : std::nullopt;
}

void fill_link_rates(Machine& machine) {
  for (auto& link : machine.links) {
    const auto gpu = link.a.kind == NodeKind::gpu ? link.a : link.b;
    if (link.gbs_per_link || gpu.kind != NodeKind::gpu || gpu.index >= machine.gpus.size()) continue;
    const auto model = machine.gpus[gpu.index].model.value_or("");
    if (link.kind == LinkKind::nvlink && !link.generation) {
      const auto* known = find_gpu_generation(model);
      if (known != nullptr && known->nvlink > 0) link.generation.set(known->nvlink, Source::catalogue);
    }
    if (const auto gbs = catalogue_link_gbs(link.kind, link.generation.value_or(0), model)) {
      link.gbs_per_link.set(*gbs, Source::catalogue);
    }
  }
}

}  // namespace fairway::topology
