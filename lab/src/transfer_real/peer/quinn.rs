//! quinn: `lab/quinn`, a workspace of its own, which is built when it is wanted and by nobody else.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::bench::{Bench, Tools};
use crate::process::Process;
use crate::tool::run;

/// The program.
pub(super) fn built(tools: &Tools) -> Result<PathBuf, String> {
    tools.quinn.get_or_init(|| build().map_err(|error| format!("{error:#}"))).clone()
}

fn build() -> anyhow::Result<PathBuf> {
    let folder = folder();
    ensure!(folder.join("Cargo.toml").is_file(), "the sources of lab/quinn are not here");
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target).join("quinn"),
        None => folder.join("target"),
    };
    let built = Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", &target)
        .stdin(Stdio::null())
        .output()
        .context("lab/quinn cannot be built")?;
    let said = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "lab/quinn cannot be built: {}", said.lines().next().unwrap_or("?"));
    Ok(target.join("release/quinn-bulk"))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("quinn")
}

/// The library's, as its lock file has it.
pub(super) fn version() -> String {
    let lock = std::fs::read_to_string(folder().join("Cargo.lock")).unwrap_or_default();
    let named = lock.split("[[package]]").find(|package| package.contains("name = \"quinn\"\n"));
    let version = named.and_then(|package| package.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("?").to_owned()
}

/// What its receiver read.
pub(super) fn measure(bench: &Bench<'_>, congestion: &str) -> anyhow::Result<f64> {
    let program = built(bench.tools).map_err(anyhow::Error::msg)?;
    let program = program.to_string_lossy();
    let at = format!("{}:{PORT}", bench.network.b.v4());
    let mut server = bench.network.b.command("timeout");
    server.args([&bench.limit_s().to_string(), &*program, "serve", &at]).stdout(Stdio::piped());
    let mut server = Process::spawn(server.stderr(Stdio::null()))?;
    let lines = server.lines()?;
    lines.recv().context("quinn's server ended before it listened")?;
    let seconds = bench.seconds.to_string();
    run(&bench.network.a, &[&program, "send", &at, &seconds, congestion], bench.limit_s())?;
    let said = lines.recv().context("quinn's server ended without a word")?;
    let (bytes, seconds) = said.split_once(' ').context("quinn's server says no rate")?;
    let (bytes, seconds): (f64, f64) = (bytes.parse()?, seconds.parse()?);
    ensure!(0.0 < seconds, "quinn moved nothing");
    Ok(8.0 * bytes / seconds)
}

const PORT: u16 = 4433;
