#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "sys/error.h"

namespace fairway {

namespace {

constexpr int kMostRanks = 65536;  // EngineOptions::max_peers

}  // namespace

Result<std::vector<std::string>> exchange_addresses(const std::string& folder, int rank, int size,
                                                    const std::string& address, Timeout timeout) {
  if (rank < 0 || rank >= size)
    return Status(ErrorCode::invalid_argument, fmt::format("rank {} of {}: there is no such rank", rank, size));
  if (size > kMostRanks)
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{} ranks: an engine has at most {} peers", size, kMostRanks));
  if (address.empty() || address.find('\n') != std::string::npos)
    return Status(ErrorCode::invalid_argument, "address is empty, or more than one line");
  const auto deadline = collectives::after(collectives::Clock::now(), timeout);
  const std::filesystem::path place(folder);
  const auto file = [&](int of) { return place / fmt::format("rank-{}", of); };
  // Under another name first: nobody reads half an address.
  const auto own = file(rank), half = place / fmt::format(".rank-{}.new", rank);
  {
    errno = 0;
    std::ofstream out(half, std::ios::trunc);
    out << address << '\n';
    out.close();
    if (!out) return sys::system_status(errno, fmt::format("cannot write {}", half.string()));
  }
  std::error_code error;
  std::filesystem::rename(half, own, error);
  if (error) return Status(ErrorCode::system_error, fmt::format("cannot write {}: {}", own.string(), error.message()));

  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  for (;;) {
    std::string missing;
    for (int other = 0; other < size; ++other) {
      std::string& found = addresses[static_cast<std::size_t>(other)];
      if (found.empty()) {
        std::ifstream in(file(other));
        std::getline(in, found);
      }
      if (found.empty()) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", other);
    }
    if (missing.empty()) return addresses;
    if (collectives::until(deadline).count() == 0)
      return Status(ErrorCode::timed_out, fmt::format("no address in {} of these ranks: {}", folder, missing));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace fairway
