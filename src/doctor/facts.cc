#include "doctor/facts.h"

#include <algorithm>

#include <fmt/format.h>

#include "topology/contradict.h"
#include "topology/text.h"

namespace fairway::doctor {

namespace text = topology::text;

// More than any machine has; it bounds what a recording can make us keep.
constexpr std::size_t kMaxFacts = 200000;

namespace {

// Lines of logs and lists, how many there are, and what a job of the moment makes of it.
bool changes_by_itself(std::string_view name) {
  constexpr std::string_view kOfTheMoment[] = {"topology_file.",
                                               "fabric.",
                                               "fabric_manager.",
                                               "nccl.",
                                               "ucx.",
                                               "iommu.group.",
                                               "pcie.nameless.",
                                               "kernel.xid.",
                                               "kernel.sxid.",
                                               "kernel.aer",
                                               "kernel.mlx5",
                                               "kernel.link_down.",
                                               "kernel.iommu_fault.",
                                               "lost.",
                                               "unusable.",
                                               "kernel.hardware",
                                               "kernel.uncorrectable.",
                                               "kernel.reset.",
                                               "kernel.timeout.",
                                               "kernel.unjudged",
                                               "kernel.log",
                                               "kernel.pcie_limited",
                                               "kernel.modules",
                                               "kernel.module.",
                                               "kernel.holders."};
  return name.ends_with(".load") ||
         std::ranges::any_of(kOfTheMoment, [name](std::string_view one) { return name.starts_with(one); });
}

}  // namespace

void Facts::set(std::string name, std::string value, std::string where) {
  const auto found = facts_.find(name);
  if (found == facts_.end()) {
    if (facts_.size() >= kMaxFacts) {
      ++left_out_;
      return;
    }
    texts_.emplace(name, text_);
    facts_.emplace(std::move(name), Seen{std::move(value), std::move(where)});
    return;
  }
  auto& seen = found->second;
  if (texts_[name] == text_ || seen.value == value || changes_by_itself(name)) return;
  const auto worse = topology::is_worse(name, seen.value, value);
  disputes_[name] = fmt::format("{} says {}, {} says {}: the {} counts", seen.where, text::quote(seen.value, 80), where,
                                text::quote(value, 80), worse ? "worse" : "later");
  if (!worse.value_or(true)) return;
  seen = {std::move(value), std::move(where)};
  texts_[name] = text_;
}

void Facts::miss(std::string name, std::string why) {
  if (missed_.size() < kMaxFacts) missed_.try_emplace(std::move(name), std::move(why));
}

void Facts::forget(const std::string& name) {
  facts_.erase(name);
}

const Seen* Facts::find(const std::string& name) const {
  const auto found = facts_.find(name);
  return found == facts_.end() ? nullptr : &found->second;
}

std::optional<double> Facts::number(const std::string& name) const {
  const auto* seen = find(name);
  return seen == nullptr ? std::nullopt : text::to_double(seen->value);
}

std::optional<std::uint64_t> Facts::hex(const std::string& name) const {
  const auto* seen = find(name);
  return seen == nullptr ? std::nullopt : text::to_hex(seen->value);
}

std::string Facts::text(const std::string& name) const {
  const auto* seen = find(name);
  return seen == nullptr ? std::string() : seen->value;
}

std::vector<std::pair<std::string, const Seen*>> Facts::below(const std::string& name) const {
  std::vector<std::pair<std::string, const Seen*>> out;
  const auto start = name + ".";
  for (auto at = facts_.lower_bound(start); at != facts_.end() && at->first.starts_with(start); ++at) {
    out.emplace_back(at->first.substr(start.size()), &at->second);
  }
  return out;
}

std::string Facts::why_not(const std::string& name) const {
  std::string at = name;
  for (;;) {
    if (const auto found = missed_.find(at); found != missed_.end()) return found->second;
    const auto dot = at.rfind('.');
    if (dot == std::string::npos) return "not in the input";
    at.resize(dot);
  }
}

}  // namespace fairway::doctor
