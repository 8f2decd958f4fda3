//! The faults; each is one row of the table.

use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_nats::{ConnectOptions, HeaderMap};
use barograph_engine::{
    EngineError, Local, LocalConfig, NatsConfig, Record, Remote as Joining, RemoteConfig, Selector, token,
};
use barograph_forecast::{Name, Outcome};
use futures_util::StreamExt as _;
use serde_json::json;

use super::Engine::{Cluster, Nats, Remote};
use super::child::{Clock, STATION, record, value};
use super::mesh::{Component, Mesh, Needs};
use super::{Engine, Row};

type Fault = fn(&mut Mesh) -> anyhow::Result<()>;

pub(super) struct Scenario {
    pub(super) name: &'static str,
    of: &'static [Engine],
    needs: Needs,
    fault: Fault,
}

pub(super) fn of(engine: Engine) -> impl Iterator<Item = &'static Scenario> {
    ALL.iter().filter(move |scenario| scenario.of.contains(&engine))
}

const fn row(name: &'static str, of: &'static [Engine], fault: Fault) -> Scenario {
    Scenario { name, of, needs: Needs::Nothing, fault }
}

const fn failing(
    name: &'static str,
    of: &'static [Engine],
    components: &'static [Component],
    fault: Fault,
) -> Scenario {
    Scenario { needs: Needs::Failing(components), ..row(name, of, fault) }
}

const fn small(name: &'static str, of: &'static [Engine], component: Component, fault: Fault) -> Scenario {
    Scenario { needs: Needs::Small(component), ..row(name, of, fault) }
}

static ALL: &[Scenario] = &[
    row("none", ANY, |_| pause(3000)),
    row("kill -9 of the station, 20 times", ANY, |mesh| {
        for round in 0..20 {
            pause(200 + 37 * round)?;
            mesh.kill_station();
            mesh.start_station()?;
        }
        Ok(())
    }),
    row("station frozen for 5 s", ANY, |mesh| {
        mesh.signal_station("STOP")?;
        pause(5000)?;
        mesh.signal_station("CONT")
    }),
    row("clock of the station jumps by an hour either way", ANY, |mesh| wrong_clock(mesh, Clock::Jumps, 3)),
    row("clock of the station an hour ahead for 10 s", ANY, |mesh| wrong_clock(mesh, Clock::Ahead(3600), 10)),
    row("clock of the station 20 years ahead for 4 s", ANY, |mesh| {
        wrong_clock(mesh, Clock::Ahead(20 * YEAR_S), 4)
    }),
    row("clock of the station in the year 2100 for 10 s", ANY, |mesh| {
        wrong_clock(mesh, Clock::Ahead((2100 - 2026) * YEAR_S), 10)
    }),
    row("stolen token: a record under the number 2^53 - 5", ANY, |mesh| steal(mesh, Record::SEQ_MAX - 5)),
    row("stolen token: a record under the number 2^52", ANY, |mesh| steal(mesh, Record::SEQ_JUMP_MAX)),
    row("reflection: a member has the server answer onto its own subjects", ON_NATS, |mesh| {
        let before = servers(mesh)?.streams()?;
        attack(mesh)?;
        let after = servers(mesh)?.streams()?;
        ensure!(before == after, "the streams were {before:?} and are {after:?}");
        Ok(())
    }),
    failing("power loss of the station", ANY, &[Component::Station], |mesh| {
        power_loss(mesh, &[Component::Station])
    }),
    failing("power loss of the joined station", &[Remote], &[Component::Archive], |mesh| {
        power_loss(mesh, &[Component::Archive])
    }),
    failing("power loss of the archive", ON_NATS, &[Component::Archive], |mesh| {
        power_loss(mesh, &[Component::Archive])
    }),
    failing("power loss of a server", ON_NATS, &[Component::Server(0)], |mesh| {
        power_loss(mesh, &[Component::Server(0)])
    }),
    failing("power loss of two servers of three at once", &[Cluster], SERVERS, |mesh| {
        for _ in 0..3 {
            let leader = servers(mesh)?.leader()?;
            cut_power(mesh, &[Component::Server(leader), Component::Server((leader + 1) % 3)])?;
            pause(5000)?;
        }
        Ok(())
    }),
    failing("power loss of all three servers at once", &[Cluster], SERVERS, |mesh| {
        for _ in 0..3 {
            cut_power(mesh, SERVERS)?;
            pause(5000)?;
        }
        Ok(())
    }),
    failing("disk of the station fails for 10 s, then a restart", ANY, &[Component::Station], |mesh| {
        input_output_errors(mesh, Component::Station)
    }),
    failing(
        "disk of the joined station fails for 10 s, then a restart",
        &[Remote],
        &[Component::Archive],
        |mesh| input_output_errors(mesh, Component::Archive),
    ),
    failing("disk of the archive fails for 10 s, then a restart", ON_NATS, &[Component::Archive], |mesh| {
        input_output_errors(mesh, Component::Archive)
    }),
    failing("disk of a server fails for 10 s, then a restart", ON_NATS, &[Component::Server(0)], |mesh| {
        input_output_errors(mesh, Component::Server(0))
    }),
    row("kill -9 of the joined station, 5 times", &[Remote], kill_archive),
    row("joined station frozen for 20 s", &[Remote], freeze_archive),
    row("joined station away for 30 s", &[Remote], |mesh| {
        mesh.kill_archive();
        pause(30_000)?;
        mesh.start_archive()
    }),
    row("kill -9 of the archive, 5 times", ON_NATS, kill_archive),
    row("archive frozen for 20 s", ON_NATS, freeze_archive),
    row("kill -9 of the server, 3 times", &[Nats], |mesh| {
        for _ in 0..3 {
            kill_servers(mesh, &[0], 700)?;
            pause(1500)?;
        }
        Ok(())
    }),
    row("server away for 30 s", &[Nats], |mesh| kill_servers(mesh, &[0], 30_000)),
    row("kill -9 of the server that leads, 3 times", &[Cluster], |mesh| {
        for _ in 0..3 {
            let leader = servers(mesh)?.leader()?;
            kill_servers(mesh, &[leader], 5000)?;
            pause(3000)?;
        }
        Ok(())
    }),
    row("kill -9 of two servers of three, twice", &[Cluster], |mesh| {
        for _ in 0..2 {
            let leader = servers(mesh)?.leader()?;
            kill_servers(mesh, &[leader, (leader + 1) % 3], 10_000)?;
            pause(5000)?;
        }
        Ok(())
    }),
    row("two servers of three away for 60 s", &[Cluster], |mesh| {
        // The third server responds to reads, and stores nothing.
        kill_servers(mesh, &[0, 1], 60_000)
    }),
    row("kill -9 of all three servers", &[Cluster], |mesh| kill_servers(mesh, &[0, 1, 2], 3000)),
    row("the server that leads frozen for 60 s", &[Cluster], |mesh| {
        let leader = servers(mesh)?.leader()?;
        servers(mesh)?.signal(leader, "STOP")?;
        pause(60_000)?;
        servers(mesh)?.signal(leader, "CONT")
    }),
    row("station cut off for 60 s", ANY, |mesh| {
        mesh.cut(true);
        pause(60_000)?;
        mesh.cut(false);
        Ok(())
    }),
    small("disk of the station full for 10 s", ANY, Component::Station, |mesh| {
        fill(mesh, Component::Station)
    }),
    small("disk of the joined station full for 10 s", &[Remote], Component::Archive, |mesh| {
        fill(mesh, Component::Archive)
    }),
    small("disk of the archive full for 10 s", ON_NATS, Component::Archive, |mesh| {
        fill(mesh, Component::Archive)
    }),
    small("disk of a server full for 10 s, then kill -9 of it", ON_NATS, Component::Server(0), |mesh| {
        fill(mesh, Component::Server(0))?;
        // A server that could not store gives up its streams until it is restarted.
        kill_servers(mesh, &[0], 700)
    }),
    // A minute of registrations and records also fills the last page of each file.
    small("disk of a server full for 60 s, then kill -9 of it", ON_NATS, Component::Server(0), |mesh| {
        fill(mesh, Component::Server(0))?;
        mesh.disk(Component::Server(0))?.as_small()?.fill()?;
        pause(50_000)?;
        mesh.disk(Component::Server(0))?.as_small()?.empty()?;
        kill_servers(mesh, &[0], 700)
    }),
];

impl Scenario {
    /// Runs a mesh through the fault and returns the row; `None` if it is skipped.
    pub(super) fn run(&self, engine: Engine, server: Option<&Path>) -> anyhow::Result<Option<Row>> {
        let Some(mut mesh) = Mesh::start(engine, server, self.needs)? else {
            eprintln!("SKIPPED: {}: mounting a disk needs root", self.name);
            return Ok(None);
        };
        // Every row has a mesh that works before its fault.
        mesh.wait_for(400)?;
        mesh.begins();
        (self.fault)(&mut mesh)?;
        let recovered = mesh.recover()?;
        mesh.drain()?;
        let found = archived(&mesh)?;
        let reported = mesh.reported();
        let lost = reported.acknowledged.iter().filter(|seq| !found.contains_key(seq)).count();
        let double = found.values().map(|count| count - 1).sum();
        if let Some(refused) = &reported.refused {
            eprintln!("{}: an append was refused: {refused}", self.name);
        }
        let (noticed_s, sign) =
            reported.noticed.clone().map(|(after, sign)| (after.as_secs_f64(), sign)).unzip();
        Ok(Some(Row {
            mesh: engine.shown(),
            fault: self.name,
            acknowledged: reported.acknowledged.len(),
            archived: found.values().sum(),
            lost,
            double,
            noticed_s,
            sign,
            recovered_s: recovered.as_secs_f64(),
            forecast_from: mesh.learnt,
            longest_gap_s: reported.longest_gap.as_secs_f64(),
            most_waiting: reported.most_waiting,
            peers_lost: reported.lost,
            read_only_s: reported.longest_read_only_s,
        }))
    }
}

/// The station labels its records by a wrong clock for `seconds`.
fn wrong_clock(mesh: &mut Mesh, clock: Clock, seconds: u64) -> anyhow::Result<()> {
    mesh.set_clock(clock)?;
    pause(1000 * seconds)?;
    mesh.set_clock(Clock::RIGHT)
}

fn power_loss(mesh: &mut Mesh, components: &[Component]) -> anyhow::Result<()> {
    for _ in 0..3 {
        cut_power(mesh, components)?;
        pause(2000)?;
    }
    Ok(())
}

fn cut_power(mesh: &mut Mesh, components: &[Component]) -> anyhow::Result<()> {
    components.iter().try_for_each(|component| mesh.disk(*component)?.power(false))?;
    components.iter().try_for_each(|component| mesh.kill(*component))?;
    pause(500)?;
    for component in components {
        mesh.disk(*component)?.power(true)?;
        mesh.revive(*component)?;
    }
    Ok(())
}

/// The disk of a part fails, and then the operator restarts the part.
fn input_output_errors(mesh: &mut Mesh, component: Component) -> anyhow::Result<()> {
    mesh.disk(component)?.power(false)?;
    pause(10_000)?;
    mesh.kill(component)?;
    mesh.disk(component)?.power(true)?;
    mesh.revive(component)
}

/// Appends a forged record under the station's name and with its token.
fn steal(mesh: &Mesh, seq: u64) -> anyhow::Result<()> {
    let name = Name::new(STATION)?;
    let forged = Record { outcome: Outcome::Value(FORGED), ..record(&name, seq, 0)? };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (at, token) = mesh.reached_at();
    let appended = runtime.block_on(async {
        let attacker: Box<dyn barograph_engine::Engine> = match token {
            Some(token) => {
                let config = RemoteConfig { token: Some(token.to_string()), ..RemoteConfig::new(&at, name) };
                Box::new(Joining::new(config)?)
            }
            None => {
                let replicas = mesh.servers.as_ref().map_or(1, |servers| servers.len() as u8);
                let config = NatsConfig { replicas, ..NatsConfig::new(vec![at], name) };
                Box::new(barograph_engine::Nats::new(config)?)
            }
        };
        for _ in 0..ATTEMPTS {
            // The station itself appends at the same time, so the request may be throttled.
            match attacker.append(std::slice::from_ref(&forged)).await {
                Err(EngineError::Throttled { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
                other => return anyhow::Ok(format!("{other:?}")),
            }
        }
        Ok("throttled".to_string())
    })?;
    eprintln!("the record under {seq}: {appended}");
    pause(3000)
}

fn kill_archive(mesh: &mut Mesh) -> anyhow::Result<()> {
    for _ in 0..5 {
        pause(1000)?;
        mesh.kill_archive();
        pause(300)?;
        mesh.start_archive()?;
    }
    Ok(())
}

fn freeze_archive(mesh: &mut Mesh) -> anyhow::Result<()> {
    mesh.signal_archive("STOP")?;
    pause(20_000)?;
    mesh.signal_archive("CONT")
}

fn kill_servers(mesh: &mut Mesh, which: &[usize], away_ms: u64) -> anyhow::Result<()> {
    let servers = servers(mesh)?;
    which.iter().for_each(|index| servers.kill(*index));
    pause(away_ms)?;
    which.iter().try_for_each(|index| servers.revive(*index))
}

fn servers(mesh: &mut Mesh) -> anyhow::Result<&mut crate::nats::Cluster> {
    mesh.servers.as_mut().context("the mesh has NATS servers")
}

fn fill(mesh: &mut Mesh, component: Component) -> anyhow::Result<()> {
    mesh.disk(component)?.as_small()?.fill()?;
    pause(10_000)?;
    mesh.disk(component)?.as_small()?.empty()
}

/// Number of copies in the archive for each of the station's sequence numbers.
fn archived(mesh: &Mesh) -> anyhow::Result<HashMap<u64, u64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let local = Local::open(LocalConfig::new(mesh.archive_directory()))?;
        let mut found = HashMap::new();
        let mut all = local.export(&Selector::default());
        while let Some(item) = all.next().await {
            let (_, record) = item?;
            // The archive of a joined station has records of the joined station, too.
            let is_own = record.outcome == Outcome::Value(value(record.seq));
            if record.origin.as_str() == STATION && is_own {
                *found.entry(record.seq).or_insert(0) += 1;
            }
        }
        Ok(found)
    })
}

#[expect(clippy::unnecessary_wraps, reason = "a step of a scenario like the others")]
fn pause(milliseconds: u64) -> anyhow::Result<()> {
    thread::sleep(Duration::from_millis(milliseconds));
    Ok(())
}

const ANY: &[Engine] = &Engine::ALL;
const ON_NATS: &[Engine] = &[Nats, Cluster];
const SERVERS: &[Component] = &[Component::Server(0), Component::Server(1), Component::Server(2)];
const YEAR_S: i64 = 31_556_952;

/// Value of a forged record (s); the station never measures it.
const FORGED: f64 = 3599.5;

/// Attempts to append a forged record that is throttled.
const ATTEMPTS: u32 = 200;

/// Sends requests with the station's credentials that have a stream's API subject as reply subject:
/// an answer there would delete, empty or change the stream.
pub(super) fn attack(mesh: &Mesh) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (at, _) = mesh.reached_at();
        let own = format!("barograph.m.{}.x.rtt", token(STATION));
        let key = format!("$KV.barograph_dir.{}", token(STATION));
        let question = format!("barograph.a.{}.watermark", token(STATION));
        let client = ConnectOptions::with_credentials_file(mesh.credentials(STATION))
            .await?
            .custom_inbox_prefix(format!("_INBOX_{}", token(STATION)))
            .connect(at)
            .await
            .context("the server did not accept the member's credentials")?;
        for stream in ["BAROGRAPH", "KV_barograph_dir"] {
            let commands = [
                ("DELETE", json!({})),
                ("PURGE", json!({})),
                ("MSG.DELETE", json!({ "seq": 1 })),
                ("UPDATE", json!({ "name": stream, "subjects": ["x"], "max_msgs": 5 })),
            ];
            for (command, content) in commands {
                let (target, content) = (format!("$JS.API.STREAM.{command}.{stream}"), content.to_string());
                for headers in forged() {
                    // With the lists of older versions this is stored, and an answer contains it.
                    client.publish_with_headers(own.clone(), headers, content.clone().into()).await?;
                    let [of_records, of_entries] =
                        [&own, &key].map(|subject| json!({ "last_by_subj": subject }).to_string());
                    for (get, question) in [
                        ("$JS.API.DIRECT.GET.BAROGRAPH", &of_records),
                        ("barograph.g.BAROGRAPH", &of_records),
                        ("barograph.g.KV_barograph_dir", &of_entries),
                    ] {
                        client.publish_with_reply(get, target.clone(), question.clone().into()).await?;
                    }
                    client.flush().await?;
                }
                for asked in [own.as_str(), "barograph.i.BAROGRAPH", question.as_str(), target.as_str()] {
                    let asked = asked.to_string();
                    client.publish_with_reply(asked, target.clone(), content.clone().into()).await?;
                }
            }
        }
        // The flush is answered after the server has handled all requests.
        client.flush().await?;
        Ok(())
    })
}

/// Headers that make a server treat a request as one of an account's own.
fn forged() -> Vec<HeaderMap> {
    let info = json!({ "acc": "BAROGRAPH", "svc": "BAROGRAPH" }).to_string();
    (1..=3)
        .map(|times| {
            let mut headers = HeaderMap::new();
            (0..times).for_each(|_| headers.append("Nats-Request-Info", info.as_str()));
            headers
        })
        .collect()
}
