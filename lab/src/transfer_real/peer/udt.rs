//! UDT 4 (Gu and Grossman 2007): Debian's examples of its library, built here.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::bench::{Bench, Tools};
use crate::stats::mean;
use crate::tool::{Ended, run};

/// The folder of its examples.
pub(super) fn built(tools: &Tools) -> Result<PathBuf, String> {
    tools.udt.get_or_init(|| build(tools.path()).map_err(|error| format!("{error:#}"))).clone()
}

fn build(folder: &Path) -> anyhow::Result<PathBuf> {
    let source = Path::new("/usr/share/doc/libudt-dev/examples");
    let folder = folder.join("udt");
    fs::create_dir(&folder)?;
    for name in ["cc.h", "test_util.h", "sendfile.cpp", "recvfile.cpp", "appclient.cpp", "appserver.cpp"] {
        let text = read(source, name).context("no examples of UDT (Debian: libudt-dev)")?;
        fs::write(folder.join(name), text)?;
    }
    for name in ["sendfile", "recvfile", "appclient", "appserver"] {
        let built = Command::new("g++")
            .args(["-O2", "-w", "-I/usr/include/udt", "-o", name, &format!("{name}.cpp")])
            .args(["-ludt", "-lpthread"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&built.stderr);
        ensure!(
            built.status.success(),
            "{name} of UDT cannot be built: {}",
            said.lines().next().unwrap_or("?")
        );
    }
    Ok(folder)
}

/// A file of the documentation; Debian compresses those of some length.
fn read(folder: &Path, name: &str) -> anyhow::Result<String> {
    let plain = folder.join(name);
    if plain.is_file() {
        return Ok(fs::read_to_string(plain)?);
    }
    let packed = fs::File::open(folder.join(format!("{name}.gz")))?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text)?;
    Ok(text)
}

/// The rate that its client shows each second, all but the first.
pub(super) fn memory(bench: &Bench<'_>) -> anyhow::Result<f64> {
    let folder = built(bench.tools).map_err(anyhow::Error::msg)?;
    let _server = bench.serve(&bench.network.b, &folder.join("appserver"), &[PORT_TEXT], ("udp", PORT))?;
    let (to, client) = (bench.network.b.v4().to_string(), folder.join("appclient"));
    let log = folder.join("appclient.log");
    // It ends after 100 GB, which is stopped before, so its output goes to a file.
    let line = format!(
        "exec timeout {} stdbuf -oL {} {to} {PORT_TEXT} > {}",
        bench.seconds + 2,
        client.display(),
        log.display()
    );
    let _ = run(&bench.network.a, &["sh", "-c", &line], bench.seconds + super::bench::GRACE_S)?;
    let text = fs::read_to_string(&log)?;
    let rates: Vec<f64> =
        text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).skip(1).collect();
    ensure!(!rates.is_empty(), "appclient showed no rate");
    Ok(1e6 * mean(&rates))
}

/// A file, which the far host asks for.
pub(super) fn file(bench: &Bench<'_>) -> anyhow::Result<f64> {
    let folder = built(bench.tools).map_err(anyhow::Error::msg)?;
    let client = folder.join("recvfile");
    let _server = bench.serve(&bench.network.a, &folder.join("sendfile"), &[PORT_TEXT], ("udp", PORT))?;
    let from_host = bench.network.a.v4().to_string();
    bench.copied(|from, to, limit_s| -> anyhow::Result<Ended> {
        let (from, to) = (from.to_string_lossy(), to.join("source"));
        let (client, to) = (client.to_string_lossy(), to.to_string_lossy());
        run(&bench.network.b, &[&client, &from_host, PORT_TEXT, &from, &to], limit_s)
    })
}

const PORT: u16 = 9000;
const PORT_TEXT: &str = "9000";
