//! A `[[target]]` table: a target with its settings.

use std::path::PathBuf;
use std::time::Duration;

use super::ConfigError;
use super::file::Entry;
use super::kind::{DAY_S, list, optional, path, seconds, text};
use super::setting::{set, settings};
use crate::target::{Provenance, Target, TargetError};

settings! {
    |table: TargetTable| table;

    /// Targets to measure in addition to the default ones: host:port, http://…, https://… or
    /// another station.
    pub(super) struct TargetTable {
        /// Address of the target.
        target: Option<String> = None => "target.target", optional(text(Ok)), AtOnce, example "192.0.2.7:10132";
        /// Quantities to measure: rtt rtt_tls rtt_nagle loss rtt_udp connect first_byte
        /// response_time goodput goodput_down. Default: rtt, loss and rtt_udp of a station;
        /// connect, first_byte and response_time of an http(s) URL; otherwise connect.
        quantities: Vec<String> = Vec::new() =>
            "target.quantities", list(Ok), AtOnce, example ["rtt", "goodput"];
        /// Period (s). Default: probe.period_s.
        period: Option<Duration> = None => "target.period_s", optional(seconds(0.1..=DAY_S)), AtOnce, example 30;
        /// File with the token to send to this target.
        token_file: Option<PathBuf> = None =>
            "target.token_file", optional(path()), AtOnce, example "/etc/barograph/token-of-192.0.2.7";
    }
}

/// Makes a target from a `[[target]]` table. `location` is the file and line of the table, for
/// errors.
pub(super) fn target(location: &str, entries: &[Entry<'_>]) -> Result<Target, ConfigError> {
    let mut table = TargetTable::default();
    for entry in entries {
        set(&[TargetTable::SETTINGS], &mut table, &entry.key, entry.value, &entry.location)?;
    }
    let Some(address) = table.target else {
        let message = "the address is missing: target = \"host:port\"";
        return Err(ConfigError::of_key(location, "target", message));
    };
    let parsed = Target::parse(&address, &table.quantities, table.period, Provenance::Config);
    let target = parsed.map_err(|error| {
        let is_quantity = matches!(error, TargetError::Quantity { .. });
        let key = if is_quantity { "target.quantities" } else { "target.target" };
        let location =
            entries.iter().find(|entry| entry.key == key).map_or(location, |entry| &entry.location);
        ConfigError::of_key(location, key, &error.to_string())
    })?;
    Ok(Target { token_file: table.token_file, ..target })
}
