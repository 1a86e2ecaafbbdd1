#include "topology/contradict.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "topology/describe.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr std::size_t kMaxTold = 64;

// Rates of one port are printed rounded, and with or without its line coding.
constexpr double kSameRate = 0.05;

// Facts of one value, and lists of what has a name.
template <class F>
constexpr bool kIsScalarFact =
    std::same_as<F, Fact<bool>> || std::same_as<F, Fact<std::uint32_t>> || std::same_as<F, Fact<std::uint64_t>> ||
    std::same_as<F, Fact<double>> || std::same_as<F, Fact<std::string>>;
template <class L>
constexpr bool kHasNames = std::same_as<L, std::vector<PciDevice>> || std::same_as<L, std::vector<Gpu>> ||
                           std::same_as<L, std::vector<NvLinkPort>> || std::same_as<L, std::vector<NetInterface>> ||
                           std::same_as<L, std::vector<RdmaDevice>> || std::same_as<L, std::vector<RdmaPort>> ||
                           std::same_as<L, std::vector<Package>>;

// What tools word in ways of their own, what two words of one line tell twice, and identities that are lists.
bool is_compared(std::string_view field) {
  constexpr std::string_view kNot[] = {"vendor_name", "device_name",         "vendor",
                                       "vendor_id",   "device_id",           "class_code",
                                       "speed_name",  "subsystem_vendor_id", "subsystem_device_id",
                                       "purpose",     "host_name",           "has_address",
                                       "refusal",     "memory_bytes"};
  return std::ranges::find(kNot, field) == std::end(kNot);
}

std::string words_of(std::string_view field) {
  std::string out(field);
  for (auto& c : out) c = c == '_' ? ' ' : c;
  return out == "rate gbps"       ? "rate (Gb/s)"
         : out == "speed gbps"    ? "speed (Gb/s)"
         : out == "speed gts"     ? "PCIe speed (GT/s)"
         : out == "max speed gts" ? "best PCIe speed (GT/s)"
         : out == "width"         ? "PCIe width"
         : out == "max width"     ? "best PCIe width"
                                  : out;
}

}  // namespace

// Every fact of a machine that has one value, by "its owner" and its name: it is given to the slots, or set from them.
template <bool Settle, class M>
class FieldWalk {
 public:
  FieldWalk(M& machine, const Contradictions& slots) : machine_(machine), slots_(slots) {}
  FieldWalk(M& machine, Contradictions& slots, std::size_t order, const std::string& place)
      : machine_(machine), slots_(slots), into_(&slots), order_(order), place_(place) {}

  void run() { describe(*this, machine_); }

  template <class T>
  void operator()(const char* name, T& field) {
    visit(name, field);
  }

 private:
  template <class T>
  void visit(std::string_view name, T& field) {
    using Field = std::remove_const_t<T>;
    if constexpr (std::same_as<Field, PcieLink>) {
      describe(*this, field);
    } else if constexpr (kIsScalarFact<Field>) {
      visit_fact(name, field);
    } else if constexpr (kHasNames<Field>) {
      for (auto& one : field) {
        const auto above = owner_;
        owner_ = name_of(one);
        gpu_link_ = is_gpu_function(one);
        describe(*this, one);
        owner_ = above;
      }
    }
  }

  template <class F>
  void visit_fact(std::string_view name, F& fact) {
    // A GPU at rest lowers its link's speed.
    if (!fact || !is_compared(name) || (gpu_link_ && name == "speed_gts")) return;
    const auto key = fmt::format("{}\n{}", owner_, name);
    if constexpr (Settle) {
      const auto found = slots_.slots_.find(key);
      if (found == slots_.slots_.end() || found->second.says.empty()) return;
      fact.set(std::get<std::remove_cvref_t<decltype(*fact)>>(found->second.value), found->second.source);
    } else {
      into_->take(key, *fact, fact.source, order_, place_);
    }
  }

  [[nodiscard]] std::string name_of(const PciDevice& one) const { return one.bus_id.to_string(); }
  [[nodiscard]] std::string name_of(const Gpu& one) const {
    return one.pci ? "GPU " + machine_.pci[one.pci.index].bus_id.to_string() : fmt::format("GPU{}", one.ordinal);
  }
  [[nodiscard]] std::string name_of(const NvLinkPort& one) const {
    return fmt::format("{} link {}", owner_, one.index);
  }
  [[nodiscard]] std::string name_of(const NetInterface& one) const { return one.name; }
  [[nodiscard]] std::string name_of(const RdmaDevice& one) const { return one.name; }
  [[nodiscard]] std::string name_of(const RdmaPort& one) const { return fmt::format("{} port {}", owner_, one.number); }
  [[nodiscard]] std::string name_of(const Package& one) const { return fmt::format("package {}", one.os_index); }

  template <class T>
  [[nodiscard]] static bool is_gpu_function(const T& one) {
    if constexpr (std::same_as<std::remove_const_t<T>, PciDevice>) {
      const auto base = one.class_code.value_or(0) >> 16U;
      return base == 0x03 || base == 0x12;
    } else {
      return false;
    }
  }

  M& machine_;
  const Contradictions& slots_;
  Contradictions* into_ = nullptr;
  std::size_t order_ = 0;
  std::string place_;
  std::string owner_;
  bool gpu_link_ = false;
};

std::optional<bool> is_worse(std::string_view field, std::string_view a, std::string_view b) {
  const auto ends = [field](std::string_view part) { return field.ends_with(part); };
  const auto has = [field](std::string_view part) { return field.find(part) != field.npos; };
  const auto x = text::to_double(a);
  const auto y = text::to_double(b);
  const bool endless = a == "unlimited" || b == "unlimited";
  for (const auto* less : {"rate_gbps", "speed_gbps", "lanes", "mtu", "width", "speed_gts", ".bytes", "free_bytes"}) {
    if (ends(less) && !has("max_") && x && y) return *y < *x;
  }
  if (ends("memlock")) return endless ? a == "unlimited" : x && y ? std::optional(*y < *x) : std::nullopt;
  for (const auto* more :
       {"ecc_uncorrected", "nvlink_errors", "pcie_replays", ".stat.", "symbol_errors", "effective_errors"}) {
    if (has(more) && x && y) return *y > *x;
  }
  const auto good = [&](std::string_view value) {
    if (ends("state")) return value == "ACTIVE" || value == "LinkUp" || value == "up" || value == "completed";
    if (ends("active") || ends("carrier") || ends(".up")) return value == "true";
    if (has("remap_")) return value == "no";
    if (ends("throttle")) return value == "none";
    return ends("persistence") && value == "enabled";
  };
  const bool judged = ends("state") || ends("active") || ends("carrier") || ends(".up") || has("remap_") ||
                      ends("throttle") || ends("persistence");
  if (judged && good(a) != good(b)) return good(a);
  return {};
}

void Contradictions::add(const Machine& alone, std::size_t order, const std::string& place) {
  FieldWalk<false, const Machine>(alone, *this, order, place).run();
}

void Contradictions::take(const std::string& key, Value value, Source source, std::size_t order,
                          const std::string& place) {
  const auto found = slots_.find(key);
  if (found == slots_.end()) {
    slots_.emplace(key, Slot{std::move(value), source, order, place, {}});
    return;
  }
  auto& slot = found->second;
  if (slot.value.index() != value.index() || slot.value == value || slot.place == place) return;
  if (const auto* a = std::get_if<double>(&slot.value)) {
    const auto b = std::get<double>(value);
    if (std::abs(*a - b) <= kSameRate * std::max(std::abs(*a), std::abs(b))) return;
  }
  const auto shown = [](const Value& one) {
    return std::visit([](const auto& v) { return fmt::format("{}", v); }, one);
  };
  const auto worse = is_worse(key, shown(slot.value), shown(value));
  const bool other = worse.value_or(order > slot.order);
  const auto says = fmt::format("{} says {}, {} says {}: the {} counts", slot.place, shown(slot.value), place,
                                shown(value), worse ? "worse" : "later");
  if (slot.says.empty()) differing_.push_back(key);
  const auto kept = slot.says.empty() || other ? says : slot.says;
  if (other) slot = {std::move(value), source, order, place, {}};
  slot.says = kept;
}

std::vector<TextRead> Contradictions::settle(Machine& machine) const {
  std::vector<TextRead> out;
  if (differing_.empty()) return out;
  FieldWalk<true, Machine>(machine, *this).run();
  for (const auto& key : differing_) {
    const auto& slot = slots_.at(key);
    const auto cut = key.find('\n');
    const auto owner = key.substr(0, cut);
    const auto field = words_of(std::string_view(key).substr(cut + 1));
    if (out.size() == kMaxTold) {
      out.push_back({"", "", ReadState::contradicted, fmt::format("and {} more", differing_.size() - kMaxTold)});
      break;
    }
    add_note(machine, NoteKind::conflict, owner, fmt::format("{}: {}", field, slot.says));
    out.push_back({slot.place, owner.empty() ? field : owner + ": " + field, ReadState::contradicted, slot.says});
  }
  return out;
}

}  // namespace fairway::topology
