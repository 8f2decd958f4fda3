//! How accuracy depends on the length of a window.

use std::collections::BTreeSet;

use barograph_loss::{Cause, Labelled, Meter};

use crate::forecast::report::aligned;

use super::judge::{Judged, Method, Models, Split};
use super::rates::rates;
use super::tables::{Kinds, cause_name, cell, is_in_range};
use super::windows::Run;

/// Windows of each of [`LENGTHS`] cut from whole runs, judged by these models or by some that were fitted on windows of all lengths of other runs.
pub(crate) fn table(runs: &[Run], models: Option<&Models>, seed: u64) -> anyhow::Result<String> {
    let (mut windows, mut meter): (Vec<Labelled>, _) = (Vec::new(), Meter::new());
    for (run, length) in runs.iter().flat_map(|run| LENGTHS.map(|length| (run, length))) {
        run.cut(length, &mut meter, |window| windows.push(window))?;
    }
    windows.retain(|window| window.cause != Cause::Unknown && Kinds::All.has(&window.kind));
    let (judged, by) = match models {
        Some(models) => (models.judge(&windows), "by models that were not fitted here"),
        None => (Split::Five.judge(&windows, seed)?, Split::Five.name()),
    };
    let methods = [Method::Paper, Method::Pattern, Method::Burst];
    let mut table =
        vec![["packets", "cause", "windows (runs)", "losses, median"].map(str::to_owned).to_vec()];
    table[0].extend(methods.map(|method| method.name().to_owned()));
    for (length, cause) in
        LENGTHS.into_iter().flat_map(|length| [Cause::Host, Cause::Network].map(|cause| (length, cause)))
    {
        let of: Vec<&Judged<'_>> = judged
            .iter()
            .filter(|judged| judged.window.signature.packets() == length && judged.window.cause == cause)
            .filter(|judged| is_in_range(judged.window))
            .collect();
        let mut lost: Vec<u32> = of.iter().map(|judged| judged.window.metrics.lost).collect();
        lost.sort_unstable();
        let of_runs: BTreeSet<&str> = of.iter().map(|judged| judged.window.run.as_str()).collect();
        let mut row = vec![
            length.to_string(),
            cause_name(cause).to_owned(),
            format!("{} ({})", of.len(), of_runs.len()),
            lost.get(lost.len() / 2).map_or("–".to_owned(), u32::to_string),
        ];
        row.extend(methods.map(|method| cell(rates(&of, method, seed).as_ref())));
        table.push(row);
    }
    Ok(format!(
        "\n## Length of the window\n\nCut from whole runs, all kinds but outage, loss 0.00008–0.05, {by}; % right [95 % interval over runs] / \
         wrong / inconclusive; + those called hybrid, if any.\n\n{}",
        aligned(&table)
    ))
}

/// Packets: from what a thousandth of loss is one packet of, to the paper's.
const LENGTHS: [u32; 7] = [1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];
