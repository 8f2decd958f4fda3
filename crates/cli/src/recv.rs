//! `barograph recv`: receives files, and prints the command that sends them.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_study::units::{format_count, parse_bytes};
use barograph_transfer::files::{DestinationConfig, RESERVED_PREFIX};
use barograph_transfer::io::ReceiveEvent;
use barograph_transfer::io::identity::{Fingerprint, Identity};
use barograph_transfer::io::{ReceiveConfig, ReceiveServer};
use rustix::fs::{Access, access};
use serde_json::json;

use crate::addresses::{interfaces, reachable};
use crate::exit::{bad_input, eprint_line, failed, print_line};
use crate::transfer::failure::TransferFailure;
use crate::transfer::options::{self, IdentityArgs, PORT, parse_fingerprint};
use crate::transfer::progress::TransferRole;
use crate::transfer::show::{OutputOptions, TransferOutput};

/// Arguments of `barograph recv`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Directory for the received files
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Create DIR if it does not exist
    #[arg(long)]
    create: bool,
    /// Exit after one successful transfer
    #[arg(long)]
    once: bool,
    /// Address to listen on (TCP); port 0 lets the system choose, and the default port is 10133
    /// [default: [::]:0, both families]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// UDP ports for data, one for each concurrent transfer; the firewall must let packets to these
    /// ports through [default: any]
    #[arg(long, value_name = "A-B", value_parser = parse_ports)]
    udp_ports: Option<RangeInclusive<u16>>,
    /// Name or address of this host in the receiver address [default: all its addresses]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Replace files that exist already
    #[arg(long)]
    replace: bool,
    /// Accept symbolic links; a link that leads out of DIR is never followed
    #[arg(long)]
    links: bool,
    /// Maximum bytes of a transfer, such as 10GB or 1GiB; each name counts as 4 KiB or more
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    quota: Option<u64>,
    /// Maximum number of files, directories and links of a transfer [default: 1048576]
    #[arg(long, value_name = "N")]
    max_files: Option<u64>,
    /// Accept senders that have the key of this certificate (SHA-256), without the receiver
    /// address; may be repeated
    #[arg(long, value_name = "FINGERPRINT", value_parser = parse_fingerprint, conflicts_with = "authorities")]
    allow: Vec<Fingerprint>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Let senders with --clear send without encryption: faster, but readable by anyone on the path
    #[arg(long)]
    clear: bool,
    /// Print one JSON object a line (docs/guide/move-files-more.md)
    #[arg(long)]
    json: bool,
    /// Show neither progress nor summaries; the receiver address is still printed
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let output = Arc::new(TransferOutput::new(OutputOptions {
        is_json: args.json,
        is_quiet: args.quiet,
        is_numbered: true,
        role: TransferRole::default(),
    }));
    let identity = match identity(args) {
        Ok(identity) => identity,
        Err(message) => return bad_input(message),
    };
    let fingerprint = identity.fingerprint().to_string();
    let config = match config(args, identity) {
        Ok(config) => config,
        Err(message) => return bad_input(message),
    };
    // Handle signals before the receiver starts, so that no signal during start-up is unhandled.
    let stop = match options::stop_on_signal(&output) {
        Ok(stop) => stop,
        Err(error) => return failed(format!("cannot handle signals: {error}")),
    };
    let host = match ReceiveServer::bind(config) {
        Ok(host) => host,
        Err(error) => return failed(TransferFailure::of(&error).message),
    };
    if args.clear {
        output.message(options::CLEAR);
    }
    print_address(args, &host, &fingerprint, &output);
    let has_stopped_some = AtomicBool::new(false);
    let on_event = |number: u64, event: ReceiveEvent| match event {
        ReceiveEvent::Transfer(event) => output.event(number, &event),
        ReceiveEvent::Done(summary) => output.done(number, &summary),
        ReceiveEvent::Failed(error) => {
            let failure = TransferFailure::of(&error);
            if failure.code == "stopped" && stop.load(Ordering::SeqCst) {
                has_stopped_some.store(true, Ordering::SeqCst);
            }
            output.failed(number, &failure);
        }
        _ => {}
    };
    let ended = host.run(args.once, &stop, &on_event);
    match ended {
        Ok(()) if has_stopped_some.load(Ordering::SeqCst) => ExitCode::from(1),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(TransferFailure::of(&error).message),
    }
}

/// Prints the command that sends files, once for each address at which other hosts may reach this
/// host.
fn print_address(args: &Args, host: &ReceiveServer, fingerprint: &str, output: &TransferOutput) {
    let address = host.local_addr();
    let kept = unfinished(&args.directory);
    let names = args.host.clone().map_or_else(|| reachable(address, &interfaces()), |name| vec![name]);
    let lines: Vec<String> = names.iter().map(|name| host.receiver_address(name).to_string()).collect();
    output.json_event(|| {
        let directory = args.directory.display().to_string();
        json!({ "event": "listening", "address": address.to_string(), "directory": directory,
                "fingerprint": fingerprint, "lines": lines, "unfinished": kept })
    });
    if args.json {
        return;
    }
    if kept > 0 {
        let them = format_count(kept, "unfinished transfer", "unfinished transfers");
        let shown = crate::client::printable(&args.directory.display().to_string());
        output.message(format_args!(
            "{shown} has {them}, interrupted or running in another `barograph recv`. Run the same `barograph send` again to \
             resume; to discard them, stop every other recv and remove {}/{RESERVED_PREFIX}*",
            quoted(&shown)
        ));
    }
    let one_of = if lines.len() == 1 { "" } else { " the first of these commands that connects" };
    output.message(format_args!(
        "receiving into {} on port {}; press Ctrl-C to stop. On the sending host, run{one_of}:",
        crate::client::printable(&args.directory.display().to_string()),
        address.port()
    ));
    for line in lines {
        // If standard output is closed, continue: senders may have the address already.
        print_line(format_args!("barograph send PATH… {line}"));
    }
    if !args.allow.is_empty() || args.identity.authorities.is_some() {
        output.message(format_args!(
            "or, with an accepted certificate: barograph send PATH… HOST:{} --pin {fingerprint}",
            address.port()
        ));
    }
}

/// Quotes a text as one word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Number of unfinished transfers in `directory`, including those that another `recv` receives now.
fn unfinished(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_one = |name: &OsStr| name.as_encoded_bytes().starts_with(RESERVED_PREFIX.as_bytes());
    entries.filter(|entry| is_one(&entry.file_name())).count() as u64
}

/// The identity of `--identity`, else a new identity for this run.
fn identity(args: &Args) -> Result<Identity, String> {
    let given = args.identity.identity(eprint_line)?;
    given.map_or_else(|| Identity::fresh().map_err(|error| error.to_string()), Ok)
}

fn config(args: &Args, identity: Identity) -> Result<ReceiveConfig, String> {
    let shown = args.directory.display();
    if args.create {
        std::fs::create_dir_all(&args.directory).map_err(|error| {
            format!("cannot create {shown}: {}", barograph_study::input::io_message(&error))
        })?;
    }
    match std::fs::metadata(&args.directory) {
        // Check permissions now, so that the user gets the error, not the first sender.
        Ok(metadata) if metadata.is_dir() => access(&args.directory, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| {
                format!("cannot write to {shown}: {}", barograph_study::input::io_message(&error.into()))
            })?,
        Ok(_) => return Err(format!("{shown} is not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!("{shown} does not exist; pass --create to create it"));
        }
        Err(error) => {
            return Err(format!("cannot use {shown}: {}", barograph_study::input::io_message(&error)));
        }
    }
    let usual = DestinationConfig::default();
    let destination = DestinationConfig {
        bytes_max: args.quota.unwrap_or(usual.bytes_max),
        entries_max: args.max_files.unwrap_or(usual.entries_max),
        replace: args.replace,
        links: args.links,
        ..usual
    };
    Ok(ReceiveConfig {
        at: args.listen.unwrap_or(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)),
        udp_ports: args.udp_ports.clone(),
        directory: args.directory.clone(),
        destination,
        // If the identity is permanent, use its token, so that the receiver address stays the same
        // after a restart.
        token: args.identity.identity.as_ref().map(|_| identity.token()),
        identity: Some(identity),
        trust: args.identity.trust(&args.allow)?,
        allow_unencrypted: args.clear,
        transfers_max: TRANSFERS_MAX,
        portable: false,
    })
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let alone = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    text.parse().or_else(|_| alone.map(|ip| SocketAddr::new(ip, PORT))).map_err(|_| {
        "expected an address and a port such as 0.0.0.0:4000 or [::]:4000, or an address alone".into()
    })
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("expected one port or a range such as 40000-40007, found {text}");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(wrong);
    let (first, last) = (port(first)?, port(last)?);
    if first <= last { Ok(first..=last) } else { Err(wrong()) }
}

/// Maximum number of concurrent transfers. Concurrent transfers share the same disk and path, and
/// each transfer needs threads and memory of its own.
const TRANSFERS_MAX: usize = 8;

const AFTER_HELP: &str = "\
Exit codes: 0 stopped without a transfer under way, or --once and it succeeded; 1 failed, or stopped during a \
transfer; 2 the command is wrong.

Examples:
  barograph recv ~/incoming --create
  barograph recv /srv/incoming --once --listen 0.0.0.0:4000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_may_omit_the_port() {
        for (text, address) in [
            ("[::]:0", "[::]:0"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("0.0.0.0", "0.0.0.0:10133"),
            ("::", "[::]:10133"),
            ("[::1]", "[::1]:10133"),
        ] {
            assert_eq!(parse_listen(text).map(|address| address.to_string()), Ok(address.into()), "{text}");
        }
        for bad in ["", "here", "here:1", "127.0.0.1:", ":1", "[::]:65536"] {
            assert!(parse_listen(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_shell_reads_quoted_text_as_one_word() {
        assert_eq!(quoted("/a b/$(c)"), "'/a b/$(c)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn ports_are_a_single_port_or_a_range() {
        assert_eq!(parse_ports("40000-40007"), Ok(40_000..=40_007));
        assert_eq!(parse_ports("40000"), Ok(40_000..=40_000));
        for bad in ["", "0", "2-1", "1-", "-1", "1-65536", "a-b"] {
            assert!(parse_ports(bad).is_err(), "{bad}");
        }
    }
}
