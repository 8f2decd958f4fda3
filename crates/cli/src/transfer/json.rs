//! Events of transfers for programs: one JSON object a line (docs/guide/move-files-more.md).

use barograph_forecast::Interval;
use barograph_transfer::io::{Event, Summary};
use serde_json::{Map, Value, json};

use super::course::{Course, plain};
use super::summary::Figures;
use super::trouble::{Trouble, elsewhere};

/// An event of a transfer; `None` for an event that is not reported. Non-finite numbers are `null`.
pub(crate) fn event(course: &Course, event: &Event) -> Option<Value> {
    Some(match event {
        Event::Notice(notice) => json!({ "event": "notice", "message": super::show::told(notice) }),
        Event::Connected { peer, software } => {
            json!({ "event": "connected", "peer": plain(*peer).to_string(), "software": software })
        }
        Event::Begun { files, bytes, held_bytes } => {
            json!({ "event": "begun", "files": files, "bytes": bytes, "held_bytes": held_bytes })
        }
        Event::Progress(_) => progress(course),
        Event::Elsewhere { why, host, port } => json!({
            "event": "elsewhere",
            "error": Trouble::of(why).word,
            "message": elsewhere(why, host, *port),
            "host": host,
            "port": port,
        }),
        Event::Verifying => json!({ "event": "verifying" }),
        _ => return None,
    })
}

fn progress(course: &Course) -> Value {
    let left = course.left();
    let seen = &course.seen;
    let mut line = json!({
        "event": "progress",
        "bytes": course.bytes,
        "held_bytes": seen.held_bytes,
        "goodput_bit_s": course.rate_bytes_s().map(|rate| 8.0 * rate),
        "left_s": left.map(|left| left.s),
        "left_lower_s": left.and_then(|left| left.ends_s).map(|ends| ends.0),
        "left_upper_s": left.and_then(|left| left.ends_s).map(|ends| ends.1),
        "level": Interval::DEFAULT_LEVEL,
    });
    if let Some(line) = line.as_object_mut() {
        line.insert("rtt_s".into(), json!(seen.rtt.map(|rtt| rtt.as_secs_f64())));
        sent(course, line);
        line.insert("limit".into(), json!(course.limit().map(super::causes::Limit::name)));
    }
    line
}

/// Adds the values that only a sender has.
fn sent(course: &Course, line: &mut Map<String, Value>) {
    let Some(losses) = course.losses() else { return };
    let stats = &course.seen.stats;
    line.insert("allowed_bit_s".into(), json!(8.0 * course.seen.rate_bytes_s));
    line.insert("sent_packets".into(), json!(stats.sent_packets));
    line.insert("lost_packets".into(), json!(stats.lost_packets));
    let shares = [("host", losses.host), ("network", losses.network), ("unknown", losses.unknown)];
    if course.is_told_apart() {
        line.extend(shares.map(|(cause, share)| (format!("lost_{cause}"), json!(share))));
    } else {
        let all: f64 = shares.iter().map(|(_, share)| share).sum();
        line.insert("lost".into(), json!(all));
    }
}

/// The last line of a transfer that ended well.
pub(crate) fn done(summary: &Summary, course: &Course) -> Value {
    let figures = Figures::of(summary);
    let mut line = json!({
        "event": "done",
        "peer": plain(summary.peer).to_string(),
        "files": summary.files,
        "bytes": summary.bytes,
        "held_bytes": summary.held_bytes,
        "lasted_s": summary.lasted.as_secs_f64(),
        "lasted_all_s": summary.lasted_all.as_secs_f64(),
        "goodput_bit_s": figures.goodput_bytes_s.map(|rate| 8.0 * rate),
        "verified": "blake3",
    });
    if let Some(line) = line.as_object_mut() {
        if course.losses().is_some() {
            line.insert("sent_bytes".into(), json!(summary.seen.stats.sent_bytes));
            line.insert("sent_again_bytes".into(), json!(figures.again_bytes));
        }
        sent(course, line);
        if let Some((limit, share)) = course.main_limit() {
            line.insert("limit".into(), json!(limit.name()));
            line.insert("limit_share".into(), json!(share));
        }
    }
    line
}

/// The last line of a transfer that failed: the reason, and the bytes that the receiver had.
pub(crate) fn failed(trouble: &Trouble, course: &Course) -> Value {
    json!({
        "event": "failed",
        "error": trouble.word,
        "message": trouble.sentence,
        "resumable": trouble.is_resumable,
        "bytes": course.bytes,
        "held_bytes": course.there(),
    })
}
