//! `barograph up`: runs a station until a signal stops it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use barograph_station::{ConfigError, ConfigSources, Signal, Station, signals};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::addresses::{Interface, interfaces, reachable};
use crate::exit::{bad_input, failed, print_line};

/// Arguments of `barograph up`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address to listen on; port 0 lets the system choose [default: 127.0.0.1:10132]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Directory for the archive, the token and added targets [default: ~/.local/state/barograph]
    #[arg(long, value_name = "DIR")]
    state: Option<String>,
    /// Join the mesh of this station (host, host:port or URL). The invitation is in
    /// BAROGRAPH_JOIN_TOKEN or in mesh.join_token_file. The default of --listen is then [::]:10132
    #[arg(long, value_name = "HOST")]
    join: Option<String>,
    /// Configuration file [default: ~/.config/barograph/barograph.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "BAROGRAPH_CONFIG")]
    config: Option<PathBuf>,
    /// Target to measure: host:port, http://… or https://…; may be repeated
    #[arg(long, value_name = "T")]
    target: Vec<String>,
    /// Name of the station [default: the host name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Do not measure the station's own responder, the gateway and the resolver
    #[arg(long)]
    no_default_targets: bool,
    /// Set a key of the configuration file, such as probe.period_s=30; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Log level on standard error: error, warn, info, debug or trace, or a filter by module
    #[arg(long, value_name = "LEVEL", env = "BAROGRAPH_LOG", default_value = "info")]
    log: String,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    // Do not log events of the NATS client by default: the client logs every attempt to connect,
    // and the station logs the result.
    let filter = match args.log.as_str() {
        level @ ("error" | "warn" | "info") => format!("{level},async_nats=off"),
        other => other.into(),
    };
    let filter = match filter.parse::<Targets>() {
        Ok(filter) => filter,
        Err(error) => return bad_input(format!("--log `{}`: {error}", args.log)),
    };
    // Drop lines that cannot be written: reporting this error would make the logging thread panic.
    tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .with_target(false)
        .finish()
        .with(filter)
        .init();
    let sources = match sources(args) {
        Ok(sources) => sources,
        Err(message) => return bad_input(message),
    };
    let config = match sources.read() {
        Ok(config) => config,
        Err(error) => return refuse_config(&error),
    };
    // Handle signals before anything else, so that no signal during start-up is unhandled.
    let signals = match signals::listen() {
        Ok(signals) => signals,
        Err(error) => return failed(format!("cannot handle signals: {error}")),
    };
    match Station::up(config) {
        Ok(station) => attend(station, &sources, signals),
        Err(error) => failed(error),
    }
}

/// Prints the station's addresses, then waits for signals.
fn attend(station: Station, sources: &ConfigSources, signals: Receiver<Signal>) -> ExitCode {
    for line in announcement(&station.url(), station.address(), &interfaces()) {
        // Ignore the result: a station continues to run if standard output is closed.
        print_line(line);
    }
    let is_asked = loop {
        match signals.recv() {
            Ok(Signal::Reload) => reload(&station, sources),
            Ok(Signal::Stop) => break true,
            Err(_) => break false,
        }
    };
    if is_asked {
        tracing::info!("Stopping… press Ctrl-C again to quit now");
    } else {
        tracing::error!("Stopping: the thread `signals` ended, so no signal can be handled any more");
    }
    std::thread::spawn(move || {
        while let Ok(signal) = signals.recv() {
            if signal == Signal::Stop {
                std::process::exit(1);
            }
        }
    });
    match station.stop(STOP_LIMIT) {
        0 if is_asked => ExitCode::SUCCESS,
        0 => ExitCode::from(1),
        lost => failed(format!("could not store {lost} measurements")),
    }
}

/// Lines with the URLs of the station: `url` for this host and, if the station listens on all
/// addresses, a URL for each address of the interfaces.
fn announcement(url: &str, listen: SocketAddr, interfaces: &[Interface]) -> Vec<String> {
    let mut lines = vec![format!("listening on {url}")];
    let scheme = if url.starts_with("https:") { "https" } else { "http" };
    let ips = reachable(listen, interfaces).into_iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
    let far = ips.filter(|ip| listen.ip().is_unspecified() && !ip.is_loopback());
    let urls: Vec<String> =
        far.map(|ip| format!("{scheme}://{}/", SocketAddr::new(ip, listen.port()))).collect();
    if !urls.is_empty() {
        lines.push(format!("for other hosts: {}", urls.join(" ")));
    }
    lines
}

fn reload(station: &Station, sources: &ConfigSources) {
    match sources.read() {
        Ok(config) => match station.reload(config) {
            Ok(needs_restart) if needs_restart.is_empty() => {
                tracing::info!("reloaded the configuration")
            }
            Ok(needs_restart) => {
                let keys = needs_restart.join(", ");
                tracing::warn!("reloaded the configuration; restart the station to change {keys}");
            }
            Err(error) => tracing::error!("kept the old configuration: {error}"),
        },
        Err(error) => tracing::error!("kept the old configuration: {error}"),
    }
}

fn refuse_config(error: &ConfigError) -> ExitCode {
    bad_input(error)
}

fn sources(args: &Args) -> Result<ConfigSources, String> {
    let mut flags = Vec::new();
    for pair in &args.set {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| format!("--set `{pair}`: expected KEY=VALUE"))?;
        flags.push((key.trim().to_string(), value.trim().to_string()));
    }
    let named =
        [("listen", &args.listen), ("state", &args.state), ("host", &args.host), ("mesh.join", &args.join)];
    flags.extend(named.into_iter().filter_map(|(key, value)| Some((key.to_string(), value.clone()?))));
    if args.no_default_targets {
        flags.push(("default_targets".into(), "false".into()));
    }
    // All variables of Barograph are text; skip others.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("BAROGRAPH_"))
        .collect();
    Ok(ConfigSources {
        file: args.config.clone().or_else(usual_file),
        variables,
        flags,
        targets: args.target.clone(),
    })
}

/// The default configuration file, `$XDG_CONFIG_HOME/barograph/barograph.toml` or, if the variable
/// is not set, `~/.config/barograph/barograph.toml`; `None` if the file does not exist.
fn usual_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    Some(base.join("barograph/barograph.toml")).filter(|path| path.exists())
}

/// Time limit for storing measurements when the station stops. A measurement waits at most a second
/// for its commit, so a disk that needs longer than this limit is broken.
const STOP_LIMIT: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "Examples:
  barograph up
  barograph up --listen '[::]:10132' --target https://example.com/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_urls_can_be_opened() {
        let one = |name: &str, ip: &str| Interface { name: name.into(), ip: ip.parse().expect("an address") };
        let host = [one("lo", "127.0.0.1"), one("eth0", "192.0.2.7"), one("eth0", "2001:db8::7")];
        let lines = |url, listen: &str, host: &[Interface]| {
            announcement(url, listen.parse().expect("an address"), host).join("\n")
        };
        assert_eq!(
            lines("http://[::1]:7/", "[::]:7", &host),
            "listening on http://[::1]:7/\nfor other hosts: http://192.0.2.7:7/ http://[2001:db8::7]:7/"
        );
        assert_eq!(
            lines("https://127.0.0.1:7/", "0.0.0.0:7", &host),
            "listening on https://127.0.0.1:7/\nfor other hosts: https://192.0.2.7:7/"
        );
        for (url, listen) in [("http://127.0.0.1:7/", "127.0.0.1:7"), ("http://192.0.2.7:7/", "192.0.2.7:7")]
        {
            assert_eq!(lines(url, listen, &host), format!("listening on {url}"));
        }
        assert_eq!(lines("http://[::1]:7/", "[::]:7", &host[..1]), "listening on http://[::1]:7/");
    }
}
