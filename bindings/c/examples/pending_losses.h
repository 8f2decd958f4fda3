// Lost packets that wait for their cause.
//
// A sender reports losses with `lose`, and calls `poll` whenever a report or an acknowledgement comes. A loss is pending
// until the pattern of the last WINDOW packets shows its cause. If it shows none by the deadline, the loss counts as the
// network's. The deadline is ROUND_TRIPS round trips or WINDOW packets after the first pending loss, whichever is earlier.
#ifndef BAROGRAPH_PENDING_LOSSES_H
#define BAROGRAPH_PENDING_LOSSES_H

#include <algorithm>
#include <cstdint>
#include <map>

#include "barograph_loss.h"

class PendingLosses {
 public:
  enum Answer {
    NOTHING,  // no loss is pending
    PENDING,
    HOST,     // all pending losses are the host's: keep the rate
    NETWORK,  // some are the network's: lower the rate
    EXPIRED,  // the cause is not known: lower the rate
  };

  // The shipped model was fitted on windows of this length, and of at least PACKETS_MIN packets.
  static const int64_t WINDOW = 20000;
  static const int64_t PACKETS_MIN = 2000;
  // A single run often has no clear cause, and the next stall of a busy host may be some round trips away.
  static const int64_t ROUND_TRIPS = 4;

  PendingLosses() : window_(barograph_loss_new()) {}
  ~PendingLosses() { barograph_loss_free(window_); }
  PendingLosses(const PendingLosses &) = delete;
  PendingLosses &operator=(const PendingLosses &) = delete;

  // Packets `from` to `to` - 1 are lost; packets are counted from 0 in the order of sending. Packet `to` has arrived.
  void lose(int64_t from, int64_t to, int64_t now_us) {
    if (from < start_ || to <= from || !gaps_.insert({from, to}).second) return;
    if (!is_pending()) {
      since_us_ = looked_us_ = now_us;
      first_ = from;
    }
    pending_ += to - from;
    settled_ = std::max(settled_, to);
  }

  // All packets before `settled` have arrived or were reported as lost. Any answer but PENDING ends the wait.
  Answer poll(int64_t settled, int64_t now_us, int64_t round_trip_us) {
    settled_ = std::max(settled_, settled);
    trim(settled_ - WINDOW);
    if (!is_pending()) return NOTHING;
    bool is_late = now_us - since_us_ >= ROUND_TRIPS * round_trip_us || settled_ - first_ >= WINDOW;
    // The rest of a run, and runs that have the same cause, are reported within a round trip.
    if (!is_late && now_us - looked_us_ < round_trip_us) return PENDING;
    looked_us_ = now_us;
    Answer answer = look();
    if (answer == PENDING && is_late) answer = EXPIRED;
    if (answer != PENDING) {
      lost_[answer] += pending_;
      pending_ = 0;
    }
    return answer;
  }

  bool is_pending() const { return pending_ > 0; }
  int64_t pending() const { return pending_; }
  int64_t settled() const { return settled_; }
  // Number of packets with this answer, of HOST, NETWORK and EXPIRED.
  int64_t lost(Answer answer) const { return lost_[answer]; }
  // The last diagnosis, and the number of windows with each verdict (BAROGRAPH_INCONCLUSIVE to BAROGRAPH_HYBRID).
  const barograph_diagnosis &diagnosis() const { return diagnosis_; }
  int windows(uint32_t verdict) const { return windows_[verdict]; }

 private:
  // Forgets what is before the window. A window does not begin within a run.
  void trim(int64_t start) {
    start_ = std::max(start_, start);
    for (auto gap = gaps_.begin(); gap != gaps_.end() && gap->first < start_; gap = gaps_.erase(gap))
      start_ = std::max(start_, gap->second);
  }

  Answer look() {
    barograph_loss_clear(window_);
    int64_t at = start_;
    for (const auto &gap : gaps_) {
      int64_t from = std::max(gap.first, at);
      if (from >= gap.second) continue;
      barograph_loss_push(window_, uint32_t(from - at), uint32_t(gap.second - from));
      at = gap.second;
    }
    if (at < settled_) barograph_loss_push(window_, uint32_t(settled_ - at), 0);
    barograph_evidence evidence = BAROGRAPH_NOTHING_KNOWN;
    evidence.burst = 1;
    barograph_loss_diagnose(window_, &evidence, &diagnosis_);
    windows_[diagnosis_.verdict]++;
    if (diagnosis_.packets < PACKETS_MIN || diagnosis_.verdict == BAROGRAPH_INCONCLUSIVE) return PENDING;
    return diagnosis_.verdict == BAROGRAPH_CPU ? HOST : NETWORK;
  }

  barograph_loss *window_;
  std::map<int64_t, int64_t> gaps_;  // from the first packet of a run to the one after its last
  int64_t start_ = 0, settled_ = 0;
  int64_t pending_ = 0, first_ = 0, since_us_ = 0, looked_us_ = 0;
  int64_t lost_[EXPIRED + 1] = {};
  int windows_[BAROGRAPH_HYBRID + 1] = {};
  barograph_diagnosis diagnosis_ = {};
};

#endif
