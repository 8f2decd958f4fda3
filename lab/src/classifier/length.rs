//! How accuracy depends on the length of a window.

use barograph_loss::{Cause, Labelled, Meter};

use crate::table::{Table, cells, dash};

use super::judge::{Judged, Method, Models, Split};
use super::kinds::{Kinds, cause_name, is_in_range};
use super::rates::{cell, rates, runs as runs_of};
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
        Table::new(["packets", "cause", "windows (runs)", "losses, median"]).and(methods.map(Method::name));
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
        let row = cells![
            length,
            cause_name(cause),
            format!("{} ({})", of.len(), runs_of(&of)),
            lost.get(lost.len() / 2).map_or_else(dash, u32::to_string),
        ];
        let of_methods = methods.map(|method| cell(rates(&of, method, seed).as_ref()));
        table.push(row.into_iter().chain(of_methods));
    }
    Ok(format!(
        "\n## Length of the window\n\nCut from whole runs, all kinds but outage, loss 0.00008–0.05, {by}; % right [95 % interval over runs] / \
         wrong / inconclusive; + those called hybrid, if any.\n\n{table}"
    ))
}

/// Packets: from what a thousandth of loss is one packet of, to the paper's.
const LENGTHS: [u32; 7] = [1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];
