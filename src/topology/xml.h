#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "fairway/status.h"

#include "topology/fact.h"
#include "topology/text.h"

// What the XML importers share: bounded parsing and messages with a line. Included by .cc files only.
namespace fairway::topology {

inline constexpr std::size_t kMaxXmlBytes = 32U << 20;

class XmlFile {
 public:
  XmlFile(std::string_view content, const std::string& name) : content_(content), name_(name) {}

  Status parse() {
    if (content_.size() > kMaxXmlBytes) {
      return {ErrorCode::out_of_range,
              fmt::format("{}: {} bytes; more than the {} that are read", name_, content_.size(), kMaxXmlBytes)};
    }
    if (content_.substr(0, 64 * 1024).find("<!ENTITY") != content_.npos) {
      return {ErrorCode::invalid_argument,
              fmt::format("{}: declares entities, which no topology file does: refused", name_)};
    }
    const auto result = document_.load_buffer(content_.data(), content_.size());
    if (result) return {};
    return {ErrorCode::invalid_argument,
            fmt::format("{}:{}: not XML: {}", name_, line_at(result.offset), result.description())};
  }

  [[nodiscard]] const pugi::xml_document& document() const { return document_; }

  [[nodiscard]] std::size_t line_of(pugi::xml_node node) const { return line_at(node.offset_debug()); }

  [[nodiscard]] Status error(pugi::xml_node node, std::string_view reason) const {
    return {ErrorCode::invalid_argument, fmt::format("{}:{}: {}", name_, line_of(node), reason)};
  }
  [[nodiscard]] std::string place(pugi::xml_node node) const { return fmt::format("{}:{}", name_, line_of(node)); }

 private:
  // The ends of lines are found once: a hostile file may ask for many lines.
  [[nodiscard]] std::size_t line_at(std::ptrdiff_t offset) const {
    if (ends_.empty()) {
      for (std::size_t i = 0; i < content_.size(); ++i) {
        if (content_[i] == '\n') ends_.push_back(i);
      }
      ends_.push_back(content_.size());
    }
    const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0));
    return 1 + static_cast<std::size_t>(std::ranges::lower_bound(ends_, at) - ends_.begin());
  }

  mutable std::vector<std::size_t> ends_;
  std::string_view content_;
  std::string name_;
  pugi::xml_document document_;
};

inline std::string_view attribute(pugi::xml_node node, const char* name) {
  return node.attribute(name).value();
}

inline std::optional<std::uint32_t> attribute_hex(pugi::xml_node node, const char* name, std::uint64_t limit) {
  const auto value = text::to_hex(attribute(node, name));
  if (!value || *value > limit) return {};
  return static_cast<std::uint32_t>(*value);
}

// A bus id that no device has, for one that a file names twice: of domain ffff, from bus ff downwards.
inline BusId spare_bus_id(std::set<BusId>& taken) {
  BusId bus{0xffff, 0xff, 0x1f, 7};
  while (!taken.insert(bus).second) {
    if (bus.function > 0) {
      --bus.function;
    } else if (bus.device > 0) {
      --bus.device;
      bus.function = 7;
    } else {
      --bus.bus;
      bus.device = 0x1f;
      bus.function = 7;
    }
  }
  return bus;
}

}  // namespace fairway::topology
