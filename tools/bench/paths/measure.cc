#include "measure.h"

#include <memory>

#include <fmt/format.h>

#include "fabric.h"
#include "gpu_paths.h"
#include "other_process.h"
#include "rdma_flags.h"
#include "via.h"

namespace fairway::tool::bench {
namespace {

std::vector<std::string> words_of_peer(const Settings& settings, const Case& one) {
  std::vector<std::string> words{"bench", "--serve", "--local", one.to, "--size", fmt::format("{}", settings.most)};
  if (!one.transport.empty()) words.insert(words.end(), {"--via", one.transport});
  if (settings.sleeping) words.emplace_back("--sleep");
  const auto flags = tool::words_of(settings.rdma);
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

}  // namespace

Status measure(Meter& meter, const std::string& address, const Plan& plan, const std::vector<Case>& cases,
               const OnRow& on_row) {
  std::vector<std::unique_ptr<Mover>> roofs;  // before any engine has threads, since they fork
  for (const Case& one : cases)
    roofs.push_back(address.empty() && !plan.settings.sleeping
                        ? one.roof == Roof::fabric ? open_fabric_roof(provider_of(one.via), plan.settings.most)
                                                   : open_roof(one.roof, one.from, one.to, plan.settings.most)
                        : nullptr);
  meter.expect(cases.size() * plan.operations.size() * plan.sizes.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Plan mine = plan;
    mine.settings.from = cases[i].from;
    mine.settings.to = cases[i].to;
    if (!cases[i].transport.empty()) mine.settings.via = {cases[i].transport};
    OtherProcess other;
    std::string at = address;
    if (at.empty()) {
      auto started = other.start(words_of_peer(plan.settings, cases[i]));
      if (!started) return started.status();
      at = *started;
    }
    auto path = open_path(at, mine.settings, nullptr);
    if (!path) return cases[i].via.empty() ? path.status() : Status(path.status()).with_context(cases[i].via);
    const std::string name = cases[i].via.empty() ? "best" : cases[i].via;
    const auto checked = [&](Row& row) {
      row.memory = cases[i].memory;
      const Status status = check_path(cases[i], row);
      return status ? on_row(row) : status;
    };
    Status status = run(mine, name, **path, roofs[i].get(), cases[i].roof_name, meter, checked);
    if (!status) {
      (*path)->abandon();
      return status;
    }
  }
  return {};
}

}  // namespace fairway::tool::bench
