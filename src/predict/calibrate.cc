#include "predict/calibrate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "topology/text.h"

namespace fairway::predict {
namespace {

namespace text = topology::text;

constexpr double kRowNoise = 0.02;  // noise of a measurement, of its logarithm

double most_of(ConstantId id) {
  const auto& row = row_of(id);
  return row.unit == Unit::share ? 1.0 : row.range.high * 2;
}

// Rows, the plans of their flows, and the misfit of a set of constants.
class Misfit {
 public:
  Misfit(const Model& model, std::span<const MeasuredRow> rows, std::vector<Plan> plans)
      : model_(model), rows_(rows), plans_(std::move(plans)) {}

  [[nodiscard]] double expected(std::size_t row, const Constants& constants) const {
    return model_.expected_gbs(plans_[row], constants);
  }
  [[nodiscard]] const std::vector<Plan>& plans() const { return plans_; }

  // How far rows are from their measurements and constants from their table, each in units of its own uncertainty.
  [[nodiscard]] double of(const Constants& constants, const std::set<ConstantId>& free) const {
    double sum = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const double rate = expected(i, constants);
      if (!std::isfinite(rate) || !(rate > 0)) continue;
      const double off = std::log(rate / rows_[i].gbs) / kRowNoise;
      sum += off * off;
    }
    for (const auto id : free) {
      const auto& prior = model_.planner().constants()[id];
      const double width = std::max(0.01, std::log(prior.high / prior.low) / 2);
      const double off = std::log(constants[id].expected / prior.expected) / width;
      sum += off * off;
    }
    return sum;
  }

  // The best value of one constant with the others held, and the misfit there.
  [[nodiscard]] std::pair<double, double> best_of(ConstantId id, Constants constants,
                                                  const std::set<ConstantId>& free) const {
    const double low = std::log(row_of(id).range.low / 2);
    const double high = std::log(most_of(id));
    const auto at = [&](double x) {
      constants.set(id, Range::exactly(std::exp(x)));
      return of(constants, free);
    };
    constexpr int kGrid = 60;  // the misfit has kinks where another constant takes over: scan the whole range first
    double best = std::log(constants[id].expected);
    double least = at(best);
    for (int i = 0; i <= kGrid; ++i) {
      const double x = low + (high - low) * i / kGrid;
      if (const double value = at(x); value < least) {
        least = value;
        best = x;
      }
    }
    for (double step = (high - low) / kGrid; step > 1e-6; step /= 2) {
      for (const double x : {best - step, best + step}) {
        if (x < low || x > high) continue;
        if (const double value = at(x); value < least) {
          least = value;
          best = x;
        }
      }
    }
    return {std::exp(best), least};
  }

 private:
  const Model& model_;
  std::span<const MeasuredRow> rows_;
  std::vector<Plan> plans_;
};

// Changes the one constant that helps most, and repeats: a shortfall is put down to the constant that needs the
// smallest change, not to the first in the table.
Constants minimise(const Misfit& misfit, Constants constants, const std::set<ConstantId>& free) {
  double least = misfit.of(constants, free);
  for (std::size_t round = 0; round < 4 * free.size() + 4; ++round) {
    std::optional<ConstantId> change;
    double value = 0;
    double reached = least - 1e-6;
    for (const auto id : free) {
      const auto [x, total] = misfit.best_of(id, constants, free);
      if (total < reached) {
        change = id;
        value = x;
        reached = total;
      }
    }
    if (!change) break;
    constants.set(*change, Range::exactly(value));
    least = reached;
  }
  return constants;
}

std::string join(const std::vector<std::uint32_t>& numbers) {
  std::string out;
  for (const auto n : numbers) out += fmt::format("{}{}", out.empty() ? "" : ", ", n);
  return out;
}

// Whether the rows are decided by this constant, which ones, and how far they are off.
Fit judge(ConstantId id, const Misfit& misfit, std::span<const MeasuredRow> rows, const Constants& fitted,
          const Constants& before) {
  Fit fit;
  fit.id = id;
  fit.before = before[id];
  fit.after = before[id];
  const double value = fitted[id].expected;
  auto nudged = fitted;
  double spread = 0;
  std::vector<std::uint32_t> passed;
  double least_seen = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& terms = misfit.plans()[i].terms;
    const bool on_way = std::ranges::any_of(terms, [id](const Term& term) { return term.constant == id; });
    if (!on_way) continue;
    const double here = misfit.expected(i, fitted);
    nudged.set(id, Range::exactly(value * 0.99));
    const bool decides = misfit.expected(i, nudged) < here * 0.995;
    if (decides) {
      fit.rows.push_back(rows[i].line);
      spread = std::max(spread, std::abs(std::log(here / rows[i].gbs)));
    } else {
      passed.push_back(rows[i].line);
      least_seen = std::max(least_seen, rows[i].gbs);
    }
  }
  fit.determined = !fit.rows.empty();
  if (!fit.determined) {
    fit.rows = passed;
    fit.why = fmt::format("undetermined: rows {} are bound elsewhere", join(passed));
    if (row_of(id).unit == Unit::gbs) fit.why += fmt::format(", so it is at least {:.1f} GB/s there", least_seen);
    return fit;
  }
  // One row does not show how much equal paths differ; crossings of one machine differed by a tenth.
  const double least_spread = row_of(id).unit == Unit::share ? 0.03 : 0.10;
  spread = std::max(spread, least_spread);
  fit.after = {value * (1 - spread), value,
               std::min(value * (1 + spread), row_of(id).unit == Unit::share ? 1.0 : kUnbounded)};
  fit.after.high = std::max(fit.after.high, value);
  fit.why = fmt::format("determined by row{} {}", fit.rows.size() == 1 ? "" : "s", join(fit.rows));
  return fit;
}

}  // namespace

Result<Calibration> calibrate(const Model& model, std::span<const MeasuredRow> rows) {
  if (rows.empty()) return Status(ErrorCode::invalid_argument, "a calibration needs measured rows");
  if (rows.size() > kMaxCalibrationRows) {
    return Status(ErrorCode::out_of_range, fmt::format("{} rows are more than a calibration needs: give at most {}",
                                                       rows.size(), kMaxCalibrationRows));
  }
  std::vector<Plan> plans;
  std::set<ConstantId> free;
  for (const auto& row : rows) {
    const auto flow = model.resolve(row.flow);
    if (!flow) return flow.status().with_context(fmt::format("row {}", row.line));
    auto plan = model.planner().plan(*flow);
    if (!plan) return plan.status().with_context(fmt::format("row {}", row.line));
    for (const auto& term : plan->terms) {
      if (std::isfinite(term.factor.expected)) free.insert(term.constant);
    }
    plans.push_back(std::move(*plan));
  }
  if (free.empty())
    return Status(ErrorCode::invalid_argument, "nothing on the rows' paths has a known rate to calibrate");
  const auto& before = model.planner().constants();
  const Misfit misfit(model, rows, std::move(plans));
  const auto fitted = minimise(misfit, before, free);
  Calibration calibration;
  calibration.constants = before;
  for (const auto id : free) {
    auto& fit = calibration.fits.emplace_back(judge(id, misfit, rows, fitted, before));
    if (fit.determined) calibration.constants.set(id, fit.after);
  }
  std::size_t known = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double old = misfit.expected(i, before);
    if (!std::isfinite(old)) continue;
    ++known;
    calibration.error_before += std::abs(old - rows[i].gbs) / rows[i].gbs;
    calibration.error_after += std::abs(misfit.expected(i, calibration.constants) - rows[i].gbs) / rows[i].gbs;
  }
  if (known > 0) {
    calibration.error_before /= static_cast<double>(known);
    calibration.error_after /= static_cast<double>(known);
  }
  return calibration;
}

}  // namespace fairway::predict
