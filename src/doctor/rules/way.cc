#include "doctor/rules/common.h"

// What lies between two hosts, as sockets see it.
namespace fairway::doctor {
namespace {

void swallowed_segments(const RuleInput& input, RuleResult& result) {
  bool by_sockets = false;
  for (const auto& row : input.measured) {
    by_sockets = by_sockets || row.device == "tcp";
    if (row.segment_bytes == 0) continue;
    constexpr std::uint32_t kHeaders = 60;  // of IPv6 and TCP
    Finding finding;
    finding.title =
        fmt::format("The way to the other host swallows long segments; those of {} bytes pass", row.segment_bytes);
    finding.level = Level::broken;
    finding.confidence = Confidence::measured;
    finding.cause = "swallowed segments";
    finding.evidence = {
        {fmt::format("segments of {} bytes, after longer ones got no answer", row.segment_bytes), row.where}};
    finding.fix = {"tracepath HOST    # where the MTU gets smaller",
                   "ip link set INTERFACE mtu MTU    # what the whole way carries, on both hosts",
                   "sysctl -w net.ipv4.tcp_mtu_probing=2    # else, for TCP alone"};
    finding.advice = fmt::format(
        "A switch, bridge or tunnel on the way has an MTU smaller than the interfaces', and the ICMP message that "
        "would say so does not arrive: one of {} bytes passes. Fairway goes on in short segments; others hang.",
        row.segment_bytes + kHeaders);
    result.add(std::move(finding));
    return;
  }
  if (!by_sockets) result.not_applicable();  // no rate over sockets: --measure --with gives one
}

constexpr Rule kRules[] = {
    {"swallowed-segments", Family::measured, "The way between two hosts swallows long TCP segments",
     "Small messages pass, so all seems well; transfers of other programs hang for ever.",
     "A rate that fairway bench measured over tcp, and for which it had to cut segments shorter than the interface's "
     "MTU.",
     "The same MTU on interfaces, switches and tunnels; or let ICMP through; else net.ipv4.tcp_mtu_probing=2.",
     "RFC 2923, section 2.1; Linux's documentation of tcp_mtu_probing", swallowed_segments},
};

}  // namespace

std::span<const Rule> way_rules() {
  return kRules;
}

}  // namespace fairway::doctor
