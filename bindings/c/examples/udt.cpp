// A UDT4 transfer whose congestion control keeps its rate if the receiving host lost the packets.
//
//     udt receive PORT [--socket BYTES] [--read MB/S]
//     udt send HOST PORT MEGABYTES [--rate MB/S] [--seconds S] [--stock]
//
// The receiver reads all that comes; `--socket` is the size of its UDP socket, `--read` limits how fast the program reads.
// The sender prints a line for each answer of the classifier, and at the end the goodput. With `--seconds`, the sender
// stops then. With `--stock`, UDT lowers its rate after each report, and the classifier only observes.
//
// UDT calls a `CCC` for each loss report, acknowledgement and timeout, on one thread. The classifier has the pattern of
// losses, each reported once. UDT measures a round trip, which grows with a queue as with a receiver that was stopped, so it
// is no evidence. UDT spaces its packets, but for a pair in sixteen: the burst is 1.

#include <netdb.h>
#include <udt/ccc.h>
#include <udt/udt.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "pending_losses.h"

static const int64_t SEQUENCE_MAX = 0x7fffffff;
// Bytes of the headers of IPv4, UDP and UDT in a packet.
static const int HEADERS = 28 + 16;

struct Options {
  std::vector<const char *> names;  // host, port, megabytes
  double rate = 0, seconds = 0, read = 0;  // 0 = no limit
  int socket = 0;  // 0 = UDT's own size
  bool is_stock = false;
};
static Options options;

static int64_t microseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class ClassifyingControl : public CUDTCC {
 public:
  void init() {
    CUDTCC::init();
    base_sequence = (m_iSndCurrSeqNo + INT64_C(1)) & SEQUENCE_MAX;
    began_us = microseconds();
  }

  // The first report ends UDT's slow start at the rate that the receiver measured, whatever its cause: it is no decrease.
  void onLoss(const int32_t *list, int size) {
    record(list, size);
    if (options.is_stock || is_slow_start)
      CUDTCC::onLoss(list, size);
    else
      reports.push_back({list[0], m_iSndCurrSeqNo});
    is_slow_start = false;
    settle();
  }

  // While a loss is pending, the rate does not rise. Packets before `next` have arrived, some of them sent again.
  void onACK(int32_t next) {
    int64_t acked_to = position(next);
    if (acked_to > acked) {
      acked = base = acked_to;
      base_sequence = next;
    }
    settle();
    if (options.is_stock || !losses.is_pending()) CUDTCC::onACK(next);
  }

  void onTimeout() {
    CUDTCC::onTimeout();
    is_slow_start = false;
    settle();
  }

  // UDT calls this on another thread.
  void onPktSent(const CPacket *) { sent++; }

  void close() {
    double seconds = (microseconds() - began_us) / 1e6;
    std::printf("%s: %.2f MB/s in %.1f s; %lld packets sent, %lld arrived; lost by the host %lld, by the network %lld, undecided %lld; "
                "windows: %d cpu, %d network, %d hybrid, %d inconclusive\n",
                options.is_stock ? "stock" : "obeys", acked * double(m_iMSS - HEADERS) / 1e6 / seconds, seconds,
                (long long)sent, (long long)acked, (long long)losses.lost(PendingLosses::HOST),
                (long long)losses.lost(PendingLosses::NETWORK), (long long)losses.lost(PendingLosses::EXPIRED),
                losses.windows(BAROGRAPH_CPU), losses.windows(BAROGRAPH_NETWORK), losses.windows(BAROGRAPH_HYBRID),
                losses.windows(BAROGRAPH_INCONCLUSIVE));
    std::fflush(stdout);
  }

 private:
  struct Report {
    int32_t first;    // the report's first number, as UDT encodes it
    int32_t sent_to;  // the newest packet when the report came
  };

  // Number of packets sent before this one. Sequence numbers begin again after 2^31.
  int64_t position(int32_t sequence) const {
    int64_t ahead = ((sequence & SEQUENCE_MAX) - base_sequence) & SEQUENCE_MAX;
    return base + (ahead > SEQUENCE_MAX / 2 ? ahead - SEQUENCE_MAX - 1 : ahead);
  }

  // One number is a packet; two, the first with its highest bit set, are a range. UDT has not checked them.
  void record(const int32_t *list, int size) {
    int64_t now_us = microseconds();
    for (int i = 0; i < size; i++) {
      int64_t from = position(list[i]), last = from;
      if (list[i] < 0) {
        if (++i == size) return;
        last = position(list[i]);
      }
      if (position(m_iSndCurrSeqNo) < last) return;  // never sent
      losses.lose(from, last + 1, now_us);
    }
  }

  void settle() {
    static const char *const ANSWERS[] = {"", "", "the host", "the network", "undecided"};
    int64_t pending = losses.pending();
    PendingLosses::Answer answer = losses.poll(acked, microseconds(), m_iRTT + m_iSYNInterval);
    if (answer == PendingLosses::NOTHING || answer == PendingLosses::PENDING) return;
    if (answer == PendingLosses::HOST && !options.is_stock) limit_to_arrivals(pending);
    if (answer != PendingLosses::HOST) charge();
    reports.clear();
    answered = losses.settled();
    const barograph_diagnosis &found = losses.diagnosis();
    std::printf("%lld lost: %s (%u of the last %u packets lost, p_cpu %.3f); %.0f packets/s\n", (long long)pending,
                ANSWERS[answer], found.lost, found.packets, found.p_cpu, 1e6 / m_dPktSndPeriod);
  }

  // What a busy host cannot read would cross the path in vain. If the host lost more than a tenth of the packets since the
  // last answer, the rate falls to a tenth above what arrived. `lost` packets are the host's.
  void limit_to_arrivals(int64_t lost) {
    double arrived = 1 - double(lost) / std::max(losses.settled() - answered, INT64_C(1));
    m_dPktSndPeriod /= std::min(1.1 * std::max(arrived, 0.5), 1.0);
  }

  // Repeats the reports as they came. UDT lowers its rate as often as it would have then.
  void charge() {
    int32_t newest = m_iSndCurrSeqNo;
    for (const Report &report : reports) {
      m_iSndCurrSeqNo = report.sent_to;
      CUDTCC::onLoss(&report.first, 1);
    }
    m_iSndCurrSeqNo = newest;
  }

  PendingLosses losses;
  std::vector<Report> reports;  // of the pending losses
  bool is_slow_start = true;
  int64_t base = 0, base_sequence = 0;  // a packet's position and its sequence number
  int64_t acked = 0, answered = 0, began_us = 0;
  std::atomic<int64_t> sent{0};
};

static UDTSOCKET connection() {
  bool is_sender = options.names.size() == 3;
  addrinfo hints = {}, *found;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = is_sender ? 0 : AI_PASSIVE;
  if (getaddrinfo(is_sender ? options.names[0] : nullptr, options.names[is_sender], &hints, &found) != 0) return UDT::INVALID_SOCK;
  UDTSOCKET socket = UDT::socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  bool is_open;
  if (is_sender) {
    CCCFactory<ClassifyingControl> factory;
    int64_t bytes_per_second = int64_t(options.rate * 1e6);
    int wait_ms = 100;
    UDT::setsockopt(socket, 0, UDT_CC, &factory, sizeof factory);
    UDT::setsockopt(socket, 0, UDT_SNDTIMEO, &wait_ms, sizeof wait_ms);
    if (bytes_per_second > 0) UDT::setsockopt(socket, 0, UDT_MAXBW, &bytes_per_second, sizeof bytes_per_second);
    is_open = UDT::connect(socket, found->ai_addr, found->ai_addrlen) != UDT::ERROR;
  } else {
    if (options.socket > 0) UDT::setsockopt(socket, 0, UDP_RCVBUF, &options.socket, sizeof options.socket);
    is_open = UDT::bind(socket, found->ai_addr, found->ai_addrlen) != UDT::ERROR && UDT::listen(socket, 1) != UDT::ERROR;
    if (is_open) socket = UDT::accept(socket, nullptr, nullptr);
  }
  freeaddrinfo(found);
  return is_open ? socket : UDT::INVALID_SOCK;
}

// Returns false if the connection broke.
static bool send_all(UDTSOCKET socket, int64_t bytes) {
  std::vector<char> block(1000000);
  int64_t began_us = microseconds();
  while (bytes > 0) {
    if (options.seconds > 0 && (microseconds() - began_us) / 1e6 >= options.seconds) {
      linger at_once = {1, 0};  // do not wait for what is on its way
      UDT::setsockopt(socket, 0, UDT_LINGER, &at_once, sizeof at_once);
      break;
    }
    int sent = UDT::send(socket, block.data(), int(std::min(bytes, int64_t(block.size()))), 0);
    if (sent != UDT::ERROR)
      bytes -= sent;
    else if (UDT::getlasterror().getErrorCode() != CUDTException::ETIMEOUT)
      return false;
  }
  return true;
}

// Reads until the sender closes the connection.
static void receive_all(UDTSOCKET socket) {
  std::vector<char> block(1000000);
  auto began = std::chrono::steady_clock::now();
  double bytes = 0;
  for (int came; (came = UDT::recv(socket, block.data(), int(block.size()), 0)) != UDT::ERROR;) {
    bytes += came;
    if (options.read > 0) std::this_thread::sleep_until(began + std::chrono::microseconds(int64_t(bytes / options.read)));
  }
}

static bool read_options(int argc, char **argv) {
  for (int i = 2; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (std::strcmp(argv[i], "--stock") == 0) options.is_stock = true;
    else if (std::strncmp(argv[i], "--", 2) != 0) options.names.push_back(argv[i]);
    else if (std::strcmp(argv[i++], "--rate") == 0) options.rate = std::atof(value);
    else if (std::strcmp(argv[i - 1], "--seconds") == 0) options.seconds = std::atof(value);
    else if (std::strcmp(argv[i - 1], "--socket") == 0) options.socket = std::atoi(value);
    else if (std::strcmp(argv[i - 1], "--read") == 0) options.read = std::atof(value);
    else return false;
  }
  return argc > 1 && options.names.size() == (std::strcmp(argv[1], "send") == 0 ? 3 : 1);
}

int main(int argc, char **argv) {
  if (!read_options(argc, argv)) {
    std::fprintf(stderr, "usage: udt receive PORT [--socket BYTES] [--read MB/S]\n"
                         "       udt send HOST PORT MEGABYTES [--rate MB/S] [--seconds S] [--stock]\n");
    return 2;
  }
  UDT::startup();
  UDTSOCKET socket = connection();
  bool is_sender = options.names.size() == 3;
  if (socket == UDT::INVALID_SOCK || (is_sender && !send_all(socket, int64_t(std::atof(options.names[2]) * 1e6)))) {
    std::fprintf(stderr, "%s\n", UDT::getlasterror().getErrorMessage());
    return 1;
  }
  if (!is_sender) receive_all(socket);
  UDT::close(socket);  // without --seconds, waits until all has arrived
  UDT::cleanup();
  return 0;
}
