//! The first line of the answer of `barograph forecast`: the forecasts, and how sure they are.

use barograph_forecast::{Horizon, HorizonOf};
use barograph_study::ForecastTarget;

use super::horizon::UNITS;
use super::number::Short;
use super::rows::Ends;

/// Names what is forecast, as the beginning of a sentence; `None` is the next value.
pub(super) fn label(target: Option<ForecastTarget>) -> String {
    let Some(ForecastTarget { horizon, of }) = target.filter(|target| target.horizon != Horizon::Steps(1))
    else {
        return "Next".to_owned();
    };
    let (number, unit) = match horizon {
        Horizon::Steps(steps) => (f64::from(steps), "value"),
        Horizon::Seconds(seconds) => {
            let is_whole = |(_, _, length): &(char, &str, f64)| (seconds / length).fract() == 0.0;
            let unit = UNITS.into_iter().rev().find(is_whole);
            unit.map_or((seconds, "second"), |(_, name, length)| (seconds / length, name))
        }
    };
    let plural = if number == 1.0 { "" } else { "s" };
    match of {
        HorizonOf::Mean if number == 1.0 => format!("Next {unit}"),
        HorizonOf::Mean => format!("Next {} {unit}{plural}", Short(number)),
        HorizonOf::Value => format!("In {} {unit}{plural}", Short(number)),
    }
}

/// A sentence with a forecast and the interval around it. `scored` is the progress of the
/// calibration.
pub(super) fn sentence(label: &str, value: f64, unit: &str, level: f64, ends: Ends, scored: &str) -> String {
    let Ends { lower: Some(lower), upper: Some(upper) } = ends else {
        return format!("{label}: {}{unit} (no interval yet: {scored} forecasts scored).", Short(value));
    };
    let [value, lower_text, upper_text] = rounded([value, lower, upper], upper - lower);
    // A dash could be read as the sign of a number.
    let to = if lower < 0.0 { " to " } else { "–" };
    format!("{label}: {value}{unit} ({} %: {lower_text}{to}{upper_text}).", Short(level * 100.0))
}

/// The numbers with so many digits that `width` has two: more would be noise.
fn rounded(numbers: [f64; 3], width: f64) -> [String; 3] {
    let most = numbers.into_iter().fold(0.0, |most: f64, number| most.max(number.abs()));
    let decimals = 1.0 - width.log10().floor();
    if !(-8.0..=9.0).contains(&decimals) || !(1e-4..1e9).contains(&most) {
        return numbers.map(|number| Short(number).to_string());
    }
    let (unit, digits) = (10_f64.powf((-decimals).max(0.0)), decimals.max(0.0) as usize);
    numbers.map(|number| {
        let text = format!("{:.digits$}", (number / unit).round_ties_even() * unit);
        let text = if unit == 1.0 { format!("{number:.digits$}") } else { text };
        // Not −0.
        if text.trim_start_matches('-').bytes().all(|byte| matches!(byte, b'0' | b'.')) {
            return text.trim_start_matches('-').to_owned();
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_digits_of_the_width_of_the_interval() {
        for (numbers, expected) in [
            ([31.66, 31.03, 32.41], ["31.7", "31.0", "32.4"]),
            ([19.3449, 19.0359, 19.6539], ["19.34", "19.04", "19.65"]),
            ([8_234_567.0, 8_012_345.0, 8_261_000.0], ["8230000", "8010000", "8260000"]),
            ([0.02, -0.0001, 0.3], ["0.02", "0.00", "0.30"]),
            ([5.5, 5.5, 5.5], ["5.5", "5.5", "5.5"]),
            ([2e9, 1e9, 3e9], ["2.000e9", "1.000e9", "3.000e9"]),
            ([0.0, 0.0, 1e-200], ["0", "0", "1.000e-200"]),
        ] {
            assert_eq!(rounded(numbers, numbers[2] - numbers[1]), expected);
        }
        let ends = Ends { lower: Some(-3.0), upper: Some(4.0) };
        assert_eq!(sentence("Next", 1.0, " ms", 0.9, ends, ""), "Next: 1.0 ms (90 %: -3.0 to 4.0).");
        let ends = Ends { lower: None, upper: None };
        let young = "Next: 1 (no interval yet: 3 of 10 forecasts scored).";
        assert_eq!(sentence("Next", 1.0, "", 0.9, ends, "3 of 10"), young);
    }

    #[test]
    fn horizons_have_the_largest_unit_that_divides_them() {
        let name = |horizon, of| label(Some(ForecastTarget { horizon, of }));
        for (horizon, mean, value) in [
            (Horizon::Steps(1), "Next", "Next"),
            (Horizon::Steps(30), "Next 30 values", "In 30 values"),
            (Horizon::Seconds(3600.0), "Next hour", "In 1 hour"),
            (Horizon::Seconds(600.0), "Next 10 minutes", "In 10 minutes"),
            (Horizon::Seconds(5400.0), "Next 90 minutes", "In 90 minutes"),
            (Horizon::Seconds(172_800.0), "Next 2 days", "In 2 days"),
            (Horizon::Seconds(1.0), "Next second", "In 1 second"),
            (Horizon::Seconds(0.5), "Next 0.5 seconds", "In 0.5 seconds"),
        ] {
            assert_eq!([name(horizon, HorizonOf::Mean), name(horizon, HorizonOf::Value)], [mean, value]);
        }
        assert_eq!(label(None), "Next");
    }
}
