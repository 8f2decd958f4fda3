//! `barograph best`: ranks hosts by the forecast time to send them a number of bytes.

use std::process::ExitCode;

use barograph_api::{HostForecast, HostRanking, QuantityForecast};
use barograph_forecast::Interval;
use barograph_probe::percent;
use barograph_study::units::{format_age, format_seconds, parse_bytes};

use crate::client::{Client, StationArgs, printable};
use crate::exit::{self, Failure, print_line};

/// Arguments of `barograph best`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Host that sends the bytes [default: the station itself]
    #[arg(long, value_name = "HOST")]
    from: Option<String>,
    /// Hosts and groups to choose from, separated by commas
    #[arg(long, value_name = "GROUP|HOST", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// Number of bytes to send, such as 14600, 700MB or 1.5GB (powers of 1000), 64k or 1GiB (powers
    /// of 1024)
    #[arg(long, visible_alias = "size", value_name = "N", value_parser = parse_bytes)]
    bytes: u64,
    /// Print the station's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.station)?;
    let from = args.from.as_deref().map_or(String::new(), |from| format!("&from={}", percent::encode(from)));
    let path = format!("/v1/best?to={}&bytes={}{from}", percent::encode(&args.to.join(",")), args.bytes);
    let answer = client.get(&path)?;
    let best: HostRanking = answer.read();
    if args.json {
        print_line(answer)
    } else {
        print_line(shown(&best))
    };
    if best.hosts.is_empty() {
        return Err(Failure::Failed("No forecast yet for these hosts".into()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer as text: the best host, a table with a bar for each interval, and the hosts without a
/// forecast.
fn shown(answer: &HostRanking) -> String {
    let mut lines = Vec::new();
    let close: Vec<String> = answer.too_close_to_call.iter().map(|host| printable(host)).collect();
    if let Some(best) = &answer.best {
        lines.push(format!("best: {}", printable(best)));
    } else if !close.is_empty() {
        lines.push(format!("too close to call: {}", close.join(", ")));
    }
    if !answer.hosts.is_empty() {
        lines.push(table(&answer.hosts));
    }
    for one in &answer.unknown {
        lines.push(format!("{}: no forecast: {}", printable(&one.host), printable(&one.reason)));
    }
    lines.join("\n")
}

fn table(hosts: &[HostForecast]) -> String {
    let longest = |time: fn(&HostForecast) -> f64| hosts.iter().map(time).fold(0.0, f64::max);
    let axis = (
        hosts.iter().map(|host| host.lower).fold(f64::INFINITY, f64::min),
        // Limit the axis, so that one very long interval does not make all others too short to
        // read.
        longest(|host| host.upper).min(AXIS * longest(|host| host.forecast)),
    );
    let level = format!("{:.0} % INTERVAL", 100.0 * Interval::DEFAULT_LEVEL);
    let mut rows = vec![["HOST", "TIME", level.as_str(), "", "LOSS", "BASIS"].map(String::from)];
    for host in hosts {
        rows.push([
            printable(&host.host),
            format_seconds(host.forecast),
            interval(host),
            bar([host.lower, host.forecast, host.upper], axis),
            loss(host),
            basis(host),
        ]);
    }
    exit::table(&rows)
}

/// The ends of the interval, and whether they are a guess so far.
fn interval(host: &HostForecast) -> String {
    let calibrating = if host.is_calibrating { " (calibrating)" } else { "" };
    format!("{} to {}{calibrating}", format_seconds(host.lower), format_seconds(host.upper))
}

/// A bar such as `  ├──●────┤ ` on a logarithmic axis; it ends with `>` if the interval continues
/// beyond the axis.
fn bar([lower, value, upper]: [f64; 3], (first, last): (f64, f64)) -> String {
    let column = |time: f64| {
        let share = (time / first).ln() / (last / first).ln();
        // If all times are equal, the axis has length 0, and `share` is not finite.
        if share.is_finite() { (share.clamp(0.0, 1.0) * (BAR - 1) as f64).round() as usize } else { 0 }
    };
    let (from, at, until) = (column(lower), column(value), column(upper));
    let glyph = |i: usize| match i {
        _ if i == at => '●',
        _ if i == until && last < upper => '>',
        _ if i == from => '├',
        _ if i == until => '┤',
        _ if from < i && i < until => '─',
        _ => ' ',
    };
    (0..BAR).map(glyph).collect()
}

/// Basis of the forecast: measurements of the pair itself, or the hosts on the composed path.
fn basis(host: &HostForecast) -> String {
    let part = |part: Option<&QuantityForecast>, name: &str| {
        let Some(part) = part else { return format!("{name} unknown") };
        let via: Vec<String> = part.via.iter().flatten().map(|host| printable(host)).collect();
        if via.is_empty() {
            let ago = part.age_s.map_or(String::new(), |age_s| format!(", {} ago", format_age(age_s)));
            let ahead = part
                .ahead_s
                .map_or(String::new(), |ahead_s| format!(", labelled {} in the future", format_age(ahead_s)));
            format!("{name} measured{ago}{ahead}")
        } else {
            format!("{name} composed: {}", via.join(" → "))
        }
    };
    let loss = host.loss.as_ref().map_or(String::new(), |loss| format!("; {}", part(Some(loss), "loss")));
    format!("{}; {}{loss}", part(host.goodput.as_ref(), "goodput"), part(Some(&host.rtt), "rtt"))
}

/// Text with the forecast share of lost datagrams, and the upper end of the interval, rounded up.
fn loss(host: &HostForecast) -> String {
    let Some(loss) = &host.loss else { return "?".into() };
    // Subtract 1e-9, so that a rounding error of a double does not raise the last digit.
    let upper = (1e3 * loss.upper - 1e-9).ceil().max(0.0);
    format!("{:.1} % (to {:.1} %)", (1e3 * loss.forecast).round() / 10.0, upper / 10.0)
}

/// Width of a bar, in characters.
const BAR: usize = 24;

/// Maximum end of the axis, as a multiple of the longest forecast. If all intervals end before that
/// time, the axis ends at the largest upper end of an interval.
const AXIS: f64 = 4.0;

const EXAMPLES: &str = "Examples:
  barograph best --to south,west --bytes 700MB
  barograph best --to local:paris --bytes 1GiB --from south";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn answer() -> HostRanking {
        let answer = serde_json::json!({
            "from": "h", "bytes": 1000, "level": 0.9, "best": null, "too_close_to_call": ["a", "b"],
            "hosts": [
                {"host": "a", "forecast": 1.0, "lower": 0.5, "upper": 2.0, "is_close": true, "basis": "measured",
                 "loss": {"forecast": 0.004, "lower": 0.0, "upper": 0.1, "basis": "measured", "age_s": 9.0},
                 "rtt": {"forecast": 0.01, "lower": 0.01, "upper": 0.01, "basis": "measured", "age_s": 4.0},
                 "goodput": {"forecast": 1e6, "lower": 1e6, "upper": 1e6, "basis": "measured", "age_s": 600.0}},
                {"host": "b\u{1b}[2J", "forecast": 1.2, "lower": 0.6, "upper": 900.0, "is_close": true, "basis": "composed",
                 "is_calibrating": true,
                 "rtt": {"forecast": 0.01, "lower": 0.01, "upper": 0.01, "basis": "measured", "age_s": 4.0},
                 "goodput": {"forecast": 1e6, "lower": 1e6, "upper": 1e6, "basis": "composed", "via": ["h", "x", "b"]}}],
            "unknown": [{"host": "c", "reason": "its lease has ended (lost)"}]
        });
        serde_json::from_value(answer).unwrap()
    }

    #[test]
    fn the_output_has_a_verdict_a_table_and_the_unknown_hosts() {
        let text = shown(&answer());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!(lines[0], "too close to call: a, b");
        assert!(lines[2].starts_with("a") && lines[2].contains("1.00 s  500 ms to 2.00 s"), "{text}");
        assert!(lines[2].ends_with(
            "  0.4 % (to 10.0 %)  goodput measured, 10 min ago; rtt measured, 4 s ago; loss measured, 9 s ago"
        ));
        assert!(lines[3].contains("goodput composed: h → x → b; rtt measured"), "{text}");
        assert!(lines[3].contains("600 ms to 15.0 min (calibrating)"), "{text}");
        let mut ahead = answer();
        ahead.hosts[0].rtt.ahead_s = Some(3600.0);
        ahead.hosts[0].goodput =
            Some(QuantityForecast { ahead_s: Some(60.0), ..QuantityForecast::default() });
        let text = shown(&ahead);
        let basis = "goodput measured, labelled 60 s in the future; rtt measured, 4 s ago, labelled 60 min in the future";
        assert!(text.contains(basis), "{text}");
        assert!(lines[3].contains(r"b\u{1b}[2J") && lines[3].contains('>'), "{text}");
        assert_eq!(lines[4], "c: no forecast: its lease has ended (lost)");
        assert_eq!(shown(&HostRanking::default()), "");
    }

    #[test]
    fn a_loss_interval_is_rounded_up_and_never_ends_below_the_forecast() {
        let shown = |forecast: f64, upper: f64| {
            let part = QuantityForecast { forecast, upper, ..QuantityForecast::default() };
            loss(&HostForecast { loss: Some(part), ..HostForecast::default() })
        };
        assert_eq!(shown(0.004, 0.004), "0.4 % (to 0.4 %)");
        assert_eq!(shown(0.0044, 0.0044), "0.4 % (to 0.5 %)");
        assert_eq!(shown(0.0, 0.3), "0.0 % (to 30.0 %)");
        assert_eq!(shown(0.07, 0.7), "7.0 % (to 70.0 %)");
    }

    #[test]
    fn a_bar_shows_where_the_interval_lies() {
        assert_eq!(bar([1.0, 10.0, 100.0], (1.0, 100.0)), "├───────────●──────────┤");
        assert!(bar([1.0, 1.0, 1.0], (1.0, 1.0)).starts_with('●'));
        assert_eq!(bar([f64::NAN; 3], (1.0, 2.0)).chars().count(), BAR);
    }
}
