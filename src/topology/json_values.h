#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "fairway/status.h"

#include "topology/describe.h"

// Machine types to JSON and back by their descriptions. An unknown fact, an empty list and an empty reference are left
// out; a fact is {"value": ..., "source": ...} (of version 1: [value, source]); a CPU set is its list, a bus id, a
// class and an end ("gpu:3") their texts.
namespace fairway::topology {

using Json = nlohmann::ordered_json;

class JsonWriter {
 public:
  template <class T>
  void operator()(const char* name, const T& field) {
    if (auto value = encode(field); !value.is_null()) object_[name] = std::move(value);
  }

  template <class T>
  static Json encode_object(const T& x) {
    JsonWriter writer;
    writer.object_ = Json::object();
    describe(writer, x);
    return std::move(writer.object_);
  }

  static Json encode(bool x) { return x; }
  static Json encode(std::uint32_t x) { return x; }
  static Json encode(std::uint8_t x) { return x; }
  static Json encode(GpuNumber<const std::uint32_t> x) { return x.ordinal < kNoNumber ? Json(x.ordinal) : Json(); }
  static Json encode(std::uint64_t x) { return x; }
  static Json encode(double x) { return x; }
  static Json encode(const std::string& x) { return x; }
  static Json encode(const CpuSet& x) { return x.to_list(); }
  static Json encode(const BusId& x) { return x.to_string(); }
  static Json encode(const PathClass& x) { return x.to_string(); }
  static Json encode(NodeRef x) { return std::string(to_string(x.kind)) + ":" + std::to_string(x.index); }
  template <class E>
  requires std::is_enum_v<E>
  static Json encode(E x) { return std::string(to_string(x)); }
  template <class T>
  static Json encode(Ref<T> x) {
    return x ? Json(x.index) : Json();
  }
  template <class T>
  static Json encode(const Fact<T>& x) {
    return x ? Json{{"value", encode(*x)}, {"source", encode(x.source)}} : Json();
  }
  template <class T>
  static Json encode(const std::vector<T>& list) {
    if (list.empty()) return {};
    Json out = Json::array();
    for (const auto& item : list) out.push_back(encode(item));
    return out;
  }
  // An empty vector inside a fact is known to be empty.
  static Json encode(const Fact<std::vector<std::string>>& x) { return list_fact(x); }
  static Json encode(const Fact<std::vector<std::uint32_t>>& x) { return list_fact(x); }
  template <class T>
  requires requires(JsonWriter& w, const T& x) { describe(w, x); }
  static Json encode(const T& x) {
    if constexpr (Is<T, RecordedMatrix>) {
      if (x.empty()) return {};
    }
    auto object = encode_object(x);
    return object.empty() && Is<T, PcieLink> ? Json() : object;
  }

 private:
  template <class T>
  static Json list_fact(const Fact<std::vector<T>>& x) {
    if (!x) return {};
    Json list = Json::array();
    for (const auto& item : *x) list.push_back(encode(item));
    return Json{{"value", std::move(list)}, {"source", encode(x.source)}};
  }

  Json object_;
};

// Reads what JsonWriter wrote. The first problem stops it and is kept with the path to the value.
class JsonReader {
 public:
  template <class T>
  static Status read_object(const Json& json, const std::string& path, T& x) {
    JsonReader reader(json, path);
    if (!json.is_object()) return reader.error(path, "is not an object");
    describe(reader, x);
    if (reader.status_.is_ok() && reader.used_ != json.size()) reader.report_unknown(json);
    return reader.status_;
  }

  void operator()(const char* name, const GpuNumber<std::uint32_t>& number) {
    number.ordinal = kNoNumber;
    (*this)(name, number.ordinal);
  }

  template <class T>
  void operator()(const char* name, T& field) {
    if (!status_.is_ok()) return;
    known_.push_back(name);
    const auto found = json_.find(name);
    if (found == json_.end()) return;
    ++used_;
    status_ = decode(*found, path_ + "." + name, field);
  }

 private:
  JsonReader(const Json& json, const std::string& path) : json_(json), path_(path) {}

  static Status error(const std::string& path, const std::string& what);
  void report_unknown(const Json& json);

  static Status decode(const Json& json, const std::string& path, bool& x);
  static Status decode(const Json& json, const std::string& path, std::uint8_t& x);
  static Status decode(const Json& json, const std::string& path, std::uint32_t& x);
  static Status decode(const Json& json, const std::string& path, std::uint64_t& x);
  static Status decode(const Json& json, const std::string& path, double& x);
  static Status decode(const Json& json, const std::string& path, std::string& x);
  static Status decode(const Json& json, const std::string& path, CpuSet& x);
  static Status decode(const Json& json, const std::string& path, BusId& x);
  static Status decode(const Json& json, const std::string& path, PathClass& x);
  static Status decode(const Json& json, const std::string& path, NodeRef& x);
  static Status decode(const Json& json, const std::string& path, Source& x);
  static Status decode(const Json& json, const std::string& path, NoteKind& x);
  static Status decode(const Json& json, const std::string& path, PciKind& x);
  static Status decode(const Json& json, const std::string& path, LinkKind& x);
  static Status decode(const Json& json, const std::string& path, InterfaceKind& x);

  template <class T>
  static Status decode(const Json& json, const std::string& path, Ref<T>& x) {
    return decode(json, path, x.index);
  }
  template <class T>
  static Status decode(const Json& json, const std::string& path, Fact<T>& x) {
    const bool named = json.is_object() && json.size() == 2 && json.contains("value") && json.contains("source");
    const bool old = json.is_array() && json.size() == 2;
    if (!named && !old) return error(path, "is not a fact: {\"value\": ..., \"source\": ...}");
    T value{};
    if (auto status = decode(named ? json.at("value") : json[0], path, value); !status) return status;
    x.value = std::move(value);
    return decode(named ? json.at("source") : json[1], path, x.source);
  }
  template <class T>
  static Status decode(const Json& json, const std::string& path, std::vector<T>& list) {
    if (!json.is_array()) return error(path, "is not a list");
    if (json.size() > kMaxListSize) return error(path, "has more entries than any machine");
    list.reserve(json.size());
    for (std::size_t i = 0; i < json.size(); ++i) {
      T item{};
      if (auto status = decode(json[i], path + "[" + std::to_string(i) + "]", item); !status) return status;
      if constexpr (Is<T, Gpu>) {
        if (item.ordinal == kNoNumber) item.ordinal += static_cast<std::uint32_t>(i);
      }
      list.push_back(std::move(item));
    }
    return {};
  }
  template <class T>
  requires requires(JsonReader& r, T& x) { describe(r, x); }
  static Status decode(const Json& json, const std::string& path, T& x) { return read_object(json, path, x); }

  static constexpr std::size_t kMaxListSize = 1U << 20;

  const Json& json_;
  std::string path_;
  std::vector<const char*> known_;
  std::size_t used_ = 0;
  Status status_;
};

}  // namespace fairway::topology
