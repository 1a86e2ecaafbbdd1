#include "runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "doctor/measurement.h"
#include "other_program.h"

namespace fairway::tool {
namespace {

constexpr int kPatience = 60;  // seconds for a run
using doctor::Measurement;
using doctor::PerftestRun;

struct Said {
  std::string line;  // as on the command line
  std::string out;
};

// Both sides on this machine. The server's error is reported first, since the client's says only that nobody answered.
Result<Said> run_perftest(const topology::Machine& machine, std::uint32_t nic, const PerftestRun& run) {
  const auto program = doctor::perftest_program(run);
  if (!on_path(program))
    return Status(ErrorCode::not_found,
                  fmt::format("{0} is not installed (apt install {1}); --with HOST:PORT measures without it", program,
                              doctor::kPerftestPackage));
  const int port = free_port();
  auto words = doctor::perftest_words(machine, nic, run, port);
  if (!words) return words.status();
  ServerProgram server(*words);
  if (const Status ready = server.await(port); !ready) {
    const auto said = server.said();
    return Status(ErrorCode::system_error,
                  fmt::format("{}: {}", program, said.empty() ? ready.message() : doctor::perftest_problem(said)));
  }
  words->emplace_back("127.0.0.1");
  const auto ran = run_program(*words, kPatience);
  if (!ran) return ran.status().with_context(program);
  if (!ran->well)
    return Status(ErrorCode::system_error,
                  fmt::format("{}: {}", program, doctor::perftest_problem(ran->err + "\n" + ran->out)));
  return Said{fmt::format("{}", fmt::join(*words, " ")), ran->out};
}

Result<Said> run_bench(const std::string& device, const OtherHost& with, const PerftestRun& run) {
  std::vector<std::string> words{"bench", with.address, "--via", "verbs", "--rdma-device", device};
  const auto add = [&](const char* flag, const auto& value) {
    words.insert(words.end(), {flag, fmt::format("{}", value)});
  };
  add("--operation", doctor::to_string(run.operation));
  add("--size", run.bytes);
  if (run.qps) add("--queue-pairs", *run.qps);
  if (run.mtu) add("--mtu", *run.mtu);
  if (run.gid) add("--gid", *run.gid);
  words.insert(words.end(), {"--seconds", "0.05", "--csv", "-"});
  auto line = fmt::format("fairway {}", fmt::join(words, " "));  // a report is passed on: without the key
  if (!with.key.empty()) words.insert(words.end(), {"--key", with.key});
  auto text = run_self(words, kPatience);
  if (!text) return text.status();
  return Said{std::move(line), std::move(*text)};
}

}  // namespace

Result<std::string> run_self(const std::vector<std::string>& words, int seconds) {
  std::vector<std::string> all{"/proc/self/exe"};
  all.insert(all.end(), words.begin(), words.end());
  auto ran = run_program(all, seconds);
  if (!ran) return ran.status();
  if (ran->well) return std::move(ran->out);
  const auto said = ran->err.substr(0, ran->err.find('\n'));
  return Status(ErrorCode::system_error, said.empty() ? std::string("it failed without a message") : said);
}

Result<Measurement> run_rdma(const topology::Machine& machine, std::uint32_t nic, const OtherHost& with,
                             const PerftestRun& run) {
  const auto& name = machine.nics[nic].name;
  const auto said = with ? run_bench(name, with, run) : run_perftest(machine, nic, run);
  if (!said) return said.status();
  auto rows = doctor::read_measurements(machine, said->out, said->line, {});
  if (!rows) return rows.status();
  auto row = std::move(rows->front());
  if (row.failed) return Status(ErrorCode::system_error, row.problem);
  row.where = said->line;
  row.device = name;
  row.qps = run.qps.value_or(row.qps);
  doctor::place(machine, {}, row);
  // To another host the flow is that of this side; to itself it goes out of the device and in again.
  if (!row.flow || with) return row;
  const auto memory = row.flow->to.kind == predict::EndpointKind::nic ? row.flow->from : row.flow->to;
  row.flow->from = row.flow->to = memory;
  row.flow->loop = nic;
  return row;
}

Result<double> time_rdma(const topology::Machine& machine, std::uint32_t nic, const PerftestRun& run) {
  const auto said = run_perftest(machine, nic, run);
  if (!said) return said.status();
  return doctor::perftest_time(said->out);
}

}  // namespace fairway::tool
