#include "collectives/meeting_place.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fairway/collectives.h"

#include "collectives/launcher.h"
#include "collectives/tag.h"

namespace fairway::collectives {
namespace {

constexpr auto kLook = std::chrono::milliseconds(5);
constexpr Timeout kExchangeSlice{100'000};
constexpr auto kRemoval = std::chrono::seconds(1);  // rank 0 does it at once

std::string system_text() {
  return std::error_code(errno, std::generic_category()).message();
}

std::string read_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Status write_line(const std::filesystem::path& path, const std::string& line) {
  std::ofstream file(path, std::ios::trunc);
  file << line << '\n';
  file.close();
  return file ? Status() : Status(ErrorCode::system_error, fmt::format("cannot write {}", path.string()));
}

std::string make_key() {
  std::random_device chance;
  std::string key;
  for (int word = 0; word < 4; ++word) key += fmt::format("{:08x}", chance());
  return key;
}

// "PID STARTED", as enter() writes it.
bool lives(const std::string& line) {
  int process = 0;
  std::uint64_t started = 0;
  const char* const end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, process);
  if (first.ptr == end || std::from_chars(first.ptr + 1, end, started).ec != std::errc()) return false;
  const ProcessFacts facts = facts_of(process);
  return facts.state != 'X' && facts.started == started;
}

}  // namespace

// An exclusive lock of the folder, by a file in it; a resource.
class MeetingPlace::Lock {
 public:
  explicit Lock(int file) : file_(file) {}
  ~Lock() {
    if (file_ >= 0) ::close(file_);
  }
  Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Lock& operator=(Lock&&) = delete;

 private:
  int file_;
};

std::filesystem::path MeetingPlace::usual_base() {
  if (::access("/dev/shm", W_OK) == 0) return "/dev/shm";
  std::error_code error;
  const auto other = std::filesystem::temp_directory_path(error);
  return error ? std::filesystem::path("/tmp") : other;
}

Result<MeetingPlace> MeetingPlace::open(const std::string& job, int rank, Time deadline, std::stop_token stop,
                                        const std::filesystem::path& base) {
  const std::filesystem::path own = base / fmt::format("fairway-{}", ::geteuid());
  if (::mkdir(own.c_str(), 0700) != 0 && errno != EEXIST)
    return Status(ErrorCode::system_error, fmt::format("cannot make {}: {}", own.string(), system_text()));
  struct stat found {};
  if (::lstat(own.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() ||
      (found.st_mode & 077) != 0)
    return Status(ErrorCode::access_denied, fmt::format("{} is not this user's alone: remove it", own.string()));
  return MeetingPlace(own / fmt::format("job-{:016x}{:016x}", hash_of(job), hash_of(job + "/2")), rank, deadline,
                      std::move(stop));
}

std::filesystem::path MeetingPlace::file(const char* what, int rank) const {
  return folder_ / fmt::format("{}-{}", what, rank);
}

Status MeetingPlace::pause() const {
  if (stop_.stop_requested()) return {ErrorCode::cancelled, "joining was stopped"};
  if (until(deadline_).count() == 0) return {ErrorCode::timed_out, ""};
  std::this_thread::sleep_for(kLook);
  return {};
}

// The folder may be removed by a job that has met, between any two lines of this: then it is made anew.
Result<MeetingPlace::Lock> MeetingPlace::lock() const {
  const std::filesystem::path path = folder_ / "lock";
  const auto failed = [&path] {
    return Status(ErrorCode::system_error, fmt::format("cannot lock {}: {}", path.string(), system_text()));
  };
  for (;;) {
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return failed();
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 && errno != ENOENT) return failed();
    if (file >= 0) {
      Lock held(file);
      if (::flock(file, LOCK_EX | LOCK_NB) == 0) {
        struct stat locked {};
        if (::fstat(file, &locked) == 0 && locked.st_nlink > 0) return held;
        continue;
      }
      if (errno != EWOULDBLOCK && errno != EINTR) return failed();
    }
    if (Status status = pause(); !status)
      return status.code() == ErrorCode::cancelled
                 ? status
                 : Status(ErrorCode::timed_out, fmt::format("another process of this job holds {}", path.string()));
  }
}

void MeetingPlace::forget(int rank) const {
  std::error_code ignored;
  std::filesystem::remove(file("rank", rank), ignored);
  std::filesystem::remove(file("process", rank), ignored);
  if (rank == 0) std::filesystem::remove(folder_ / "key", ignored);
}

void MeetingPlace::clear_away_the_dead() const {
  std::vector<int> dead;
  std::error_code error;
  constexpr std::string_view kProcess = "process-";
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename();
    int rank = -1;
    if (!name.starts_with(kProcess)) continue;
    (void)std::from_chars(name.data() + kProcess.size(), name.data() + name.size(), rank);
    if (rank >= 0 && !lives(read_line(entry.path()))) dead.push_back(rank);
  }
  for (const int rank : dead) forget(rank);
}

Status MeetingPlace::enter() {
  const int process = ::getpid();
  const std::string mine = fmt::format("{} {}", process, facts_of(process).started);
  const Time patience = Clock::now() + kRemoval;
  for (;;) {
    {
      const auto held = lock();
      if (!held) return held.status();
      clear_away_the_dead();
      const auto own = file("process", rank_);
      const std::string other = read_line(own);
      if (other.empty()) {
        Status status = write_line(own, mine);
        if (status && rank_ == 0) status = write_line(folder_ / "key", make_key());
        if (!status) forget(rank_);
        return status;
      }
      // This process has met here before, and rank 0 has not removed the folder yet.
      if (other != mine || Clock::now() >= patience)
        return {
            ErrorCode::already_exists,
            fmt::format("process {} is rank {} of this job: give each of several jobs at a time another FAIRWAY_JOB",
                        other.substr(0, other.find(' ')), rank_)};
    }
    if (Status status = pause(); !status) return status.with_context("this process has joined before");
  }
}

Result<std::string> MeetingPlace::key() {
  for (;;) {
    {
      const auto held = lock();
      if (!held) return held.status();
      if (std::string key = read_line(folder_ / "key"); !key.empty()) return key;
    }
    Status status = pause();
    if (status.code() == ErrorCode::timed_out)
      return Status(ErrorCode::timed_out, fmt::format("rank 0 has left no key in {}", folder_.string()))
          .with_peer("rank 0");
    if (!status) return status;
  }
}

Result<std::vector<std::string>> MeetingPlace::exchange(int size, const std::string& address) {
  for (;;) {
    auto addresses =
        exchange_addresses(folder_.string(), rank_, size, address, std::min(until(deadline_), kExchangeSlice));
    if (addresses || addresses.status().code() != ErrorCode::timed_out || until(deadline_).count() == 0)
      return addresses;
    if (stop_.stop_requested()) return Status(ErrorCode::cancelled, "joining was stopped");
  }
}

void MeetingPlace::leave() {
  deadline_ = std::max(deadline_, Clock::now() + std::chrono::seconds(1));
  stop_ = {};
  if (const auto held = lock()) forget(rank_);
}

void MeetingPlace::remove() {
  deadline_ = std::max(deadline_, Clock::now() + std::chrono::seconds(1));
  stop_ = {};
  std::error_code ignored;
  if (const auto held = lock()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace fairway::collectives
