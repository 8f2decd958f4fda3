//! `barograph send`: sends files and directories to a receiver.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use barograph_study::units::parse_rate;
use barograph_transfer::controller::ControllerKind;
use barograph_transfer::files::WalkConfig;
use barograph_transfer::io::ReceiverEndpoint;
use barograph_transfer::io::identity::{Fingerprint, ReceiverAddress};
use barograph_transfer::io::{SendConfig, send};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::exit::{bad_input, eprint_line, failed};
use crate::transfer::classification::ClassificationArgs;
use crate::transfer::failure::TransferFailure;
use crate::transfer::options::{self, IdentityArgs, PORT, parse_fingerprint};
use crate::transfer::progress::TransferRole;
use crate::transfer::show::{OutputOptions, TransferOutput};

/// Arguments of `barograph send`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Files and directories to send
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Receiver address that `barograph recv` prints (brg://…), or HOST[:PORT] with --pin or
    /// --authorities
    #[arg(value_name = "ADDRESS|HOST[:PORT]")]
    to: String,
    /// A further receiver of the same directory, on storage that all receivers share. The further
    /// receiver gets the remaining data if the first receiver dies, is unreachable, or loses
    /// packets by its CPU for a long time; may be repeated
    #[arg(long = "fallback", alias = "or", value_name = "ADDRESS|HOST[:PORT]")]
    fallbacks: Vec<String>,
    /// SHA-256 fingerprint of the receiver's certificate, as `barograph recv` prints it; may be
    /// repeated
    #[arg(long, value_name = "FINGERPRINT", value_parser = parse_fingerprint, conflicts_with = "authorities")]
    pin: Vec<Fingerprint>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Congestion controller, which sets the sending rate
    #[arg(long, value_name = "NAME", value_parser = controllers(), default_value = ControllerKind::DEFAULT.name())]
    controller: ControllerKind,
    /// Bits per second, such as 100M or 2.5G: the rate of the controller `fixed`, and the initial
    /// rate of the other controllers
    #[arg(long, value_name = "BITS", value_parser = parse_rate)]
    rate: Option<f64>,
    #[command(flatten)]
    classification: ClassificationArgs,
    /// Send without encryption if the receiver has --clear too: faster, but readable by anyone on
    /// the path
    #[arg(long)]
    clear: bool,
    /// Largest IP packet, in bytes [default: the largest that the route carries]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=65_535))]
    mtu: Option<u16>,
    /// Send symbolic links below a PATH as links, instead of skipping them; a PATH that is a link
    /// is followed
    #[arg(long)]
    links: bool,
    /// Print one JSON object a line (docs/guide/move-files-more.md)
    #[arg(long)]
    json: bool,
    /// Show neither progress nor the summary
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

fn controllers() -> impl TypedValueParser<Value = ControllerKind> {
    let names = ControllerKind::ALL.map(|kind| PossibleValue::new(kind.name()).help(kind.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ControllerKind>())
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let config = match config(args) {
        Ok(config) => config,
        Err(message) => return bad_input(message),
    };
    let role = TransferRole {
        is_sender: true,
        classifier: Some(config.classification.name()),
        is_fixed_rate: config.controller == ControllerKind::Fixed,
    };
    let output = Arc::new(TransferOutput::new(OutputOptions {
        is_json: args.json,
        is_quiet: args.quiet,
        is_numbered: false,
        role,
    }));
    let stop = match options::stop_on_signal(&output) {
        Ok(stop) => stop,
        Err(error) => return failed(format!("cannot handle signals: {error}")),
    };
    if args.clear {
        output.message(options::CLEAR);
    }
    match send(config, &stop, &mut |event| output.event(0, &event)) {
        Ok(summary) => {
            output.done(0, &summary);
            ExitCode::SUCCESS
        }
        Err(error) => {
            output.failed(0, &TransferFailure::of(&error));
            ExitCode::from(1)
        }
    }
}

fn config(args: &Args) -> Result<SendConfig, String> {
    if args.controller == ControllerKind::Fixed && args.rate.is_none() {
        return Err("--controller fixed needs --rate, such as --rate 1G".into());
    }
    Ok(SendConfig {
        paths: args.paths.clone(),
        walk: WalkConfig { links: args.links, ..WalkConfig::default() },
        receiver: to(args, &args.to)?,
        fallback_receivers: fallbacks(args)?,
        identity: args.identity.identity(eprint_line)?,
        controller: args.controller,
        rate_bytes_s: args.rate,
        classification: args.classification.classification(eprint_line)?,
        window_directory: args.classification.keep_windows.clone(),
        allow_unencrypted: args.clear,
        mtu: args.mtu.map(usize::from),
        hash_cache_directory: hash_cache_directory(),
        portable: false,
    })
}

/// Directory for the hashes of unfinished transfers: `$XDG_STATE_HOME/barograph/sending`, or
/// `~/.local/state/barograph/sending` if the variable is not set. Without this directory, a resumed
/// transfer reads its files twice.
fn hash_cache_directory() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")))?;
    let directory = state.join("barograph/sending");
    // Ignore errors: sending also works without the directory, for example if the home directory is
    // read-only.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    Some(directory)
}

/// The receiver, identified by its receiver address, or by its host and the certificates to trust.
fn to(args: &Args, text: &str) -> Result<ReceiverEndpoint, String> {
    if args.paths.iter().any(|path| path.as_os_str().as_encoded_bytes().starts_with(b"brg://")) {
        return Err("the receiver address comes last: barograph send PATH… brg://…".into());
    }
    let trust = args.identity.trust(&args.pin)?;
    if text.contains("://") {
        if trust.is_some() {
            return Err(
                "a receiver address (brg://…) contains the fingerprint: leave out --pin and --authorities"
                    .into(),
            );
        }
        let line = text.parse::<ReceiverAddress>();
        return line
            .map(ReceiverEndpoint::Address)
            .map_err(|error| format!("{error}: copy the whole address that `barograph recv` prints"));
    }
    let (host, port) = host_and_port(text)?;
    let trust = trust.ok_or_else(|| {
        format!(
            "Cannot authenticate {host}: pass the receiver address that `barograph recv` prints there, or --pin with \
             the fingerprint that it prints, or --authorities"
        )
    })?;
    Ok(ReceiverEndpoint::Trusted { host, port, trust })
}

/// The fallback receivers, which share the storage of the first receiver. All receivers must be
/// given in the same form, either by receiver address or by host, because the two forms would
/// identify two different transfers on that storage.
fn fallbacks(args: &Args) -> Result<Vec<ReceiverEndpoint>, String> {
    if args.fallbacks.iter().any(|fallback| fallback.contains("://") != args.to.contains("://")) {
        return Err("with --fallback, give all receivers by receiver address, or all by host".into());
    }
    args.fallbacks.iter().map(|fallback| to(args, fallback)).collect()
}

/// Parses `host`, `host:port`, `address`, `[v6]` or `[v6]:port`.
fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("expected HOST, HOST:PORT or [V6]:PORT, found `{text}`");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(wrong)?) })
        }
        // An IPv6 address without brackets has no port.
        None if text.matches(':').count() == 1 => {
            text.split_once(':').map(|(host, port)| (host, Some(port))).ok_or_else(wrong)?
        }
        None => (text, None),
    };
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    if host.is_empty() || host.contains(is_odd) {
        return Err(wrong());
    }
    let port = port.map_or(Ok(PORT), |port| port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong))?;
    Ok((host.into(), port))
}

const AFTER_HELP: &str = "\
Exit codes: 0 all files arrived and are verified, 1 they did not or it was stopped, 2 the command is wrong.

Examples:
  barograph send photos notes.txt brg://192.0.2.7:4000/…
  barograph send photos north.example.net --authorities ca.pem";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_with_and_without_ports() {
        for (text, host, port) in [
            ("north", "north", PORT),
            ("north:4000", "north", 4000),
            ("192.0.2.7:4000", "192.0.2.7", 4000),
            ("2001:db8::7", "2001:db8::7", PORT),
            ("[2001:db8::7]", "2001:db8::7", PORT),
            ("[2001:db8::7]:4000", "2001:db8::7", 4000),
        ] {
            assert_eq!(host_and_port(text), Ok((host.into(), port)), "{text}");
        }
        for bad in ["", ":1", "a:", "a:0", "a:65536", "a:b", "[::1", "[]:1", "[::1]4000", "a b", "dir/file"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
