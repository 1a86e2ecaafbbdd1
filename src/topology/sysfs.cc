#include "topology/sysfs.h"

#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "topology/text.h"

namespace fairway::topology {

std::optional<std::string> FileTree::text(const std::string& path) {
  auto content = read_file(path, 256 * 1024);
  if (content) {
    const auto trimmed = text::trim(*content);
    if (trimmed.empty()) return {};
    return std::string(trimmed);
  }
  // An absent attribute, or one that does not apply now (the speed of a link that is down), is not an error.
  const auto error = content.status();
  if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::unsupported) {
    add_note(*machine_, NoteKind::unreadable, "", error.message());
  }
  return {};
}

std::optional<std::uint64_t> FileTree::number(const std::string& path) {
  const auto content = text(path);
  return content ? text::to_unsigned(*content) : std::nullopt;
}

std::optional<std::uint32_t> FileTree::hex(const std::string& path) {
  const auto content = text(path);
  const auto value = content ? text::to_hex(*content) : std::nullopt;
  if (!value || *value > 0xffffffffU) return {};
  return static_cast<std::uint32_t>(*value);
}

std::vector<std::string> FileTree::list(const std::string& path) {
  auto names = list_directory(path, kMaxPciDevices);
  if (names) return std::move(names).value();
  if (names.status().code() == ErrorCode::out_of_range && status.is_ok()) status = names.status();
  if (names.status().code() == ErrorCode::access_denied) {
    add_note(*machine_, NoteKind::unreadable, "", names.status().message());
  }
  return {};
}

std::optional<std::string> FileTree::link_name(const std::string& path) {
  const auto target = read_link(path);
  if (!target) return {};
  return std::string(file_name(*target));
}

std::optional<BusId> FileTree::pci_function(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), &std::free);
  std::string way = real ? std::string(real.get()) : std::string();
  if (!real) {
    // A captured link may point outside of the capture: its target still has the path.
    const auto target = read_link(path);
    if (!target) return {};
    way = *target;
  }
  std::optional<BusId> innermost;
  for (const auto part : text::split(way, '/')) {
    if (const auto bus = BusId::parse(part)) innermost = bus;
  }
  return innermost;
}

void FileTree::fill(Fact<std::string>& fact, const std::string& path) {
  if (const auto content = text(path)) fact.learn(text::quote(*content, 200), Source::sysfs);
}

void FileTree::fill(Fact<std::uint32_t>& fact, const std::string& path) {
  const auto value = number(path);
  if (value && *value <= 0xffffffffU) fact.learn(static_cast<std::uint32_t>(*value), Source::sysfs);
}

void FileTree::fill_hex(Fact<std::uint32_t>& fact, const std::string& path) {
  if (const auto value = hex(path)) fact.learn(*value, Source::sysfs);
}

}  // namespace fairway::topology
