//! GridFTP (Globus), without its security: anybody may log in to its server.

use std::path::Path;

use super::bench::Bench;
use crate::tool::run;

/// A file over so many TCP connections.
pub(super) fn measure(bench: &Bench<'_>, streams: u32) -> anyhow::Result<f64> {
    let (address, streams) = (bench.network.b.v4().to_string(), streams.to_string());
    let log = bench.tools.path().join("gridftp.log").to_string_lossy().into_owned();
    let words = ["-p", PORT_TEXT, "-aa", "-anonymous-user", "nobody", "-anonymous-group", "nogroup"];
    let words = [&words[..], &["-data-interface", &address, "-l", &log]].concat();
    let program = Path::new("globus-gridftp-server");
    let _server = bench.serve(&bench.network.b, program, &words, ("tcp", PORT))?;
    bench.copied(|from, to, limit_s| {
        let from = format!("file://{}", from.display());
        let to = format!("ftp://{address}:{PORT_TEXT}{}/source", to.display());
        run(&bench.network.a, &["globus-url-copy", "-p", &streams, &from, &to], limit_s)
    })
}

const PORT: u16 = 2811;
const PORT_TEXT: &str = "2811";
