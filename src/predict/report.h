#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "predict/calibrate.h"
#include "predict/model.h"
#include "predict/odds.h"

// Predictions as text for people and as JSON for programs. Pure functions; the JSON has every figure of the text.
namespace fairway::predict {

// The most pairs in a table; later NICs are left out, and the text says so.
inline constexpr std::size_t kMaxCells = 65536;

// Every GPU with every NIC, each pair alone.
struct RateMatrix {
  RowMode mode = RowMode::send;
  std::vector<std::uint32_t> gpus;  // rows, into the machine's gpus
  std::vector<std::uint32_t> nics;  // columns: those with an RDMA device; if none has one, all
  std::vector<Prediction> cells;    // row by row
  std::size_t left_out = 0;         // NICs beyond kMaxCells
};
RateMatrix rate_matrix(const Model& model, RowMode mode, const Conditions& conditions);

struct FlowReport {
  Flow flow;
  Prediction prediction;
};

std::string text_of(const Model& model, const RateMatrix& matrix);
std::string json_of(const Model& model, const RateMatrix& matrix);
// `size_bytes` above 0 adds the time of such a message.
std::string text_of(const Model& model, std::span<const FlowReport> flows, double size_bytes);
std::string json_of(const Model& model, std::span<const FlowReport> flows, double size_bytes);
std::string text_of(const Model& model, const Flow& flow, std::span<const Route> routes);
std::string json_of(const Model& model, const Flow& flow, std::span<const Route> routes);
std::string text_of(const Model& model, std::span<const Comparison> comparisons);
std::string json_of(const Model& model, std::span<const Comparison> comparisons);
std::string text_of(const Calibration& calibration);
std::string json_of(const Calibration& calibration);
std::string text_of(const TwoTier& fabric, const FabricOdds& odds);
std::string json_of(const TwoTier& fabric, const FabricOdds& odds);
std::string bond_odds_text(std::uint32_t legs);
std::string bond_odds_json(std::uint32_t legs);
std::string constants_text(const Constants& constants);
std::string constants_json(const Constants& constants);

// A JSON string with its quotes; invalid UTF-8 becomes '?'.
std::string json_string(std::string_view text);

}  // namespace fairway::predict
