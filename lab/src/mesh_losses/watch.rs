//! Reads over HTTP what a whole station reports while it works.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use super::child::STATION;
use super::said::Said;
use crate::http::{get, get_any};

/// Reads health, peers, directory and forecasts of the station called `host` for as long as the mesh lives.
pub(super) fn watch(host: &'static str, address: SocketAddr, said: &Arc<Mutex<Said>>) {
    let said = Arc::downgrade(said);
    thread::spawn(move || {
        let mut lost = BTreeSet::new();
        while let Some(said) = said.upgrade() {
            let mut signs = health(address);
            let peers = get(address, "/v1/peers").ok();
            let read_only_s =
                get(address, "/v1/mesh").ok().and_then(|mesh| mesh["directory"]["read_only_s"].as_f64());
            let learnt = learnt_at(address).ok();
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(peers) = &peers {
                let lost_now: BTreeSet<String> = in_state(peers, "lost").collect();
                for peer in lost_now.difference(&lost) {
                    said.hear(&format!("lost {peer} by {host} ."));
                }
                for peer in in_state(peers, "up") {
                    said.hear(&format!("up {peer} by {host} ."));
                }
                signs.extend(lost_now.iter().map(|peer| format!("lost {peer} by {host}")));
                lost = lost_now;
            }
            if let Some(seconds) = read_only_s {
                said.hear(&format!("read-only {} .", seconds as u64));
                signs.push(format!("read-only for {seconds:.0} s"));
            }
            said.learnt_most = said.learnt_most.max(learnt.unwrap_or(0));
            said.reports(host, signs);
            drop(said);
            thread::sleep(LOOK_EVERY);
        }
    });
}

/// What `/healthz` reports; empty also when the station does not answer.
fn health(address: SocketAddr) -> Vec<String> {
    // Degraded, it answers with an error's status.
    let Ok(health) = get_any(address, "/healthz") else { return Vec::new() };
    let sentences = ["reasons", "warnings"].map(|list| health[list].as_array().cloned().unwrap_or_default());
    sentences.iter().flatten().filter_map(Value::as_str).map(ToString::to_string).collect()
}

/// The peers that are in this state.
fn in_state<'a>(peers: &'a Value, state: &'a str) -> impl Iterator<Item = String> + 'a {
    let all = peers["peers"].as_array().into_iter().flatten();
    all.filter(move |peer| peer["state"] == state).filter_map(|peer| Some(peer["host"].as_str()?.to_string()))
}

/// From how many of the station's values the station at this address forecasts.
pub(super) fn learnt_at(address: SocketAddr) -> anyhow::Result<u64> {
    let answer = get(address, &format!("/v1/forecast?source={STATION}"))?;
    let forecasts = answer["forecasts"].as_array().context("a list of forecasts")?;
    Ok(forecasts.iter().filter_map(|forecast| forecast["count"].as_u64()).sum())
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
