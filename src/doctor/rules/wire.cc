#include <map>

#include "doctor/rules/common.h"
#include "render/phrases.h"

// What tools for links say of them: mlxlink of one, iblinkinfo and ibnetdiscover of a whole fabric.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

// mlxlink's own diagnosis of a link, and the errors that FEC did not mend.
void link_diagnosis(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto lines = input.facts.below("mlxlink");
  if (lines.empty()) return result.not_applicable();
  std::map<std::string_view, std::uint32_t> by_name;
  for (const auto nic : rails(machine)) by_name[machine.nics[nic].name] = nic;
  for (const auto& [name, seen] : lines) {
    const auto dot = name.rfind('.');
    const auto device = name.substr(0, dot);
    const auto what = name.substr(dot + 1);
    const auto value = text::to_unsigned(seen->value).value_or(0);
    const bool diagnosis = what == "opcode";
    const bool outside = what == "outside";
    const bool counts = what == "link_down" || what == "link_recovery";
    // A link goes down once or twice when the host and the switch start.
    if (!outside && value < (counts ? 3U : 1U)) continue;
    if (!outside && !diagnosis && !counts && what != "effective_errors" && what != "symbol_errors") continue;
    Finding finding;
    if (const auto rail = by_name.find(device); rail != by_name.end()) finding.devices = {nic_ref(rail->second)};
    const auto* says = input.facts.find(fmt::format("mlxlink.{}.recommendation", device));
    finding.title = diagnosis ? fmt::format("{}: mlxlink says: {}", device,
                                            says == nullptr ? fmt::format("opcode {}", value) : says->value)
                    : outside ? fmt::format("{}: {}, which its module does not allow", device, seen->value)
                    : counts  ? fmt::format("{}: its link {} {} times", device,
                                           what == "link_down" ? "went down" : "recovered from errors", value)
                              : fmt::format("{}: {} is {}", device, what, value);
    // Without a link there is no light to receive.
    const auto* state = input.facts.find(fmt::format("mlxlink.{}.state", device));
    const bool up = state == nullptr || text::lower(state->value) == "active";
    const bool warns = (outside && up) || (counts && value >= 10) || (diagnosis && !finding.devices.empty());
    finding.level = warns ? Level::warning : Level::note;
    finding.path = device;
    finding.cause = (diagnosis ? "port " : outside ? "module " : counts ? "flaps " : "errors ") + device;
    finding.evidence.push_back({fmt::format("{} {}", what, seen->value), seen->where});
    finding.fix = {fmt::format("mlxlink -d {} -m -c    # signal and transceiver", device)};
    finding.advice = "Check cable and transceiver; the switch port has the same counters.";
    result.add(std::move(finding));
  }
}

void fabric_links(const RuleInput& input, RuleResult& result) {
  const auto slow = input.facts.below("fabric.slow");
  const auto waiting = input.facts.below("fabric.waiting");
  if (slow.empty() && waiting.empty()) {
    if (input.facts.below("fabric").empty()) result.not_applicable();
    return;
  }
  const auto add = [&result](const auto& lines, std::string title, const char* advice) {
    if (lines.empty()) return;
    Finding finding;
    finding.title = std::move(title);
    finding.path = "links of the fabric";
    for (const auto& [number, seen] : lines) {
      if (finding.evidence.size() < 6) finding.evidence.push_back({text::quote(seen->value, 160), seen->where});
    }
    finding.fix = {"iblinkinfo | grep -E 'Could be|Init|Armed'"};
    finding.advice = advice;
    result.add(std::move(finding));
  };
  add(slow,
      fmt::format("{} below what both ends support",
                  render::count(slow.size(), "link of the fabric runs", "links of the fabric run")),
      "Reseat or replace the cable; a port may be limited on purpose.");
  add(waiting,
      fmt::format("{} for the subnet manager",
                  render::count(waiting.size(), "port of the fabric waits", "ports of the fabric wait")),
      "Is a subnet manager running, and does it reach these ports?");
}

constexpr Rule kRules[] = {
    {"link-diagnosis", Family::port, "mlxlink calls a link faulty", "From retries to no link at all.",
     "mlxlink's status opcode is not 0; a temperature or a power outside the range that it prints beside it; a link "
     "that "
     "went down or recovered 10 times (3: a note); errors that FEC did not mend (a note).",
     "Cable, transceiver, switch port.", "NVIDIA's MFT manual, mlxlink", link_diagnosis},
    {"fabric-links", Family::port, "Links of the InfiniBand fabric are slow or not active",
     "Every path over them, in proportion.",
     "iblinkinfo's \"Could be\", and ports whose link is up and not active; links of one lane in ibnetdiscover.",
     "Cable; subnet manager.", "the manual of iblinkinfo", fabric_links},
};

}  // namespace

std::span<const Rule> wire_rules() {
  return kRules;
}

}  // namespace fairway::doctor
