//! `lab best`: whether a station's choice among five hosts is right, whether transfers take the
//! time that it states, and how soon it follows a rate that fell.
//!
//! Six real stations run on six emulated hosts. Right after each answer of the asking station, the
//! bytes are sent to each host over plain TCP.

mod choice;
mod fall;
mod hosts;
mod mesh;
mod transfer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use barograph_forecast::{TransferModel, TransferPath};
use barograph_sim::SeededRng;
use clap::value_parser;

use crate::machine::{self, now_s};
use crate::output::Output;
use crate::table::{Table, cells, list};
use choice::{Question, size_name};
use fall::{Fall, ForecastAt, GOAL_S, NEAR};
use hosts::{DELAY_DEVIATION, FALLEN, HostLink, Hosts, MEMORY, RATE_DEVIATION};
use mesh::{Mesh, TEST_S};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Questions of each size, at random moments.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = value_parser!(u32).range(0..=1000))]
    questions: u32,
    /// Tests to each host in the warm-up, before the first question. A station's interval is
    /// calibrated after eleven.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = value_parser!(u32).range(11..=100))]
    warm_up: u32,
    /// Falls of a host's rate to a tenth.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(0..=100))]
    falls: u32,
    /// Seed of the links' variation, and of the moments and order of the questions.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Program `barograph`, of a release build.
    #[arg(long, value_name = "FILE", default_value = "target/release/barograph")]
    program: PathBuf,
    /// Print each question and each fall as a line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let hosts = Hosts::new(args.seed)?;
    let program = args.program.canonicalize();
    let program = program.with_context(|| format!("{} cannot be run", args.program.display()))?;
    let directory = tempfile::tempdir()?;
    let receivers = hosts.links.iter().map(|link| transfer::receive(link.host(), link.address));
    let mut study = Study {
        hosts: &hosts,
        mesh: Mesh::new(&hosts, &program, directory.path()),
        receivers: receivers.collect::<anyhow::Result<_>>()?,
        output: Output::new(page, args.json),
        began: Instant::now(),
    };
    let warm_up_s = study.warm_up(args.warm_up)?;
    study.output.print(&introduction(&hosts, args, warm_up_s))?;
    if args.questions > 0 {
        let questions = study.ask(args.questions, args.seed)?;
        study.output.print(&choice_report(&questions, &hosts))?;
    }
    if args.falls > 0 {
        let falls = (0..args.falls).map(|number| study.fall(number)).collect::<anyhow::Result<Vec<_>>>()?;
        study.output.print(&fall_report(&falls))?;
    }
    let doubts = hosts.doubts();
    if doubts.is_empty() {
        return Ok(());
    }
    study.output.print(&format!("\n**The emulator was too slow**: {}.\n", list(doubts)))
}

struct Study<'a> {
    hosts: &'a Hosts,
    mesh: Mesh<'a>,
    /// Receiver of each host's transfers.
    receivers: Vec<SocketAddr>,
    output: Output,
    began: Instant,
}

impl Study<'_> {
    /// Lets every path from the asking host have enough tests and probes for calibrated intervals.
    /// Then all stations start again with default settings. Returns the duration before that (s).
    fn warm_up(&mut self, tests: u32) -> anyhow::Result<f64> {
        self.report("starting six stations");
        self.mesh.start(&WARM_UP_SETTINGS)?;
        for round in 1..=tests {
            for name in self.hosts.names() {
                self.mesh.test(name)?;
            }
            self.report(&format!("warm-up: test {round} of {tests} to each host"));
        }
        // Round trips during tests do not count, so most of their probes come now.
        let tested = Instant::now();
        while !self.is_calibrated()? {
            ensure!(tested.elapsed() < CALIBRATED_WITHIN, "no calibrated interval for each host");
            thread::sleep(TICK);
        }
        let warm_up_s = self.began.elapsed().as_secs_f64();
        self.report("warm-up: every interval is calibrated");
        self.restart()?;
        Ok(warm_up_s)
    }

    fn is_calibrated(&self) -> anyhow::Result<bool> {
        let answer = self.mesh.best(FALL_BYTES)?;
        let calibrated = answer.hosts.iter().filter(|host| !host.is_calibrating).count();
        Ok(calibrated == self.hosts.links.len())
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.mesh.restart()?;
        self.report("the stations have started with default settings");
        thread::sleep(SETTLE);
        Ok(())
    }

    /// Asks for each size so many times, in random order at random moments, and sends the bytes to
    /// every host after each answer.
    fn ask(&self, of_each: u32, seed: u64) -> anyhow::Result<Vec<Question>> {
        let mut rng = SeededRng::new(seed, MOMENTS);
        let sizes = order(&SIZES, of_each, &mut rng);
        let mut questions = Vec::with_capacity(sizes.len());
        for (number, bytes) in sizes.iter().enumerate() {
            thread::sleep(PAUSE_MIN + PAUSE_MEAN.mul_f64(rng.exponential(1.0)));
            let answer = self.mesh.best(*bytes)?;
            let times_s = transfer::send(self.hosts.asker(), &self.receivers, *bytes)?;
            let real: Vec<(&str, f64)> = self.hosts.names().into_iter().zip(times_s).collect();
            let question = Question::of(*bytes, &answer, &real).context("there are hosts")?;
            self.output.json(&question)?;
            questions.push(question);
            if (number + 1) % REPORTED == 0 {
                self.report(&format!("question {} of {}", number + 1, sizes.len()));
            }
        }
        Ok(questions)
    }

    /// Lets the rate of one host fall, and reads its forecast until that stays right or
    /// [`FALL_MAX`] have passed. The next fall is another host's.
    fn fall(&mut self, number: u32) -> anyhow::Result<Fall> {
        let hosts = self.hosts;
        let index = number as usize % hosts.links.len();
        let link = &hosts.links[index];
        self.restart()?;
        let before_s = self.forecast_before(link)?;
        link.set_fallen(true);
        let seen = self.watch(index, before_s);
        link.set_fallen(false);
        let fall = seen?;
        self.output.json(&fall)?;
        let noticed =
            fall.noticed_s.map_or_else(|| "not noticed".to_owned(), |at| format!("noticed after {at:.0} s"));
        self.report(&format!("fall {}: {noticed}", number + 1));
        Ok(fall)
    }

    /// Forecast time (s) before the fall. If it is wrong, as after an earlier fall of this host, a
    /// test comes first.
    fn forecast_before(&self, link: &HostLink) -> anyhow::Result<f64> {
        for _ in 0..TESTS_BEFORE {
            match self.forecast_s(&link.name)? {
                Some(forecast_s) if fall::is_near(forecast_s, expected_s(link)?) => return Ok(forecast_s),
                // A host declines if its budget is used up, and its forecast stays.
                _ if self.mesh.test(&link.name).is_err() => break,
                _ => {}
            }
        }
        self.forecast_s(&link.name)?.with_context(|| format!("no forecast for {}", link.name))
    }

    fn forecast_s(&self, host: &str) -> anyhow::Result<Option<f64>> {
        Ok(choice::forecast_of(&self.mesh.best(FALL_BYTES)?, host).map(|forecast| forecast.forecast))
    }

    /// Reads the forecast every second from now on. Once it is near the expected time, a transfer
    /// shows the real one. Two readings in turn that are near the real time end the watch: the
    /// transfer takes the time between the first two.
    fn watch(&self, index: usize, before_s: f64) -> anyhow::Result<Fall> {
        let link = &self.hosts.links[index];
        let (fell, fell_at_s) = (Instant::now(), now_s()?);
        let (mut forecasts, mut real_s, mut was_near) = (Vec::new(), None, false);
        while fell.elapsed() < FALL_MAX {
            thread::sleep(TICK);
            let after_s = fell.elapsed().as_secs_f64();
            let seen = ForecastAt { after_s, forecast_s: self.forecast_s(&link.name)? };
            forecasts.push(seen);
            let mut is_near = seen.is_near(real_s.map_or_else(|| expected_s(link), Ok)?);
            if is_near && was_near {
                break;
            }
            if is_near && real_s.is_none() {
                let time_s = self.send_one(index)?;
                real_s = Some(time_s);
                is_near = seen.is_near(time_s);
            }
            was_near = is_near;
        }
        let rate_bps = link.rate_bps();
        let real_s = real_s.map_or_else(|| self.send_one(index), Ok)?;
        let tested_at_s = self.mesh.first_test_s(&link.name, fell_at_s)?;
        Ok(Fall {
            host: link.name.clone(),
            before_s,
            rate_bps,
            real_s,
            noticed_s: fall::noticed_s(before_s, &forecasts, real_s),
            forecasts,
            tested_s: tested_at_s.map(|at_s| at_s - fell_at_s),
        })
    }

    /// Time of a real transfer to one host (s).
    fn send_one(&self, index: usize) -> anyhow::Result<f64> {
        let times_s = transfer::send(self.hosts.asker(), &self.receivers[index..=index], FALL_BYTES)?;
        times_s.first().copied().context("there is one transfer")
    }

    /// Prints the progress to standard error.
    fn report(&self, text: &str) {
        eprintln!("{:>5.0} s: {text}", self.began.elapsed().as_secs_f64());
    }
}

/// Time (s) of [`FALL_BYTES`] at the link's present rate, by the model of the project
/// (docs/spec/transfer-time.md). It only tells when a transfer is worth its time.
fn expected_s(link: &HostLink) -> anyhow::Result<f64> {
    let (rate_bit_s, rtt_s) = (link.rate_bps(), link.shape.rtt.as_secs_f64());
    let time_s = TransferModel::TCP.time_s(FALL_BYTES, TransferPath { rate_bit_s, rtt_s }, 0.5);
    time_s.context("a link has a rate and a delay")
}

/// Each size so many times, in random order (Fisher and Yates 1938; Durstenfeld 1964).
fn order(sizes: &[u64], of_each: u32, rng: &mut SeededRng) -> Vec<u64> {
    let mut all: Vec<u64> = sizes.iter().flat_map(|size| vec![*size; of_each as usize]).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, rng.index_below(last + 1));
    }
    all
}

fn introduction(hosts: &Hosts, args: &Args, warm_up_s: f64) -> String {
    let mut table = Table::titled("host | Mbit/s | round trip, ms");
    for link in hosts.links.iter() {
        let rtt_ms = 1e3 * link.shape.rtt.as_secs_f64();
        table.push(cells![link.name, format!("{:.0}", link.shape.rate_bps / 1e6), format!("{rtt_ms:.0}")]);
    }
    format!(
        "# Does a station choose the right host?\n\n\
         Six stations, `barograph up` on six emulated hosts, are a mesh: one asks, five are asked about. Rates and \
         delays of their links vary (a standard deviation of {:.0} % and {:.0} %, correlation 1/e after {:.0} s; seed \
         {}). The link of the asking host has no limit. TCP's congestion control is {}.\n\n{table}\n\
         The warm-up took {warm_up_s:.0} s: with a larger budget, the asking station tested each host at least \
         {} times for {TEST_S:.0} s, and waited until every interval was calibrated. Then all stations started again \
         with default settings, and with budgets of which nothing was spent.\n",
        100.0 * RATE_DEVIATION,
        100.0 * DELAY_DEVIATION,
        MEMORY.as_secs_f64(),
        args.seed,
        machine::congestion(),
        args.warm_up,
    )
}

fn choice_report(questions: &[Question], hosts: &Hosts) -> String {
    format!(
        "\n## Choice\n\n\
         Each question is `GET /v1/best` for so many bytes to the five hosts, in random order at random moments. \
         Right after the answer, the bytes are sent to every host at the same time, over a new TCP connection each: \
         the time is that of the handshake, the bytes and one byte back. *Right*: the named host was the fastest. \
         *Too close*: none was named, and the fastest was among those too close to call; *hosts too close* is their \
         mean number, of five. *First ÷ fastest*: real time to the first host of the answer, divided by the fastest \
         (mean). The goal for right or too close is 95 %.\n\n\
         {}\n## Intervals\n\n\
         Real times inside the 90 % interval, faster than its lower or slower than its upper end; ratios are \
         geometric means. The goal is 85 to 95 % inside.\n\n{}\n{}",
        choice::verdicts(questions),
        choice::intervals_by_size(questions),
        choice::intervals_by_host(questions, &hosts.names()),
    )
}

fn fall_report(falls: &[Fall]) -> String {
    format!(
        "\n## A rate that fell\n\n\
         {:.0} s after a restart with unspent budgets, the rate of one host falls to {FALLEN} of what it was. The \
         forecast time of {} is read every second for at most {:.0} s. *Noticed*: then, and at the next reading after \
         a transfer, it is within a factor of {NEAR} of the time that the transfer really took; before the fall, it \
         was not. *Tested*: the asking station began a bulk test to this host.\n\n{}\n\
         Noticed within {GOAL_S:.0} s: {} of {}.\n",
        SETTLE.as_secs_f64(),
        size_name(FALL_BYTES),
        FALL_MAX.as_secs_f64(),
        fall::table(falls),
        fall::in_time(falls),
        falls.len(),
    )
}

/// From one segment train to some seconds of transfer.
const SIZES: [u64; 5] = [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Size of the transfer after a fall; on all paths, mostly the rate decides its time.
const FALL_BYTES: u64 = 10_000_000;

/// Default budgets permit eleven tests of each path in some hours only.
const WARM_UP_SETTINGS: [&str; 2] = ["mesh.bulk_share=1", "mesh.bulk_bytes_per_hour=1000000000000"];

/// Eleven probes of each peer come every 10 s; some are missed.
const CALIBRATED_WITHIN: Duration = Duration::from_secs(300);

/// Until peers were probed several times, and the stations' start no longer takes processor time.
const SETTLE: Duration = Duration::from_secs(40);

/// Pause before a question: the queues of earlier transfers are empty again, and the moment does
/// not depend on them.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MEAN: Duration = Duration::from_secs(1);

/// Stream of random numbers for the order and the moments; links have smaller ones.
const MOMENTS: u64 = 1000;

/// Questions between two lines of progress: about a minute.
const REPORTED: usize = 10;

/// Twice the goal. Five falls that are never noticed take a quarter of an hour.
const FALL_MAX: Duration = Duration::from_secs(120);

/// Tests before a fall at most; two move the forecast to the new rate.
const TESTS_BEFORE: u32 = 3;

/// Time between two reads of a forecast: the accuracy of `noticed_s`.
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_have_each_size_equally_often_in_random_order() {
        let order = |seed| order(&SIZES, 40, &mut SeededRng::new(seed, MOMENTS));
        let all = order(1);
        assert_eq!(all, order(1));
        assert_ne!(all, order(2));
        assert!(!all.is_sorted());
        for size in SIZES {
            assert_eq!(all.iter().filter(|bytes| **bytes == size).count(), 40);
        }
    }

    #[test]
    fn the_report_of_falls_counts_those_in_time() {
        let fall = |noticed_s| Fall {
            host: "host1".to_owned(),
            before_s: 1.4,
            rate_bps: 6e6,
            real_s: 13.6,
            forecasts: Vec::new(),
            noticed_s,
            tested_s: Some(20.0),
        };
        let report = fall_report(&[fall(Some(31.0)), fall(None)]);
        assert!(report.contains("falls to 0.1 of"), "{report}");
        assert!(report.ends_with("Noticed within 60 s: 1 of 2.\n"), "{report}");
    }
}
