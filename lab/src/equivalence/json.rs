//! All that the tables say, as one JSON object; times in seconds, rates in bit/s.

use barograph_study::compare::{Side, Study};
use serde_json::{Value, json as object};

use super::args::ClockName;
use super::overhead::Overhead;
use super::results::{REGIME, Results, by_scatter};
use crate::machine;

/// One object.
pub(crate) fn json(results: &Results) -> Value {
    let Results { links, browsers, buffers, rates, overhead, jitter, is_cancelled } = results;
    let links: Vec<Value> = links
        .iter()
        .map(|link| {
            let quantities: Vec<Value> = link
                .quantities
                .iter()
                .map(|(quantity, study)| with(compared(study), "quantity", quantity.as_str().into()))
                .collect();
            object!({
                "link": link.name,
                "failures": {"native": link.failures.0, "browser": link.failures.1},
                "stopped": link.stopped,
                "void": link.void,
                "quantities": quantities,
            })
        })
        .collect();
    let buffers: Vec<Value> = buffers
        .iter()
        .map(|row| {
            object!({
                "write_bytes": row.write_bytes,
                "native_receive_block_bytes": row.receive_bytes,
                "void": row.void,
                "goodput": compared(&row.study),
            })
        })
        .collect();
    object!({
        "is_cancelled": is_cancelled,
        "regime": REGIME,
        "jitter": jitter,
        "links": links,
        "machine": {
            "kernel": machine::kernel(),
            "congestion": machine::congestion(),
            "processors": machine::processors(),
            "memory": machine::memory(),
            "load": machine::load(),
            "native": env!("CARGO_PKG_VERSION"),
            "is_release": !cfg!(debug_assertions),
        },
        "browsers": browsers,
        "buffers": buffers,
        "rates": rates,
        "overhead": added(overhead),
    })
}

fn compared(study: &Study) -> Value {
    object!({
        "pairs": study.pairing.pairs.len(),
        "native": side(&study.a),
        "browser": side(&study.b),
        "coefficient": study.coefficient,
        "coefficient_without_outliers": study.without_outliers,
        "coefficient_by_scatter": by_scatter(study),
        "outliers": study.outliers,
        "ks_distance": study.distance,
        "ks_critical_5_percent": study.distance_critical,
    })
}

fn side(side: &Side) -> Value {
    let median = (0 < side.moments.count).then_some(side.median);
    object!({"moments": side.moments, "median": median, "mean_absolute_error": side.mae()})
}

fn added(overhead: &Overhead) -> Value {
    let blocks: Vec<Value> = overhead
        .blocks
        .iter()
        .map(|block| {
            object!({
                "clock": block.clock,
                "native": block.native,
                "websocket": block.websocket,
                "browser": block.browser,
            })
        })
        .collect();
    object!({
        "stopped": overhead.stopped,
        "fine": overhead.ready(ClockName::Fine),
        "coarse": overhead.ready(ClockName::Coarse),
        "blocks": blocks,
        "clock_share": overhead.clock_share(),
    })
}

fn with(mut value: Value, key: &str, more: Value) -> Value {
    value[key] = more;
    value
}
