//! Controllers in a closed loop with a path of a fixed round trip, and with arbitrary input.

mod bottleneck;
mod hostile;
mod path;
mod taken_back;

use std::time::Duration;

use super::paper::Mode;
use super::*;
use path::{Host, Losses, Path, RTT_MS, State};

/// Mean window (packets) of a controller at this loss rate, after the window has settled.
fn window(controller: &mut dyn Controller, losses: Losses, round_trips: u32) -> f64 {
    let mut state = State::new(Path { losses, host: None });
    state.run(controller, round_trips);
    let before = state.sent;
    state.run(controller, round_trips);
    (state.sent - before) as f64 / f64::from(round_trips)
}

#[test]
fn highspeed_follows_its_equation() {
    for (rate, round_trips) in [(1e-3, 6000), (1e-4, 10_000), (1e-5, 16_000)] {
        for losses in [Losses::Each(f64::round(1.0 / rate) as u64), Losses::Chance(rate, 7)] {
            let held = window(&mut Equation::highspeed(), losses, round_trips);
            let due = ResponseFunction::HighSpeed.window(rate);
            println!("{losses:?}: {held:.1} of {due:.1}");
            assert!((held / due - 1.0).abs() < 0.2, "{losses:?}: {held:.1} of {due:.1}");
        }
    }
}

#[test]
fn tfrc_follows_its_equation() {
    for (rate, round_trips) in [(1e-2, 4000), (1e-3, 6000), (1e-4, 20_000)] {
        for losses in [Losses::Each(f64::round(1.0 / rate) as u64), Losses::Chance(rate, 7)] {
            let held = window(&mut Equation::tfrc(), losses, round_trips);
            let due = ResponseFunction::Tfrc.window(rate);
            println!("{losses:?}: {held:.1} of {due:.1}");
            assert!((held / due - 1.0).abs() < 0.2, "{losses:?}: {held:.1} of {due:.1}");
        }
    }
}

#[test]
fn the_scalable_window_is_0_08_divided_by_the_loss_rate() {
    for rate in [1e-3, 1e-4, 2e-5] {
        for losses in [Losses::Each(f64::round(1.0 / rate) as u64), Losses::Chance(rate, 7)] {
            let held = window(&mut Scalable::default(), losses, 3000);
            let due = 0.08 / rate;
            println!("{losses:?}: {held:.1} of {due:.1}");
            assert!((held / due - 1.0).abs() < 0.2, "{losses:?}: {held:.1} of {due:.1}");
        }
    }
}

#[test]
fn the_paper_controller_follows_its_equation_after_the_start() {
    for mode in [Mode::Window, Mode::Rate] {
        let held = window(&mut Paper::new(mode, ControllerConfig::default()), Losses::Each(10_000), 4000);
        let due = ResponseFunction::HighSpeed.window(1e-4);
        println!("{mode:?}: {held:.1} of {due:.1}");
        assert!((held / due - 1.0).abs() < 0.2, "{mode:?}: {held:.1} of {due:.1}");
    }
}

#[test]
fn the_paper_controller_starts_at_its_maximum_and_slows_after_one_loss() {
    let mut paper =
        Paper::new(Mode::Window, ControllerConfig { rate_bytes_s: 12.5e6, ..ControllerConfig::default() });
    assert_eq!((paper.rate_bytes_s(), paper.window_bytes()), (12.5e6, u64::MAX));
    // 100 ms of 12.5 MB/s are 1250 packets of 1000 bytes.
    let rtt = path::rtt(Duration::from_millis(100));
    let now = Duration::from_millis(100);
    paper.on_feedback(
        now,
        &FeedbackSample { rtt, accounted_packets: 100, packet_bytes: 1000, ..FeedbackSample::default() },
    );
    let window = |paper: &Paper| (paper.rate_bytes_s() * 0.1 / 100.0).round() / 10.0;
    assert_eq!(window(&paper), 1250.0);
    // Within the window nothing changes. At its end, one loss in 1350 packets gives a window of
    // 0.12 × 1350^0.835 = 49.3.
    let loss = path::loss(200, 1, now);
    let seen = FeedbackSample {
        rtt,
        packet_bytes: 1000,
        losses: &[loss],
        accounted_packets: 900,
        ..FeedbackSample::default()
    };
    paper.on_feedback(now, &seen);
    assert_eq!(window(&paper), 1250.0);
    paper.on_feedback(now, &FeedbackSample { losses: &[], accounted_packets: 1350, ..seen });
    assert_eq!(window(&paper), 49.3);
    // Host losses count as sent and not as lost: the loss rate is 1 in 13 500, which gives a window
    // of 337.3 packets.
    paper.on_feedback(
        now,
        &FeedbackSample { losses: &[], accounted_packets: 1400, host_lost_packets: 12_100, ..seen },
    );
    assert_eq!(window(&paper), 337.3);
}

#[test]
fn slow_start_doubles_each_round_trip_and_ends_at_the_received_rate() {
    let mut highspeed = Equation::highspeed();
    assert_eq!((highspeed.rate_bytes_s(), highspeed.window_bytes()), (f64::INFINITY, 14_600));
    let mut state = State::new(Path { losses: Losses::None, host: None });
    state.run(&mut highspeed, 4);
    for _ in 0..6 {
        let before = highspeed.rate_bytes_s();
        state.run(&mut highspeed, 1);
        let grown = highspeed.rate_bytes_s() / before;
        println!("{grown:.3}");
        assert!((1.7..=2.001).contains(&grown), "{grown}");
    }
    // A packet that is sent now is lost. The first interval is 1 / p(w), where w is the number of
    // packets that arrive in a round trip. So the new rate is the receive rate, which is half of
    // the sending rate.
    let received = state.delivered_bytes_s();
    let loss = path::loss(state.accounted, 1, state.now);
    state.lose(&mut highspeed, loss);
    let after = highspeed.rate_bytes_s() / received;
    assert!((0.9..1.6).contains(&after), "{after}");
}

#[test]
fn ecn_marks_count_as_one_loss_per_round_trip() {
    for kind in [ControllerKind::HighSpeed, ControllerKind::Tfrc, ControllerKind::Scalable] {
        let mut controller = kind.controller(ControllerConfig::default());
        let mut state = State::new(Path { losses: Losses::None, host: None });
        state.run(&mut *controller, 8);
        let before = controller.rate_bytes_s();
        state.mark(&mut *controller);
        let marked = controller.rate_bytes_s();
        assert!(marked < 0.9 * before, "{kind}: {before} {marked}");
        state.mark(&mut *controller);
        let again = controller.rate_bytes_s() / marked;
        assert!((0.98..1.1).contains(&again), "{kind}: {again}");
    }
}

#[test]
fn silence_halves_every_rate_down_to_one_packet_in_four_seconds() {
    for kind in ControllerKind::ALL {
        let mut controller = kind.controller(ControllerConfig::default());
        let mut state = State::new(Path { losses: Losses::Each(5000), host: None });
        state.run(&mut *controller, 100);
        let before = controller.rate_bytes_s();
        controller.on_no_feedback(state.now);
        let halved = controller.rate_bytes_s() / before;
        assert!(0.2 < halved && halved <= 0.5001, "{kind}: {halved}");
        for _ in 0..100 {
            controller.on_no_feedback(state.now);
        }
        let least = path::PACKET_BYTES as f64 / 4.0;
        assert!((controller.rate_bytes_s() / least - 1.0).abs() < 1e-9, "{kind}");
        state.run(&mut *controller, 200);
        assert!(20.0 * least < controller.rate_bytes_s(), "{kind}: {}", controller.rate_bytes_s());
    }
    let mut unheard = Equation::highspeed();
    unheard.on_no_feedback(Duration::from_secs(1));
    assert_eq!(unheard.rate_bytes_s(), 7300.0);
}

#[test]
fn a_bottleneck_with_a_queue_is_filled() {
    for kind in [ControllerKind::HighSpeed, ControllerKind::Tfrc, ControllerKind::Scalable] {
        for rtt_ms in [20, 100] {
            let mut controller = kind.controller(ControllerConfig::default());
            let made = bottleneck::run(&mut *controller, 100e6, Duration::from_millis(rtt_ms), 60);
            println!("{kind} {rtt_ms} ms: {made:?}");
            assert!(made.used >= 0.95 && made.lost <= 0.005, "{kind} {rtt_ms} ms: {made:?}");
        }
    }
}

/// Returns the used share of the host's 300 Mbit/s, and the wasted share of the packets. The
/// controller offers 1 Gbit/s. The first ten seconds do not count.
fn contended(host: Host, losses: Losses, round_trips: u32) -> (f64, f64) {
    let mut drain_limiter = DrainLimiter::new(Box::new(Fixed::new(ControllerConfig {
        rate_bytes_s: 125e6,
        ..ControllerConfig::default()
    })));
    let mut state = State::new(Path { losses, host: Some(host) });
    state.run(&mut drain_limiter, 1000);
    let (acked, sent, lost) = (state.acked, state.sent, state.host_lost);
    state.run(&mut drain_limiter, round_trips);
    let packets_s = (state.acked - acked) as f64 / (f64::from(round_trips) * RTT_MS * 1e-3);
    let used = packets_s * path::PACKET_BYTES as f64 / DRAIN_BYTES_S;
    (used, (state.host_lost - lost) as f64 / (state.sent - sent) as f64)
}

/// Drain rate of the test host: 300 Mbit/s.
const DRAIN_BYTES_S: f64 = 37.5e6;

#[test]
fn the_drain_rate_of_a_contended_host_is_used_with_few_drops() {
    // The cases are a very small buffer, the usual socket buffer, and a buffer of many round trips,
    // with and without a reported drain rate. One case runs for as long as the time between two
    // trials.
    for (buffer_bytes, is_told, round_trips) in [
        (20e3, true, 49_000),
        (20e3, false, 4000),
        (212_992.0, true, 4000),
        (64e6, true, 4000),
        (64e6, false, 4000),
    ] {
        let host = Host { drain_bytes_s: DRAIN_BYTES_S, buffer_bytes, is_told, scheduled: (1, 1) };
        let (used, thrown) = contended(host, Losses::None, round_trips);
        println!("{buffer_bytes} {is_told}: {used:.4} used, {:.3} % thrown away", 100.0 * thrown);
        assert!((0.95..1.01).contains(&used), "{host:?}: {used}");
        assert!(0.0 < thrown && thrown <= 0.006, "{host:?}: {thrown}");
    }
}

#[test]
fn a_stalling_host_is_used_and_drops_nothing_if_its_buffer_is_large_enough() {
    // The host reads 1.2 Gbit/s a quarter of the time: 300 Mbit/s on average. At this average rate,
    // 0.3 to 3.4 MB arrive during stalls of 7.5, 30 and 90 ms.
    for (run, period) in [(1, 4), (4, 16), (12, 48)] {
        let of = |buffer_bytes| Host {
            drain_bytes_s: 4.0 * DRAIN_BYTES_S,
            buffer_bytes,
            is_told: true,
            scheduled: (run, period),
        };
        let (used, thrown) = contended(of(8e6), Losses::None, 4000);
        println!("{run} of {period}, 8 MB: {used:.4} used, {:.3} % thrown away", 100.0 * thrown);
        assert!(used >= 0.95 && thrown <= 0.1, "{run} of {period}: {used} {thrown}");
        // With the usual buffer, packets that arrive during a stall are lost, so only a higher rate
        // delivers as much. With stalls of 90 ms, 1 Gbit/s delivers at most 0.88 of the host's
        // rate.
        let (used, thrown) = contended(of(212_992.0), Losses::None, 4000);
        println!("{run} of {period}, 213 kB: {used:.4} used, {:.3} % thrown away", 100.0 * thrown);
        assert!(used >= 0.7, "{run} of {period}: {used}");
    }
}

#[test]
fn the_cap_ends_when_the_host_is_free_again() {
    let mut drain_limiter = DrainLimiter::new(Box::new(Fixed::new(ControllerConfig {
        rate_bytes_s: 125e6,
        ..ControllerConfig::default()
    })));
    let host =
        Host { drain_bytes_s: DRAIN_BYTES_S, buffer_bytes: 212_992.0, is_told: true, scheduled: (1, 1) };
    let mut state = State::new(Path { losses: Losses::None, host: Some(host) });
    state.run(&mut drain_limiter, 300);
    assert!(drain_limiter.cap_bytes_s().is_some_and(|cap| cap < 1.1 * DRAIN_BYTES_S));
    state.path.host = None;
    // The cap needs ln(125 / 37.5) / 0.0025 = 482 turns to rise to the controller's rate.
    state.run(&mut drain_limiter, 520);
    assert_eq!(drain_limiter.rate_bytes_s(), 125e6);
    state.run(&mut drain_limiter, 600);
    assert_eq!(drain_limiter.cap_bytes_s(), None);
}

#[test]
fn with_mixed_losses_the_network_share_sets_the_rate_up_to_the_host_cap() {
    let mut drain_limiter = ControllerKind::HighSpeed.controller(ControllerConfig::default());
    let host =
        Host { drain_bytes_s: DRAIN_BYTES_S, buffer_bytes: 212_992.0, is_told: true, scheduled: (1, 1) };
    let mut state = State::new(Path { losses: Losses::Each(100_000), host: Some(host) });
    state.run(&mut *drain_limiter, 4000);
    let (acked, sent, lost) = (state.acked, state.sent, state.host_lost);
    state.run(&mut *drain_limiter, 4000);
    // The equation gives 1795 packets in 10 ms, so the host is the limit.
    let used = (state.acked - acked) as f64 / 40.0 * path::PACKET_BYTES as f64 / DRAIN_BYTES_S;
    assert!((0.95..1.01).contains(&used), "{used}");
    assert!(((state.host_lost - lost) as f64) < 0.005 * (state.sent - sent) as f64);
    // At one loss in a thousand the network is the limit: the equation gives the rate, for any host
    // losses before.
    state.path.losses = Losses::Each(1000);
    state.run(&mut *drain_limiter, 4000);
    let before = state.sent;
    state.run(&mut *drain_limiter, 4000);
    let held = (state.sent - before) as f64 / 4000.0;
    assert!((held / ResponseFunction::HighSpeed.window(1e-3) - 1.0).abs() < 0.2, "{held}");
}
