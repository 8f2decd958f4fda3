//! GridFTP (Globus), without its security: anybody may log in to its server.

use std::process::Stdio;

use super::super::tool::{run, wait_for_port};
use super::Bench;
use crate::process::Process;

/// A file over so many TCP connections.
pub(super) fn measure(bench: &Bench<'_>, streams: u32) -> anyhow::Result<f64> {
    let (address, streams) = (bench.network.b.v4().to_string(), streams.to_string());
    let log = bench.tools.path().join("gridftp.log");
    let mut server = bench.network.b.command("globus-gridftp-server");
    server.args(["-p", PORT_TEXT, "-aa", "-anonymous-user", "nobody", "-anonymous-group", "nogroup"]);
    server.args(["-data-interface", &address, "-l"]).arg(log);
    let _server = Process::spawn(server.stdout(Stdio::null()).stderr(Stdio::null()))?;
    wait_for_port(&bench.network.b, "tcp", PORT)?;
    bench.copied(|from, to, limit_s| {
        let from = format!("file://{}", from.display());
        let to = format!("ftp://{address}:{PORT_TEXT}{}/source", to.display());
        run(&bench.network.a, &["globus-url-copy", "-p", &streams, &from, &to], limit_s)
    })
}

const PORT: u16 = 2811;
const PORT_TEXT: &str = "2811";
