//! `barograph forecast`: forecasts the next value of a series in a file, on a pipe or at a station,
//! with its error.

pub(crate) mod horizon;
mod number;
mod print;
mod quantiles;
mod rows;
mod station;
mod summary;

use std::convert::Infallible;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barograph_forecast::{
    BatteryConfig, Forecaster, ForecasterConfig, Horizon, HorizonConfig, HorizonOf, Interval, LEVEL_RANGE,
    Preset, QuantileMethod, Rule,
};
use barograph_study::ForecastTarget;
use barograph_study::input::{Format, InputError, Sample, SeriesReader};
use barograph_study::plot::{PlotData, PlotLabels};
use barograph_study::units::parse_bytes;
use clap::ValueEnum;

use self::horizon::OfName;
use self::quantiles::Shares;
use crate::client::StationArgs;
use crate::exit;
use crate::problem::{Problem, draw, ended, is_same, shown};
use crate::series::SeriesName;

/// Arguments of `barograph forecast`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The series: CSV, JSON lines, numbers, or the output of ping; `-` is standard input.
    #[arg(value_name = "FILE|-", required_unless_present = "series")]
    pub(crate) file: Option<PathBuf>,
    /// Print the forecasts of a running station for this series instead; `barograph series` lists
    /// all.
    #[arg(long, value_name = "SOURCE/TARGET/QUANTITY", value_parser = SeriesName::parse)]
    #[arg(conflicts_with_all = ["file", "quantity", "column", "preset", "select", "steps", "plot", "unit", "lifetime", "weights"])]
    pub(crate) series: Option<SeriesName>,
    /// Read only the rows of this quantity, such as rtt, if the input has several quantities.
    #[arg(long, value_name = "Q")]
    pub(crate) quantity: Option<String>,
    /// Column of a CSV file with a header, or key of JSON lines, that has the values [default:
    /// value, the name of a quantity, or the only column with numbers].
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,
    /// Forecasting methods to use.
    #[arg(long, value_enum, default_value_t = PresetName::Full)]
    pub(crate) preset: PresetName,
    /// How the methods' forecasts are combined [default: blend for full and lean, two-level for nws
    /// and classic].
    #[arg(long, value_enum, value_name = "RULE")]
    pub(crate) select: Option<RuleName>,
    /// Print as CSV each value with the forecast that was made before the value was read.
    #[arg(long)]
    pub(crate) steps: bool,
    /// Level of the prediction interval around the median forecast, 0.01 to 0.999 [default: 0.9];
    /// with --steps, adds the columns lower and upper.
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub(crate) interval: Option<f64>,
    /// Also forecast quantiles: for each SHARE, 0.005 to 0.995, the number that this share of the
    /// values should be below. With --steps, adds a column for each, such as q0.1.
    #[arg(long, value_name = "SHARE,...", value_parser = quantiles::parse)]
    pub(crate) quantiles: Option<Shares>,
    /// Draw the series, its median forecasts and the interval around them as SVG; the series itself
    /// is never overwritten.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Unit of the values, for the drawing and the text.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = unit)]
    pub(crate) unit: String,
    /// Print JSON instead of text: one object, or with --steps one object a line. The keys lower
    /// and upper are the ends of the interval around the median forecast; level is the share of
    /// values that should lie inside the interval.
    #[arg(long)]
    pub(crate) json: bool,
    /// Forecast further ahead than the next value: the next N values, or a TIME such as 10m or 1h
    /// of a series with times. With --steps, each row has the forecast for the horizon that begins
    /// with the row's value.
    #[arg(long, value_name = "N|TIME", value_parser = horizon::parse, conflicts_with_all = ["weights", "plot"])]
    pub(crate) horizon: Option<Horizon>,
    /// What to forecast at the horizon.
    #[arg(long, value_enum, default_value_t = OfName::Mean, requires = "horizon")]
    pub(crate) of: OfName,
    /// Also forecast the mean of the next SECONDS; the older name of --horizon with a time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["steps", "horizon"])]
    pub(crate) lifetime: Option<f64>,
    /// Show the weight of each method in the forecast.
    #[arg(long, conflicts_with = "steps")]
    pub(crate) weights: bool,
    /// Also forecast the time that a transfer takes now in the direction of a series of goodputs: N
    /// bytes, such as 14600, 700MB or 1.5GB (powers of 1000), 64k or 1GiB (powers of 1024).
    #[arg(long, value_name = "N", value_parser = parse_bytes)]
    #[arg(help_heading = "Options with --series")]
    pub(crate) bytes: Option<u64>,
    #[command(flatten, next_help_heading = "Options with --series")]
    pub(crate) station: StationArgs,
}

/// [`Preset`] as a value of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PresetName {
    /// The 18 methods of the Network Weather Service 2.x
    Nws,
    /// The 8 methods of the Network Weather Service 1.x
    Classic,
    /// The methods that proved useful on real series
    Full,
    /// Eight of these methods, for very many series
    Lean,
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Self {
        match name {
            PresetName::Nws => Self::Nws,
            PresetName::Classic => Self::Classic,
            PresetName::Full => Self::Full,
            PresetName::Lean => Self::Lean,
        }
    }
}

impl PresetName {
    /// The chosen rule, else the default rule of the preset. In Python, `classic` has the default
    /// `two-selectors`.
    #[must_use]
    pub(crate) fn rule(self, select: Option<RuleName>) -> RuleName {
        match (select, self) {
            (Some(name), _) => name,
            (None, Self::Full | Self::Lean) => RuleName::Blend,
            (None, Self::Nws | Self::Classic) => RuleName::TwoLevel,
        }
    }
}

/// [`Rule`] as a value of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuleName {
    /// The best so far of sixteen selectors, which look back over different spans
    TwoLevel,
    /// The better so far of two selectors, by squared and by absolute error since the beginning
    #[value(alias = "flat")]
    TwoSelectors,
    /// A weighted combination of all methods
    Blend,
    /// The method with the least mean squared error so far, for both forecasts: the rule of the
    /// papers on the Network Weather Service
    Mse,
    /// The method with the least mean absolute error so far, for both forecasts
    Mae,
}

impl From<RuleName> for Rule {
    fn from(name: RuleName) -> Self {
        match name {
            RuleName::TwoLevel => Self::TwoLevel,
            RuleName::TwoSelectors => Self::TwoSelectors,
            RuleName::Blend => Self::Blend,
            RuleName::Mse => Self::LeastMse,
            RuleName::Mae => Self::LeastMae,
        }
    }
}

impl Args {
    /// The chosen rule, else the default rule of the preset.
    #[must_use]
    pub(crate) fn rule(&self) -> Rule {
        self.preset.rule(self.select).into()
    }

    /// The horizon to forecast besides the next value.
    #[must_use]
    pub(crate) fn target(&self) -> Option<ForecastTarget> {
        match self.lifetime {
            Some(seconds) => Some(ForecastTarget { horizon: Horizon::Seconds(seconds), of: HorizonOf::Mean }),
            None => self.horizon.map(|horizon| ForecastTarget { horizon, of: self.of.into() }),
        }
    }

    /// The chosen level, else the default.
    #[must_use]
    pub(crate) fn level(&self) -> f64 {
        self.interval.unwrap_or(Interval::DEFAULT_LEVEL)
    }
}

/// Forecasts a series. An error is one line on standard error.
///
/// The exit code is 0 on success, 1 when the output cannot be written or the station has no such
/// forecast, and 2 when the input is not a series.
#[must_use]
pub(crate) fn run(args: &Args) -> ExitCode {
    match (&args.series, &args.file) {
        (Some(series), _) => exit::code(station::run(args, series)),
        (None, _) if args.bytes.is_some() => exit::bad_input("--bytes needs --series"),
        (None, Some(file)) => ended(forecast(args, file)),
        (None, None) => exit::bad_input("pass a file or --series"),
    }
}

/// Opens the input and forecasts it.
fn forecast(args: &Args, file: &Path) -> Result<(), Problem> {
    let name = if file == Path::new("-") { "standard input".to_owned() } else { shown(file) };
    if file == Path::new("-") {
        // If standard input has no metadata, it is not a file, so the drawing cannot overwrite it.
        let input = io::stdin().as_fd().try_clone_to_owned().and_then(|input| File::from(input).metadata());
        if input.is_ok_and(|input| is_plot(args, &input)) {
            return Err(overwriting(&name));
        }
        return follow(args, &name, io::stdin().lock(), true);
    }
    let unopened = |error| Problem::unopened(&name, &error);
    let metadata = fs::metadata(file).map_err(unopened)?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(unopened(io::ErrorKind::IsADirectory.into()));
    }
    if is_plot(args, &metadata) {
        return Err(overwriting(&name));
    }
    let file = File::open(file).map_err(unopened)?;
    // Named pipes and devices are live, as standard input is.
    follow(args, &name, BufReader::with_capacity(BUFFER_BYTES, file), !kind.is_file())
}

/// Updates the battery with every value of `input`, and prints the steps or the answer.
///
/// With a `live` input, each row is printed at once, and a value that is not finite is skipped with
/// a warning. In a file such a value is an error, because the user can correct the file.
fn follow(args: &Args, name: &str, input: impl BufRead, live: bool) -> Result<(), Problem> {
    let level = args.level();
    let config = BatteryConfig { preset: args.preset.into(), rule: args.rule(), levels: vec![level] };
    let target = args.target();
    let shares = args.quantiles.clone().unwrap_or_default();
    let horizons = match target {
        Some(target) => vec![HorizonConfig::exact(target.horizon)],
        None if args.steps || args.json => Vec::new(),
        None => print::SUMMARY_HORIZONS.map(HorizonConfig::sampled).to_vec(),
    };
    let quantiles = (!shares.is_empty()).then_some(QuantileMethod::Blended);
    let config =
        ForecasterConfig { battery: config, horizons, quantiles, availability: true, transfers: false };
    let mut forecaster = Forecaster::new(&config).map_err(Problem::input)?;
    let pipe = PipeWriter { out: io::stdout().lock(), may_close: args.plot.is_some(), is_closed: false };
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, pipe);
    let mut plot_data = args.plot.as_ref().map(|_| PlotData::default());
    let reader =
        SeriesReader::new(input).of_quantity(args.quantity.as_deref()).of_column(args.column.as_deref());
    // A pipe may never end, so that its quantities cannot be listed.
    let mut reader = if live { reader } else { reader.listing_quantities() };
    let mut failures = 0;
    let mut last: Option<Sample> = None;

    if args.steps && !args.json {
        rows::header(&mut out, args.interval.is_some(), &shares)?;
        flush_if(live, &mut out)?;
    }
    while let Some(sample) = reader.next() {
        let sample = match sample {
            Ok(sample) => sample,
            Err(error) if live && error.is_recoverable() => {
                warn(name, &error);
                continue;
            }
            Err(error) => {
                out.flush()?;
                let is_unread = matches!(error, InputError::Io(_));
                return Err(Problem::of_series(name, error, is_unread));
            }
        };
        let is_time = matches!(args.horizon, Some(Horizon::Seconds(_)));
        if is_time && is_counted(reader.format()) {
            return Err(Problem::input("the input has no times; pass a number of values to --horizon"));
        }
        let observed = args.steps || plot_data.is_some();
        // If the input has no times, `time_s` is the number of values read.
        let issued = if observed {
            rows::Issued::before(&forecaster, target, level, &shares, sample.time_s)
        } else {
            None
        };
        failures += fail(&mut forecaster, reader.take_failures());
        forecaster.update_at(sample.value, sample.time_s)?;
        if let Some(plot_data) = &mut plot_data {
            plot_data.push(sample, issued.as_ref().map(|issued| (issued.median.value, issued.interval)));
        }
        if let (true, Some(issued)) = (args.steps, issued) {
            let row = rows::Row::new(sample, issued, args.interval.is_some());
            if args.json {
                row.json(&mut out)?
            } else {
                row.csv(&mut out)?
            }
            flush_if(live, &mut out)?;
        }
        last = Some(sample);
    }
    failures += fail(&mut forecaster, reader.take_failures());
    let unit = if args.unit.is_empty() { unit_of(reader.format()) } else { &args.unit };
    if let (Some(last), false) = (last, args.steps) {
        let input = print::Input { last, unit, is_counted: is_counted(reader.format()), failures };
        let answer = print::Answer::of(&forecaster, input, args);
        if args.json { answer.json(&mut out)? } else { answer.text(&mut out)? }
    }
    out.flush()?;
    if let (Some(path), Some(plot_data)) = (&args.plot, plot_data) {
        let file = Path::new(name).file_name().map_or(name.into(), |file| file.to_string_lossy());
        let labels = PlotLabels { title: &file, unit, level, timed: !is_counted(reader.format()) };
        draw(path, "the series", plot_data.svg(&labels))?;
    }
    Ok(())
}

/// Whether the input has no times, so that the time of a value is the number of values before it.
fn is_counted(format: Option<Format>) -> bool {
    !format.is_some_and(Format::is_timed)
}

/// The unit of the values, if the format decides it.
fn unit_of(format: Option<Format>) -> &'static str {
    match format {
        Some(Format::Ping | Format::PingTimed) => "ms",
        _ => "",
    }
}

/// Learns that measurements failed. Returns their number.
fn fail(forecaster: &mut Forecaster, failures: u64) -> u64 {
    (0..failures).for_each(|_| forecaster.fail());
    failures
}

/// Writer to standard output. If a drawing is made too, the program that reads standard output may
/// end early (`| head`), and the work continues.
struct PipeWriter<W> {
    out: W,
    may_close: bool,
    is_closed: bool,
}

impl<W: Write> Write for PipeWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Ok(bytes.len());
        }
        match self.out.write(bytes) {
            Err(error) if self.may_close && error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.out.flush() {
            Err(error) if self.may_close && error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            flushed => flushed,
        }
    }
}

/// Whether the drawing would overwrite the input.
fn is_plot(args: &Args, input: &Metadata) -> bool {
    input.is_file() && is_same(args.plot.as_deref(), input)
}

fn overwriting(name: &str) -> Problem {
    Problem::input(format_args!("{name}: is the series itself; pass another file to --plot"))
}

/// Warns that a value is skipped.
fn warn(name: &str, what: &dyn std::fmt::Display) {
    // Ignore errors: standard error may be closed, and the result of the command is the forecasts.
    let _ = writeln!(io::stderr(), "barograph: warning: {name}: {what}; skipped");
}

/// Flushes the output if a reader may wait for each row.
fn flush_if(live: bool, out: &mut impl Write) -> io::Result<()> {
    if live { out.flush() } else { Ok(()) }
}

/// Parses the level of an interval.
fn level(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(level) if LEVEL_RANGE.contains(&level) => Ok(level),
        _ => Err(format!("expected a number from {} to {}", LEVEL_RANGE.start(), LEVEL_RANGE.end())),
    }
}

/// Parses a unit; control characters are removed, so that the unit prints on one line.
pub(crate) fn unit(text: &str) -> Result<String, Infallible> {
    Ok(text.chars().filter(|character| !character.is_control()).collect())
}

/// Parses a length of time in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if Horizon::Seconds(seconds).checked().is_ok() => Ok(seconds),
        _ => Err(format!("expected a positive number of seconds, at most {}", Horizon::SECONDS_MAX)),
    }
}

/// Size of a file buffer, in bytes: large enough that few system calls are needed.
const BUFFER_BYTES: usize = 64 * 1024;

const EXAMPLES: &str = "Examples:
  barograph forecast rtt.csv --unit ms --plot rtt.svg
  tail -f rtt.csv | barograph forecast - --steps";
