//! Test: the tables of `docs/limits.md` are equal to those made from the constants.

use barograph_engine::LocalConfig;
use barograph_probe::io::ResponderLimits;

use super::{member_quota, unread};
use crate::api::heavy;
use crate::config::{Config, EchoConfig};
use crate::echo;
use crate::forecast::series::MEMBER_SHARE;
use crate::mesh::members::MEMBERS_MAX;
use barograph_limits::admission::{
    ADDRESS_DIVISOR, ANONYMOUS_DIVISOR, HEAD_OF_ANONYMOUS, HEAD_OF_AUTHENTICATED, LOCAL_DIVISOR,
};
use barograph_limits::credentials;

#[test]
fn the_documented_limit_tables_match_the_code() {
    let document = include_str!("../../../../docs/limits.md");
    for table in [callers(), members()] {
        assert!(document.contains(&table), "docs/limits.md does not contain this table:\n{table}");
    }
}

/// Table of the limits for any caller.
fn callers() -> String {
    let (config, echo, probe) = (Config::default(), EchoConfig::default(), ResponderLimits::default());
    let of = |max: usize| [max / ADDRESS_DIVISOR, max / ANONYMOUS_DIVISOR, max];
    let [one, anonymous, all] = of(config.connections_max);
    let here = config.connections_max / LOCAL_DIVISOR;
    let minutes = |ms: u64| ms / 60_000;
    let rows = [
        [
            "connections".into(),
            format!("{one}"),
            format!("{all}: {anonymous} of anonymous callers, {here} kept for this host"),
            "`limits.connections_max`".into(),
        ],
        [
            "time to the first head of a request".into(),
            format!(
                "{} s, {} s once it is authenticated",
                HEAD_OF_ANONYMOUS.as_secs(),
                HEAD_OF_AUTHENTICATED.as_secs()
            ),
            "–".into(),
            String::new(),
        ],
        [
            "live streams".into(),
            format!("{}", of(config.streams_max)[0]),
            format!("{}", config.streams_max),
            "`limits.streams_max`".into(),
        ],
        [
            "large reads being made, of the forecasts and of the archive each".into(),
            "1; of its network 1, and 1 of authenticated callers".into(),
            format!(
                "{}: {} for other hosts, {} for anonymous callers",
                heavy::AT_ONCE,
                heavy::AT_ONCE - 1,
                heavy::AT_ONCE - 2
            ),
            String::new(),
        ],
        [
            "bytes of large answers not read yet".into(),
            format!("{} MiB for its network, or for all addresses of one station", unread::SHARE_MAX >> 20),
            format!("{} MiB: {} of anonymous callers", unread::BYTES_MAX >> 20, unread::ANONYMOUS_MAX >> 20),
            String::new(),
        ],
        [
            "wrong credentials".into(),
            format!(
                "from the {}th in a minute of its network each waits, {} s at most",
                credentials::FREE_FAILURES as u64 + 1,
                credentials::DELAY_MAX.as_secs()
            ),
            "–".into(),
            String::new(),
        ],
        [
            "probe sessions".into(),
            format!(
                "{}; {} signed by one station",
                probe.sessions_per_peer_max, probe.sessions_per_caller_max
            ),
            format!("{}", probe.sessions_max),
            String::new(),
        ],
        [
            "sessions of browser pages (echo)".into(),
            format!("{}", of(echo.sessions_max)[0]),
            format!("{}", echo.sessions_max),
            "`echo.sessions_max`".into(),
        ],
        [
            "transfers of browser pages at once".into(),
            format!(
                "{}; of its network {}",
                echo.transfers_max / echo::TRANSFERS_SHARE,
                echo.transfers_max / 2
            ),
            format!(
                "{}: {} kept for this host",
                echo.transfers_max,
                echo.transfers_max / echo::TRANSFERS_SHARE
            ),
            "`echo.transfers_max`".into(),
        ],
        [
            "bytes of browser pages".into(),
            format!("{} GiB an hour", echo.peer_bytes_per_hour >> 30),
            format!("{} GiB an hour", echo.bytes_per_hour >> 30),
            "`echo.peer_bytes_per_hour`, `echo.bytes_per_hour`".into(),
        ],
        [
            "time that transfers of browser pages mark as loaded".into(),
            format!("{} min an hour", minutes(echo::PEER_MARKED_MS_PER_HOUR)),
            format!("{} min an hour", minutes(echo::MARKED_MS_PER_HOUR)),
            String::new(),
        ],
    ];
    table(["what", "one address", "all", "setting"], &rows)
}

/// Table of the further limits for a member of a mesh over HTTP.
fn members() -> String {
    let config = Config::default();
    let archive = LocalConfig::new(std::path::Path::new("archive"));
    let archive = LocalConfig {
        series_max: archive.series_max.max(2 * config.series_max),
        keep_bytes: config.keep_bytes,
        ..archive
    };
    let rows = [
        ["members".into(), format!("{MEMBERS_MAX} in all"), String::new()],
        [
            "streams open".into(),
            format!(
                "{}: {} of them subscriptions",
                member_quota::STREAMS_MAX,
                member_quota::SUBSCRIPTIONS_MAX
            ),
            String::new(),
        ],
        [
            "other requests at once".into(),
            format!(
                "{}; pages of the archive are made {} at a time",
                member_quota::REQUESTS_MAX,
                member_quota::READS_MAX
            ),
            String::new(),
        ],
        [
            "records appended".into(),
            format!("{} a second, after {}", member_quota::RECORDS_PER_S, member_quota::RECORDS_BURST),
            String::new(),
        ],
        [
            "bytes appended".into(),
            format!(
                "{} KiB a second, after {} MiB",
                member_quota::BYTES_PER_S / 1024,
                member_quota::BYTES_BURST >> 20
            ),
            String::new(),
        ],
        [
            "registrations".into(),
            format!(
                "{} a second, after {}",
                member_quota::REGISTRATIONS_PER_S,
                member_quota::REGISTRATIONS_BURST
            ),
            String::new(),
        ],
        [
            "series with a forecast".into(),
            format!("what it needs, else {} of what others leave", config.series_max / MEMBER_SHARE),
            "`limits.series_max`".into(),
        ],
        [
            "series in the archive".into(),
            format!("{} of {}", archive.series_of_member(), archive.series_max),
            "`limits.series_max`".into(),
        ],
        [
            "space in a full archive: the largest origins lose their oldest records first".into(),
            format!("at least {} MiB ÷ number of origins", archive.kept_bytes_min() >> 20),
            "`archive.keep_bytes`".into(),
        ],
        [
            "records that wait for the disk, of all members".into(),
            format!("{}", config.spool_records_max / 2),
            "`limits.spool_records_max`".into(),
        ],
    ];
    table(["what", "one member", "setting"], &rows)
}

fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(N));
    let rows = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    line(head.to_vec()) + &rule + &rows.collect::<String>()
}
