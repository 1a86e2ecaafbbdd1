#include "peers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "other_program.h"

namespace fairway::tool::bench {
namespace {

std::vector<std::string> split(const std::string& command) {
  std::istringstream words(command);
  return {std::istream_iterator<std::string>(words), {}};
}

// Its output, errors first. No argument of these commands contains a blank.
std::string output_of(const std::string& command) {
  const auto ran = run_program(split(command), 30);
  return ran ? ran->err + ran->out : ran.status().message();
}

// A server command that listens at that port; the client reports if it does not.
class PeerServer : public ServerProgram {
 public:
  PeerServer(const std::string& command, int port) : ServerProgram(split(command)) { (void)await(port); }
};

// The numbers of the last line that begins with one.
std::vector<double> last_numbers(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<double> found;
    for (std::string word; words >> word;) {
      char* end = nullptr;
      const double value = std::strtod(word.c_str(), &end);
      if (end == word.c_str()) break;
      found.push_back(value);
    }
    if (found.size() >= 4) numbers = std::move(found);
  }
  return numbers;
}

Status unread(const Rival& rival, const std::string& text) {
  const std::size_t from = text.size() > 200 ? text.size() - 200 : 0;
  return {ErrorCode::unsupported, fmt::format("{} reported no figure: {}", rival.tool, text.substr(from))};
}

std::string ucx_transports(const Rival& rival) {
  return rival.path == "tcp" ? "tcp" : rival.path == "verbs" ? "rc_v,ud_v" : "posix,sysv,self,cma";
}

Result<double> run_ucx(const Rival& rival, std::uint64_t size, int port) {
  const std::string transports = ucx_transports(rival);
  const int rounds = size >= 1 << 20 ? 200 : 5000;
  const auto tool = [&](const std::string& environment) {
    return fmt::format("env UCX_TLS={} {} ucx_perftest -p {}", transports, environment, port);
  };
  PeerServer server(tool(rival.theirs), port);
  const std::string text = output_of(fmt::format("{} {} -t {} -s {} -n {} -w {} -O 1 -f", tool(rival.ours), rival.at,
                                                 rival.what, size, rounds, rounds / 10));
  const auto numbers = last_numbers(text);
  if (numbers.size() < 4) return unread(rival, text);
  return numbers[1];  // iterations, then the median
}

Result<double> run_fabric(const Rival& rival, std::uint64_t size, int port) {
  const bool connected = rival.path == "tcp" || rival.path == "verbs";
  const std::string tool = fmt::format("fi_pingpong -p {} -e {} -I {} -S {}", rival.path, connected ? "msg" : "rdm",
                                       size >= 1 << 20 ? 100 : 3000, size);
  PeerServer server(fmt::format("{} {} -B {}", tool, rival.theirs, port), port);
  const std::string text = output_of(fmt::format("{} {} -P {} {}", tool, rival.ours, port, rival.at));
  std::istringstream lines(text);  // bytes, #sent, #ack, total, time, MB/sec, usec/xfer, Mxfers/sec
  std::string line, last;
  while (std::getline(lines, line))
    if (!line.empty()) last = line;
  std::istringstream words(last);
  std::vector<std::string> found;
  for (std::string word; words >> word;) found.push_back(word);
  const double us = found.size() >= 8 ? std::strtod(found[6].c_str(), nullptr) : 0;
  return us > 0 ? Result<double>(us) : Result<double>(unread(rival, text));
}

Result<double> run_iperf(const Rival& rival, std::uint64_t size, int port) {
  PeerServer server(fmt::format("iperf3 -s -1 -p {}", port), port);
  const std::string text = output_of(fmt::format("iperf3 -c 127.0.0.1 -p {} -t 1 {} -J", port, rival.what));
  const std::size_t sum = text.find("\"sum_received\"");
  const std::size_t at = sum == std::string::npos ? sum : text.find("\"bits_per_second\":", sum);
  const double rate = at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 18, nullptr);
  return rate > 0 ? Result<double>(static_cast<double>(size) * 8 / rate * 1e6) : Result<double>(unread(rival, text));
}

std::string words_of(const PortName& port) {
  return fmt::format("-d {} -i {} -x {}", port.device, port.number, port.gid_index);
}

std::string for_ucx(const PortName& port) {
  return fmt::format("UCX_NET_DEVICES={}:{} UCX_IB_GID_INDEX={}", port.device, port.number, port.gid_index);
}

// Columns: bytes, iterations; of a time: minimum, maximum, typical (the median); of a rate: peak MiB/s, average,
// million messages a second (the last with fewer digits).
Result<double> run_perftest(const Rival& rival, std::uint64_t size, int port) {
  const bool atomic = rival.operation == Operation::fetch_add;
  const int rounds = size >= 1 << 20 ? 100 : size >= 1 << 16 ? 500 : 3000;
  std::string tool = fmt::format("{} -F -n {} -p {}", rival.tool, rounds, port);
  tool += atomic ? " -A FETCH_AND_ADD" : fmt::format(" -s {}", size);
  if (rival.rate) tool += fmt::format(" -t {}", rival.depth);
  PeerServer server(tool + " " + rival.theirs, port);
  const std::string text = output_of(tool + " " + rival.ours + " 127.0.0.1");
  const auto numbers = last_numbers(text);
  if (numbers.size() < 5) return unread(rival, text);
  if (!rival.rate) return numbers[4];
  const bool large = size >= 1 << 16;
  const double rate = large ? numbers[3] : numbers[4];
  if (rate <= 0) return unread(rival, text);
  return large ? static_cast<double>(size) / (rate * (1 << 20)) * 1e6 : 1 / rate;
}

}  // namespace

std::vector<Rival> rivals() {
  std::vector<Rival> all;
  for (const char* path : {"shm", "tcp"}) {
    all.push_back({"ucx_perftest", "ucx-utils", path, "ucp_put_lat", Operation::count});
    all.push_back({"ucx_perftest", "ucx-utils", path, "ucp_get", Operation::read});
    all.push_back({"ucx_perftest", "ucx-utils", path, "tag_lat", Operation::send});
    all.push_back({"ucx_perftest", "ucx-utils", path, "tag_lat", Operation::send_local});
    all.push_back({"fi_pingpong", "libfabric-bin", path, "pingpong", Operation::send});
  }
  all.push_back({"iperf3", "iperf3", "tcp", "-P 1", Operation::write, true});
  all.push_back({"iperf3", "iperf3", "tcp", "-P 2", Operation::write, true});
  const auto ports = two_ports();
  if (ports.size() < 2) return all;
  constexpr std::uint64_t kDepth = 64;
  for (const auto& [tool, operation, rate] :
       std::initializer_list<std::tuple<const char*, Operation, bool>>{{"ib_write_lat", Operation::count, false},
                                                                       {"ib_write_bw", Operation::write, true},
                                                                       {"ib_read_lat", Operation::read, false},
                                                                       {"ib_read_bw", Operation::read, true},
                                                                       {"ib_send_lat", Operation::send, false},
                                                                       {"ib_atomic_lat", Operation::fetch_add, false},
                                                                       {"ib_atomic_bw", Operation::fetch_add, true}})
    all.push_back({tool, "perftest", "verbs", rate ? fmt::format("{} at once", kDepth) : "lat", operation, rate,
                   rate ? kDepth : 1, words_of(ports[0]), words_of(ports[1])});
  for (const auto& [what, operation] : std::initializer_list<std::pair<const char*, Operation>>{
           {"ucp_put_lat", Operation::count}, {"ucp_get", Operation::read}, {"tag_lat", Operation::send}})
    all.push_back(
        {"ucx_perftest", "ucx-utils", "verbs", what, operation, false, 1, for_ucx(ports[0]), for_ucx(ports[1])});
  all.push_back({"fi_pingpong", "libfabric-bin", "verbs", "pingpong", Operation::send, false, 1,
                 "-d " + ports[0].device, "-d " + ports[1].device, ports[1].address});
  return all;
}

std::string Rival::test() const {
  return operation == Operation::send_local ? what + " (local)" : what;
}

Result<double> run_rival(const Rival& rival, std::uint64_t size) {
  const int port = free_port();
  if (rival.tool == "ucx_perftest") return run_ucx(rival, size, port);
  if (rival.tool == "fi_pingpong") return run_fabric(rival, size, port);
  if (rival.package == "perftest") return run_perftest(rival, size, port);
  return run_iperf(rival, size, port);
}

bool Rival::does(std::uint64_t size) const {
  if (operation == Operation::fetch_add) return size == 8;
  return !rate || depth > 1 || size >= 1 << 20;
}

std::string environment_of(const Rival& rival) {
  const bool ucx = rival.tool == "ucx_perftest";
  const std::string_view prefix = ucx ? "UCX_" : rival.tool == "fi_pingpong" ? "FI_" : "";
  std::vector<std::string> all;
  if (ucx) all.push_back("UCX_TLS=" + ucx_transports(rival));
  if (ucx && !rival.ours.empty()) all.push_back(rival.ours);
  for (char** at = environ; !prefix.empty() && *at != nullptr; ++at)
    if (const std::string_view each = *at; each.starts_with(prefix) && !each.starts_with("UCX_TLS="))
      all.emplace_back(each);
  return fmt::format("{}", fmt::join(all, " "));
}

std::string version_of(const Rival& rival) {
  const std::string text = output_of("dpkg-query -W -f ${Version}\\n " + rival.package);
  const std::string line = text.substr(0, text.find('\n'));
  return !line.empty() && line.find(' ') == line.npos ? line : std::string();
}

std::string peer_head() {
  return fmt::format("{:<14} {:<15} {:<5} {:>9} {:>11} {:>11} {:>7}  {}\n", "tool", "its test", "path", "size",
                     "its us", "ours us", "ratio", "95 %");
}

std::string peer_row(const PeerRow& row) {
  return fmt::format("{:<14} {:<15} {:<5} {:>9} {:>11.2f} {:>11.2f} {:>7.2f}  {}\n", row.tool, row.test, row.path,
                     size_text(row.size), row.its_us, row.ours_us, row.ratio.median,
                     row.ratio.high > 0 ? fmt::format("{:.2f} to {:.2f}", row.ratio.low, row.ratio.high) : "-");
}

std::string peer_end(const std::vector<std::string>& missing) {
  std::string text;
  for (const std::string& each : missing) text += "not installed: " + each + "\n";
  return text +
         "\nratio: theirs / ours, above 1 Fairway is faster. One at a time; ping-pongs tell half of a round trip. "
         "iperf3 streams\n"
         "without waiting for an answer: its row is the time of so many bytes at its rate. (local): our send is "
         "complete once its\n"
         "bytes are copied, as theirs is (RequestOptions::local_completion).\n";
}

Fields fields(const PeerRow& row) {
  return {{"tool", row.tool, true},
          {"version", row.version, true},
          {"environment", row.environment, true},
          {"test", row.test, true},
          {"path", row.path, true},
          {"bytes", fmt::format("{}", row.size)},
          {"depth", fmt::format("{}", row.depth)},
          {"its_us", fmt::format("{:.3f}", row.its_us)},
          {"ours_us", fmt::format("{:.3f}", row.ours_us)},
          {"ratio", known(row.ratio.median, 4)},
          {"ratio_low", known(row.ratio.low, 4)},
          {"ratio_high", known(row.ratio.high, 4)}};
}

// Student's t of the logarithms: twice as fast is as far from 1 as half as fast.
Ratio ratio_of(const std::vector<double>& theirs, const std::vector<double>& ours) {
  constexpr std::array<double, 11> kT{0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23};
  std::vector<double> logs;
  double sum = 0;
  for (std::size_t i = 0; i < theirs.size() && i < ours.size(); ++i)
    if (theirs[i] > 0 && ours[i] > 0) sum += logs.emplace_back(std::log(theirs[i] / ours[i]));
  if (logs.empty()) return {};
  const auto count = static_cast<double>(logs.size());
  const double mean = sum / count;
  double squares = 0;
  for (const double each : logs) squares += (each - mean) * (each - mean);
  std::ranges::sort(logs);
  const std::size_t middle = logs.size() / 2;
  const double median = logs.size() % 2 == 1 ? logs[middle] : (logs[middle - 1] + logs[middle]) / 2;
  if (logs.size() < 3) return {std::exp(median), 0, 0};  // of two, 95 % may be anything
  const double t = logs.size() <= kT.size() ? kT[logs.size() - 1] : 2.1;
  const double reach = t * std::sqrt(squares / (count - 1) / count);
  if (reach > std::log(10.0)) return {std::exp(median), 0, 0};  // so wide that it says nothing
  return {std::exp(median), std::exp(mean - reach), std::exp(mean + reach)};
}

}  // namespace fairway::tool::bench
