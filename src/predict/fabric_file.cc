#include <fmt/format.h>

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

#include "predict/odds.h"

namespace fairway::predict {

#ifdef FAIRWAY_HAVE_JSON
Result<TwoTier> read_two_tier(const std::string& text, const std::string& name) {
  const auto bad = [&name](std::string_view what) {
    return Status(ErrorCode::invalid_argument, fmt::format("{}: {}", name, what));
  };
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return bad("is no JSON object");
  TwoTier fabric;
  for (const auto& [key, value] : json.items()) {
    if (key == "name") continue;
    if (!value.is_number()) return bad(fmt::format("{} is no number", key));
    const double number = value.get<double>();
    if (key == "host_gbps") {
      fabric.host_gbps = number;
    } else if (key == "uplink_gbps") {
      fabric.uplink_gbps = number;
    } else {
      if (!(number >= 0) || number > 1e6 || number != static_cast<double>(static_cast<std::uint32_t>(number))) {
        return bad(fmt::format("{} is no whole number", key));
      }
      const auto whole = static_cast<std::uint32_t>(number);
      if (key == "hosts")
        fabric.hosts = whole;
      else if (key == "hosts_per_leaf")
        fabric.hosts_per_leaf = whole;
      else if (key == "spines")
        fabric.spines = whole;
      else if (key == "links_per_spine")
        fabric.links_per_spine = whole;
      else if (key == "flows_per_host")
        fabric.flows_per_host = whole;
      else
        return bad(
            fmt::format("{} is not a field: hosts, hosts_per_leaf, spines, links_per_spine, host_gbps, "
                        "uplink_gbps, flows_per_host are",
                        key.substr(0, 60)));
    }
  }
  if (auto status = validate(fabric); !status) return status.with_context(name);
  return fabric;
}
#else
Result<TwoTier> read_two_tier(const std::string&, const std::string& name) {
  return Status(ErrorCode::unsupported, fmt::format("{}: this build reads no JSON", name));
}
#endif

}  // namespace fairway::predict
