#include <sstream>

#include <fmt/format.h>

#include "collectives.h"

namespace fairway::tool::bench {
namespace {

template <class Value, class List>
Result<Value> named(const std::string& name, const List& all, const char* what) {
  std::string known;
  for (const Value each : all) {
    if (to_string(each) == name) return each;
    known += (known.empty() ? "" : ", ") + std::string(to_string(each));
  }
  return Status(ErrorCode::invalid_argument, fmt::format("{}: '{}' is none of {}", what, name, known));
}

template <class List>
std::vector<std::string> names_of(const List& all) {
  std::vector<std::string> names;
  for (const auto each : all) names.emplace_back(to_string(each));
  return names;
}

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::all_reduce,  CollectiveKind::reduce,  CollectiveKind::broadcast,      CollectiveKind::all_gather,
    CollectiveKind::gather,      CollectiveKind::scatter, CollectiveKind::reduce_scatter, CollectiveKind::all_to_all,
    CollectiveKind::all_to_allv, CollectiveKind::barrier};
constexpr DataType kTypes[] = {DataType::i8,  DataType::u8,  DataType::i16,    DataType::u16,   DataType::i32,
                               DataType::u32, DataType::i64, DataType::u64,    DataType::f16,   DataType::bf16,
                               DataType::f32, DataType::f64, DataType::f8e4m3, DataType::f8e5m2};
constexpr Reduction kReductions[] = {Reduction::sum, Reduction::product, Reduction::min,
                                     Reduction::max, Reduction::average, Reduction::premul_sum};

}  // namespace

const std::vector<std::string>& collective_operations() {
  static const std::vector<std::string> kNames = [] {
    auto names = names_of(kKinds);
    names.emplace_back("send_recv");
    return names;
  }();
  return kNames;
}

const std::vector<std::string>& collective_types() {
  static const std::vector<std::string> kNames = names_of(kTypes);
  return kNames;
}

const std::vector<std::string>& collective_reductions() {
  static const std::vector<std::string> kNames = names_of(kReductions);
  return kNames;
}

Status set_operation(CollectiveWork& work, const std::string& name) {
  work.messages = name == "send_recv";
  work.kind = CollectiveKind::barrier;  // of messages nobody looks at it
  if (work.messages) return {};
  const auto kind = named<CollectiveKind>(name, kKinds, "--operation");
  if (kind) work.kind = *kind;
  return kind.status();
}

Result<DataType> type_of(const std::string& name) {
  return named<DataType>(name, kTypes, "--type");
}

Result<Reduction> reduction_of(const std::string& name) {
  return named<Reduction>(name, kReductions, "--reduction");
}

Result<Algorithm> algorithm_of(const std::string& name) {
  constexpr Algorithm kAll[] = {
      Algorithm::automatic,     Algorithm::one_shot,    Algorithm::direct, Algorithm::recursive_doubling,
      Algorithm::ring,          Algorithm::binomial,    Algorithm::chain,  Algorithm::bruck,
      Algorithm::dissemination, Algorithm::hierarchical};
  return named<Algorithm>(name, kAll, "--algorithm");
}

// "fairway all_reduce f32 sum automatic 0 65536 4 200"
std::string text_of(const CollectiveOrder& order) {
  const CollectiveWork& work = order.work;
  return fmt::format("{} {} {} {} {} {} {} {} {}", order.by_nccl ? "nccl" : "fairway", work.operation(),
                     to_string(work.type), to_string(work.reduction), to_string(work.algorithm), work.local ? 1 : 0,
                     work.bytes, work.ranks, order.rounds);
}

Result<CollectiveOrder> order_of(const std::string& line) {
  CollectiveOrder order;
  CollectiveWork& work = order.work;
  std::istringstream words(line);
  std::string by, kind, type, reduction, algorithm;
  words >> by >> kind >> type >> reduction >> algorithm >> work.local >> work.bytes >> work.ranks >> order.rounds;
  const auto t = type_of(type);
  const auto r = reduction_of(reduction);
  const auto a = algorithm_of(algorithm);
  if (!words || !set_operation(work, kind) || !t || !r || !a)
    return Status(ErrorCode::invalid_argument, "no such order: " + line);
  order.by_nccl = by == "nccl";
  work.type = *t;
  work.reduction = *r;
  work.algorithm = *a;
  return order;
}

}  // namespace fairway::tool::bench
