//! Events of transfers for programs: one JSON object a line (docs/guide/move-files-more.md).

use barograph_forecast::Interval;
use barograph_transfer::io::{TransferEvent, TransferSummary};
use barograph_transfer::{LossesByEvidence, SenderStats};
use serde_json::{Map, Value, json};

use super::failure::{TransferFailure, fallback_message};
use super::progress::{TransferProgress, unmapped};
use super::summary::Figures;

/// An event of a transfer; `None` for an event that is not reported. Non-finite numbers are `null`.
pub(crate) fn event(progress: &TransferProgress, event: &TransferEvent) -> Option<Value> {
    Some(match event {
        TransferEvent::Notice(notice) => {
            json!({ "event": "notice", "message": super::show::skipped_text(notice) })
        }
        TransferEvent::WindowsNotKept(error) => {
            json!({ "event": "notice", "message": super::show::windows_text(error) })
        }
        TransferEvent::Connected { peer, software } => {
            json!({ "event": "connected", "peer": unmapped(*peer).to_string(), "software": software })
        }
        TransferEvent::Begun { files, bytes, held_bytes } => {
            json!({ "event": "begun", "files": files, "bytes": bytes, "held_bytes": held_bytes })
        }
        TransferEvent::Progress(_) => progress_event(progress),
        TransferEvent::Failover { why, host, port } => json!({
            "event": "elsewhere",
            "error": TransferFailure::of(why).code,
            "message": fallback_message(why, host, *port),
            "host": host,
            "port": port,
        }),
        TransferEvent::Verifying => json!({ "event": "verifying" }),
        _ => return None,
    })
}

fn progress_event(progress: &TransferProgress) -> Value {
    let left = progress.left();
    let seen = &progress.seen;
    let mut line = json!({
        "event": "progress",
        "bytes": progress.bytes,
        "held_bytes": seen.held_bytes,
        "goodput_bit_s": progress.rate_bytes_s().map(|rate| 8.0 * rate),
        "left_s": left.map(|left| left.s),
        "left_lower_s": left.and_then(|left| left.interval_s).map(|ends| ends.0),
        "left_upper_s": left.and_then(|left| left.interval_s).map(|ends| ends.1),
        "level": Interval::DEFAULT_LEVEL,
    });
    if let Some(line) = line.as_object_mut() {
        line.insert("rtt_s".into(), json!(seen.rtt.map(|rtt| rtt.as_secs_f64())));
        sent(progress, line);
        line.insert("limit".into(), json!(progress.limit().map(super::causes::Bottleneck::name)));
    }
    line
}

/// Adds the values that only a sender has.
fn sent(progress: &TransferProgress, line: &mut Map<String, Value>) {
    let Some(losses) = progress.losses() else { return };
    let stats = &progress.seen.stats;
    line.insert("allowed_bit_s".into(), json!(8.0 * progress.seen.rate_bytes_s));
    line.insert("sent_packets".into(), json!(stats.sent_packets));
    line.insert("lost_packets".into(), json!(stats.lost_packets));
    let shares = [("host", losses.host), ("network", losses.network), ("unknown", losses.unknown)];
    if progress.classifies_losses() {
        line.extend(shares.map(|(cause, share)| (format!("lost_{cause}"), json!(share))));
        line.insert("losses".into(), evidence(stats));
    } else {
        let all: f64 = shares.iter().map(|(_, share)| share).sum();
        line.insert("lost".into(), json!(all));
    }
}

/// Numbers of lost packets by the evidence that settled their cause.
fn evidence(stats: &SenderStats) -> Value {
    let LossesByEvidence { counter, marks, delay, pattern, expired } = stats.settled;
    json!({
        "counter": counter,
        "marks": marks,
        "delay": delay,
        "pattern": pattern,
        "expired": expired,
        "pending": stats.pending,
        "taken_back": stats.taken_back,
    })
}

/// The last line of a transfer that ended well.
pub(crate) fn done(summary: &TransferSummary, progress: &TransferProgress) -> Value {
    let figures = Figures::of(summary);
    let mut line = json!({
        "event": "done",
        "peer": unmapped(summary.peer).to_string(),
        "files": summary.files,
        "bytes": summary.bytes,
        "held_bytes": summary.held_bytes,
        "lasted_s": summary.lasted.as_secs_f64(),
        "lasted_all_s": summary.lasted_all.as_secs_f64(),
        "goodput_bit_s": figures.goodput_bytes_s.map(|rate| 8.0 * rate),
        "verified": "blake3",
    });
    if let Some(line) = line.as_object_mut() {
        if progress.losses().is_some() {
            line.insert("classifier".into(), json!(progress.classifier()));
            line.insert("sent_bytes".into(), json!(summary.progress.stats.sent_bytes));
            line.insert("sent_again_bytes".into(), json!(figures.resent_bytes));
        }
        sent(progress, line);
        if let Some((limit, share)) = progress.main_limit() {
            line.insert("limit".into(), json!(limit.name()));
            line.insert("limit_share".into(), json!(share));
        }
    }
    line
}

/// The last line of a transfer that failed: the reason, and the bytes that the receiver had.
pub(crate) fn failed(failure: &TransferFailure, progress: &TransferProgress) -> Value {
    json!({
        "event": "failed",
        "error": failure.code,
        "message": failure.message,
        "resumable": failure.is_resumable,
        "bytes": progress.bytes,
        "held_bytes": progress.held_bytes(),
    })
}
