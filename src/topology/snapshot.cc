#include "topology/load.h"

#ifdef FAIRWAY_HAVE_JSON

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "topology/json_values.h"
#include "topology/text.h"

namespace fairway::topology {

Status JsonReader::error(const std::string& path, const std::string& what) {
  return {ErrorCode::invalid_argument, path + " " + what};
}

void JsonReader::report_unknown(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    bool known = false;
    for (const auto* name : known_) known = known || key == name;
    if (!known) {
      status_ = error(
          path_, fmt::format("has a field \"{}\" that version {} does not know", text::quote(key), kSnapshotVersion));
      return;
    }
  }
}

Status JsonReader::decode(const Json& json, const std::string& path, bool& x) {
  if (!json.is_boolean()) return error(path, "is not true or false");
  x = json.get<bool>();
  return {};
}

Status JsonReader::decode(const Json& json, const std::string& path, std::uint64_t& x) {
  if (!json.is_number_unsigned()) return error(path, "is not a whole number");
  x = json.get<std::uint64_t>();
  return {};
}

Status JsonReader::decode(const Json& json, const std::string& path, std::uint32_t& x) {
  std::uint64_t wide = 0;
  if (auto status = decode(json, path, wide); !status) return status;
  if (wide > 0xffffffffU) return error(path, "is too large");
  x = static_cast<std::uint32_t>(wide);
  return {};
}

Status JsonReader::decode(const Json& json, const std::string& path, std::uint8_t& x) {
  std::uint64_t wide = 0;
  if (auto status = decode(json, path, wide); !status) return status;
  if (wide > 0xffU) return error(path, "is too large");
  x = static_cast<std::uint8_t>(wide);
  return {};
}

Status JsonReader::decode(const Json& json, const std::string& path, double& x) {
  if (!json.is_number()) return error(path, "is not a number");
  x = json.get<double>();
  return {};
}

namespace {

// People open other people's recordings: control characters would reach the terminal, and an SVG with a non-character
// is no XML. Each becomes a question mark. JSON's texts are UTF-8.
std::string printable(const std::string& text) {
  const auto at = [&text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto first = at(i);
    const std::size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const bool control = first < 0x20 || first == 0x7f || (first == 0xc2 && at(i + 1) < 0xa0);
    const bool end_of_plane = (length == 3 || length == 4) && at(i + length - 2) == 0xbf &&
                              at(i + length - 1) >= 0xbe && (length == 3 ? first == 0xef : (at(i + 1) & 0x0f) == 0x0f);
    const bool arabic = first == 0xef && at(i + 1) == 0xb7 && at(i + 2) >= 0x90 && at(i + 2) <= 0xaf;
    if (control || end_of_plane || arabic) {
      out += '?';
    } else {
      out.append(text, i, length);
    }
    i += length;
  }
  return out;
}

}  // namespace

Status JsonReader::decode(const Json& json, const std::string& path, std::string& x) {
  if (!json.is_string()) return error(path, "is not a text");
  x = printable(json.get_ref<const std::string&>());
  return {};
}

namespace {

// A value that is written as text.
template <class T, class Parse>
Status from_text(const Json& json, const std::string& path, const char* what, T& x, Parse parse) {
  if (json.is_string()) {
    if (auto value = parse(json.get_ref<const std::string&>())) {
      x = std::move(*value);
      return {};
    }
  }
  return {ErrorCode::invalid_argument,
          fmt::format("{} is not {}: {}", path, what,
                      text::quote(json.dump(-1, ' ', false, Json::error_handler_t::replace)))};
}

std::optional<NodeRef> parse_node(const std::string& input) {
  const auto colon = input.find(':');
  if (colon == std::string::npos) return {};
  const auto kind = node_kind_from(std::string_view(input).substr(0, colon));
  const auto index = text::to_u32(std::string_view(input).substr(colon + 1));
  if (!kind || !index) return {};
  return NodeRef{*kind, *index};
}

}  // namespace

Status JsonReader::decode(const Json& json, const std::string& path, CpuSet& x) {
  return from_text(json, path, "a CPU list", x, [](const std::string& s) { return CpuSet::parse_list(s); });
}
Status JsonReader::decode(const Json& json, const std::string& path, BusId& x) {
  return from_text(json, path, "a PCI bus id", x, [](const std::string& s) { return BusId::parse(s); });
}
Status JsonReader::decode(const Json& json, const std::string& path, PathClass& x) {
  return from_text(json, path, "a path class", x, [](const std::string& s) { return PathClass::parse(s); });
}
Status JsonReader::decode(const Json& json, const std::string& path, NodeRef& x) {
  return from_text(json, path, "an end such as gpu:3", x, parse_node);
}
Status JsonReader::decode(const Json& json, const std::string& path, Source& x) {
  return from_text(json, path, "a source", x, [](const std::string& s) { return source_from(s); });
}
Status JsonReader::decode(const Json& json, const std::string& path, NoteKind& x) {
  return from_text(json, path, "a kind of note", x, [](const std::string& s) { return note_kind_from(s); });
}
Status JsonReader::decode(const Json& json, const std::string& path, PciKind& x) {
  return from_text(json, path, "a kind of PCI device", x, [](const std::string& s) { return pci_kind_from(s); });
}
Status JsonReader::decode(const Json& json, const std::string& path, LinkKind& x) {
  return from_text(json, path, "a kind of link", x, [](const std::string& s) { return link_kind_from(s); });
}
Status JsonReader::decode(const Json& json, const std::string& path, InterfaceKind& x) {
  return from_text(json, path, "a kind of interface", x, [](const std::string& s) { return interface_kind_from(s); });
}

namespace {

constexpr std::string_view kMachineFormat = "fairway-machine";
constexpr std::string_view kFabricFormat = "fairway-fabric";

// Version 1 was named with a space.
bool is_format(const Json& json, std::string_view format) {
  if (!json.is_string()) return false;
  std::string name = json.get<std::string>();
  std::ranges::replace(name, ' ', '-');
  return name == format;
}

// JSON for people and for diff: what fits on a line is on one line.
void print(const Json& json, int indent, std::string& out) {
  constexpr std::size_t kLine = 110;
  const auto flat = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!json.is_structured() || json.empty() ||
      (indent > 0 && flat.size() + static_cast<std::size_t>(indent) <= kLine)) {
    out += flat;
    return;
  }
  const std::string pad(static_cast<std::size_t>(indent) + 1, ' ');
  out += json.is_object() ? "{\n" : "[\n";
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (!first) out += ",\n";
    first = false;
    out += pad;
    if (json.is_object()) out += Json(key).dump(-1, ' ', false, Json::error_handler_t::replace) + ": ";
    print(value, indent + 1, out);
  }
  out += "\n" + std::string(static_cast<std::size_t>(indent), ' ');
  out += json.is_object() ? "}" : "]";
}

std::string document(std::string_view format, const char* key, Json content) {
  Json json = Json::object();
  json["format"] = format;
  json["version"] = kSnapshotVersion;
  json[key] = std::move(content);
  std::string out;
  print(json, 0, out);
  out += '\n';
  return out;
}

Result<Json> parse(std::string_view input, const std::string& name, std::string_view format, const char* key) {
  constexpr std::size_t kMaxBytes = 8U << 20;
  if (input.size() > kMaxBytes) {
    return Status(ErrorCode::out_of_range,
                  fmt::format("{}: {} bytes; a snapshot has less than {}", name, input.size(), kMaxBytes));
  }
  // Destroying deep JSON needs stack; snapshots are not deep.
  int depth = 0;
  const auto shallow = [&depth](int level, Json::parse_event_t, Json&) {
    depth = std::max(depth, level);
    return level < 32;
  };
  Json json;
  try {
    json = Json::parse(input.begin(), input.end(), shallow);
  } catch (const std::exception& error) {
    // nlohmann's message names line and column, behind its own name in brackets.
    std::string_view why = error.what();
    if (const std::size_t name_end = why.find("] "); why.starts_with('[') && name_end != std::string_view::npos)
      why.remove_prefix(name_end + 2);
    return Status(ErrorCode::invalid_argument, fmt::format("{}: not JSON: {}", name, text::quote(why, 200)));
  }
  const auto fail = [&name](const std::string& what) {
    return Status(ErrorCode::invalid_argument, fmt::format("{}: {}", name, what));
  };
  if (!json.is_object() || !json.contains("format") || !is_format(json["format"], format)) {
    return fail(fmt::format("no {} snapshot: \"format\" is not \"{}\"", format, format));
  }
  if (!json.contains("version") || !json["version"].is_number_unsigned()) return fail("\"version\" is missing");
  const auto version = json["version"].get<std::uint64_t>();
  if (version > static_cast<std::uint64_t>(kSnapshotVersion) || version == 0) {
    return Status(ErrorCode::version_mismatch,
                  fmt::format("{}: a snapshot of version {}, and this program reads version {}: read it with a newer "
                              "Fairway, or write it again with this one",
                              name, version, kSnapshotVersion));
  }
  if (!json.contains(key)) return fail(fmt::format("\"{}\" is missing", key));
  return std::move(json[key]);
}

template <class T>
Result<T> read_document(std::string_view input, const std::string& name, std::string_view format, const char* key) {
  auto json = parse(input, name, format, key);
  if (!json) return json.status();
  T value;
  try {
    if (auto status = JsonReader::read_object(*json, key, value); !status) return status.with_context(name);
  } catch (const std::exception& error) {
    return Status(ErrorCode::invalid_argument, fmt::format("{}: {}", name, text::quote(error.what(), 200)));
  }
  if (auto status = validate(value); !status) return status.with_context(name);
  return value;
}

}  // namespace

Result<Machine> read_snapshot(std::string_view text, const std::string& name) {
  return read_document<Machine>(text, name, kMachineFormat, "machine");
}

Result<Fabric> read_fabric_snapshot(std::string_view text, const std::string& name) {
  return read_document<Fabric>(text, name, kFabricFormat, "fabric");
}

Result<std::string> write_snapshot(const Machine& machine, const SnapshotOptions& options) {
  if (auto status = validate(machine); !status) return status;
  auto copy = machine;
  if (!options.keep_identities) scrub(copy);
  return document(kMachineFormat, "machine", JsonWriter::encode(copy));
}

Result<std::string> write_snapshot(const Fabric& fabric, const SnapshotOptions& options) {
  if (auto status = validate(fabric); !status) return status;
  auto copy = fabric;
  if (!options.keep_identities) {
    for (auto& machine : copy.machines) scrub(machine);
  }
  return document(kFabricFormat, "fabric", JsonWriter::encode(copy));
}

}  // namespace fairway::topology

#else

namespace fairway::topology {
namespace {
Status no_json() {
  return {ErrorCode::unsupported, "this build has no nlohmann-json: snapshots can be neither read nor written"};
}
}  // namespace

Result<Machine> read_snapshot(std::string_view, const std::string& name) {
  return no_json().with_context(name);
}
Result<Fabric> read_fabric_snapshot(std::string_view, const std::string& name) {
  return no_json().with_context(name);
}
Result<std::string> write_snapshot(const Machine&, const SnapshotOptions&) {
  return no_json();
}
Result<std::string> write_snapshot(const Fabric&, const SnapshotOptions&) {
  return no_json();
}

}  // namespace fairway::topology

#endif
