#include "conformance/other_process.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conformance/far_side.h"

namespace fairway::conformance {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

bool send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive_all(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

struct Knock {  // a message of one byte with a descriptor
  Knock() {
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
};

}  // namespace

Parcel& Parcel::put_raw(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

std::span<const std::byte> Parcel::take_raw(std::size_t size) {
  if (size > bytes_.size() - taken_) throw std::out_of_range("a parcel holds less than is taken");
  taken_ += size;
  return std::span(bytes_).subspan(taken_ - size, size);
}

std::string Parcel::take_text() {
  const auto bytes = take_bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool Parcel::send(int socket) const {
  const std::size_t size = bytes_.size();
  return send_all(socket, std::as_bytes(std::span(&size, 1))) && send_all(socket, bytes_);
}

std::optional<Parcel> Parcel::receive(int socket) {
  std::size_t size = 0;
  if (!receive_all(socket, std::as_writable_bytes(std::span(&size, 1)))) return {};
  Parcel parcel;
  parcel.bytes_.resize(size);
  if (!receive_all(socket, parcel.bytes_)) return {};
  return parcel;
}

std::byte* Arena::allocate(std::size_t size) {
  const std::size_t rounded = (size + 4095) / 4096 * 4096;
  if (rounded > kSize - used_) throw std::bad_alloc();
  used_ += rounded;
  ++live_;
  return base_ + used_ - rounded;
}

void Arena::free(std::byte* place, std::size_t size) {
  // Zeroes of new pages for whoever gets them next; addresses are had again once nobody has any.
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place - base_,
              static_cast<off_t>((size + 4095) / 4096 * 4096));
  if (--live_ == 0) used_ = 0;
}

OtherProcess& OtherProcess::get() {
  static OtherProcess other;
  return other;
}

OtherProcess::OtherProcess() {
  arena_.file_ = sys::Fd(::memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!arena_.file_ || ::ftruncate(arena_.file_.get(), Arena::kSize) != 0 ||
      ::fcntl(arena_.file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    refuse("memory for two processes");
  const auto map = [](void* at, int protection, int flags, int file) {
    void* mapped = ::mmap(at, Arena::kSize, protection, flags, file, 0);
    if (mapped == MAP_FAILED) refuse("memory for two processes");
    return static_cast<std::byte*>(mapped);
  };
  constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  arena_.base_ = map(nullptr, PROT_READ | PROT_WRITE, MAP_SHARED, arena_.file());
  arena_.others_ = map(nullptr, PROT_NONE, kNothing, -1);
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) refuse("socketpair");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) refuse("fork");
  if (child != 0) {
    ::close(pair[1]);
    doorway_ = sys::Fd(pair[0]);
    return;
  }
  ::close(pair[0]);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  map(arena_.others_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena_.file());
  map(arena_.base_, PROT_NONE, kNothing | MAP_FIXED, -1);
  std::swap(arena_.base_, arena_.others_);
  live(pair[1]);
}

void OtherProcess::live(int doorway) {
  for (;;) {
    Knock knock;
    const ssize_t got = ::recvmsg(doorway, &knock.message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || CMSG_FIRSTHDR(&knock.message) == nullptr) ::_exit(0);
    int socket = -1;
    std::memcpy(&socket, CMSG_DATA(CMSG_FIRSTHDR(&knock.message)), sizeof socket);
    std::thread([this, socket] { serve(sys::Fd(socket), arena_); }).detach();
  }
}

sys::Fd OtherProcess::connect() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) refuse("socketpair");
  const sys::Fd theirs(pair[1]);
  Knock knock;
  cmsghdr* header = CMSG_FIRSTHDR(&knock.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &pair[1], sizeof(int));
  if (::sendmsg(doorway_.get(), &knock.message, MSG_NOSIGNAL) != 1) refuse("the other process is gone");
  return sys::Fd(pair[0]);
}

}  // namespace fairway::conformance
