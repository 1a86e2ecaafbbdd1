#include <exception>

#include <fmt/format.h>

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

#include "doctor/gather.h"
#include "topology/load.h"
#include "topology/text.h"

namespace fairway::doctor {

constexpr std::string_view kFormat = "fairway doctor record";
constexpr int kVersion = 1;

bool is_case(std::string_view text) {
  return text.substr(0, 200).find(kFormat) != std::string_view::npos;
}

#ifdef FAIRWAY_HAVE_JSON

using Json = nlohmann::ordered_json;

Result<std::string> write_case(const Case& one) {
  const auto snapshot = topology::write_snapshot(one.machine);
  if (!snapshot) return snapshot.status();
  Json out;
  out["format"] = kFormat;
  out["version"] = kVersion;
  out["machine"] = Json::parse(*snapshot);
  auto& facts = out["facts"] = Json::object();
  for (const auto& [name, seen] : one.facts.all()) facts[name] = {{"value", seen.value}, {"where", seen.where}};
  auto& missed = out["not_read"] = Json::object();
  for (const auto& [name, why] : one.facts.missed()) missed[name] = why;
  auto& read = out["read"] = Json::array();
  for (const auto& text : one.read)
    read.push_back({{"where", text.where}, {"what", text.what}, {"state", to_string(text.state)}, {"gave", text.gave}});
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Case> parse_case(std::string_view text, const std::string& name) {
  const auto bad = [&name](std::string_view why) {
    return Status(ErrorCode::invalid_argument, fmt::format("{}: {}", name, why));
  };
  // As of snapshots: none of ours is deep, and deep ones cost stack.
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth < 40; };
  const auto json = Json::parse(text, shallow, false);
  if (json.is_discarded() || !json.is_object()) return bad("is no JSON object");
  try {
    if (json.value("format", "") != kFormat) return bad(fmt::format("\"format\" is not \"{}\"", kFormat));
    if (json.value("version", 0) != kVersion)
      return Status(ErrorCode::version_mismatch, fmt::format("{}: a record of version {}, and this program reads {}",
                                                             name, json.value("version", 0), kVersion));
    if (!json.contains("machine")) return bad("\"machine\" is missing");
    auto machine = topology::read_snapshot(json["machine"].dump(), name);
    if (!machine) return machine.status();
    Case one;
    one.machine = std::move(*machine);
    for (const char* key : {"facts", "not_read"}) {
      if (!json.contains(key) || !json[key].is_object()) return bad(fmt::format("\"{}\" is no object", key));
    }
    for (const auto& [fact, seen] : json["facts"].items()) {
      one.facts.set(fact, seen.at("value").get<std::string>(), seen.at("where").get<std::string>());
    }
    for (const auto& [fact, why] : json["not_read"].items()) one.facts.miss(fact, why.get<std::string>());
    // Records of before had none.
    if (json.contains("read")) {
      for (const auto& entry : json["read"]) {
        const auto state = topology::read_state_from(entry.at("state").get<std::string>());
        if (!state) return bad("\"read\" has a state that this version does not know");
        one.read.push_back({entry.at("where").get<std::string>(), entry.at("what").get<std::string>(), *state,
                            entry.at("gave").get<std::string>()});
      }
    } else {
      one.read.push_back(
          {name, "record of --save", topology::ReadState::read, fmt::format("{} facts", one.facts.all().size())});
    }
    return one;
  } catch (const std::exception& error) {
    return bad(topology::text::quote(error.what(), 200));
  }
}

#else

namespace {
Status no_json() {
  return {ErrorCode::unsupported, "this build has no nlohmann-json: records can be neither read nor written"};
}
}  // namespace

Result<std::string> write_case(const Case&) {
  return no_json();
}
Result<Case> parse_case(std::string_view, const std::string& name) {
  return no_json().with_context(name);
}

#endif

}  // namespace fairway::doctor
