//! Attack: a member uses reply subjects with wildcards that match the reply subjects of other
//! members. After a response, a server deletes all matching reply subjects of the account.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use barograph_engine::{Nats, NatsConfig, token};

use crate::nats::attack::Attacker;
use crate::nats::deployed::{
    ARCHIVE, NORTH, SOUTH, by_certificate, by_credentials, certificate_options, credentials, has_openssl,
    script, stations, stations_in_one_account, with_accounts, with_certificates,
};
use crate::nats::server::{self, NatsServer};

#[tokio::test]
async fn a_member_with_a_certificate_cannot_take_responses_of_another_member() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &stations) else { return };
    let answered = attack_by_certificate(directory.path(), &server, &reads).await;
    assert_eq!(answered, ASKED, "answers to another member");
}

/// The attack succeeds where all stations share an account. This shows that the attack itself
/// works.
#[tokio::test]
async fn responses_can_be_taken_in_a_shared_account() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &stations_in_one_account) else { return };
    let answered = attack_by_certificate(directory.path(), &server, &reads).await;
    assert!(answered < ASKED, "{answered} of {ASKED} answers");
}

#[tokio::test]
async fn a_member_with_credentials_cannot_take_responses_of_another_member() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(_), true) = (server::binary(), has_openssl()) else { return };
    script(directory.path(), "accounts", &["setup", "3"]);
    for (role, host) in [("archive", ARCHIVE), ("station", NORTH), ("station", SOUTH)] {
        script(directory.path(), "accounts", &[role, host]);
    }
    // With `sync_interval: always`, responses wait for the disk, so the attack has time to delete
    // their reply subjects.
    let text = with_accounts(directory.path()).replace("jetstream {", "jetstream { sync_interval: always,");
    let server = NatsServer::start_with(directory.path(), &text).unwrap();
    let options = async |host| {
        ConnectOptions::with_credentials_file(credentials(directory.path(), host)).await.unwrap()
    };
    let archive = by_credentials(directory.path(), &server, ARCHIVE);
    let answered = attack(&server, archive, options(NORTH).await, options(SOUTH).await, &reads).await;
    assert_eq!(answered, ASKED, "answers to another member");
}

async fn attack_by_certificate(directory: &Path, server: &NatsServer, subjects: Subjects<'_>) -> usize {
    let options = |host| certificate_options(directory, host);
    attack(server, by_certificate(directory, server, ARCHIVE), options(NORTH), options(SOUTH), subjects).await
}

/// Two subjects at which a server answers requests of the station with this token.
type Subjects<'a> = &'a dyn Fn(&str) -> [String; 2];

/// A station may only read the directory, by two names.
fn reads(_: &str) -> [String; 2] {
    ["barograph.g.KV_barograph_dir".into(), "$JS.API.DIRECT.GET.KV_barograph_dir".into()]
}

/// Runs the attack: the attacker's reply subjects match the reply subjects of the victim. Returns
/// the number of responses that the victim got; [`ASKED`] if none is missing.
async fn attack(
    server: &NatsServer,
    archive: NatsConfig,
    attacker: ConnectOptions,
    victim: ConnectOptions,
    subjects: Subjects<'_>,
) -> usize {
    let archive = Arc::new(Nats::new(archive).unwrap());
    let local = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&archive, local.path());
    server::canary(&*archive, ARCHIVE, 1).await;
    let attacker = Attacker::new(&server.url, attacker).await.client;
    let inboxes = format!("_INBOX_{}", token(SOUTH));
    let victim = victim.custom_inbox_prefix(inboxes.clone()).request_timeout(Some(WITHIN));
    let victim = victim.connect(&server.url).await.unwrap();
    let mut answered = 0;
    for reply in [">".to_owned(), format!("{inboxes}.>")] {
        for (own, victims) in subjects(&token(NORTH)).into_iter().zip(subjects(&token(SOUTH))) {
            // The attacker sends requests before and after the victim's requests, so that these are
            // in the middle of the queue.
            request_with_reply(&attacker, &own, &reply).await;
            let asked = (0..BATCH).map(|_| victim.request(victims.clone(), "".into()));
            let (answers, ()) = futures_util::future::join(
                futures_util::future::join_all(asked),
                request_with_reply(&attacker, &own, &reply),
            )
            .await;
            let in_time = answers.into_iter().filter(|answer| answer.is_ok()).count();
            answered += in_time;
            if in_time < BATCH {
                return answered;
            }
        }
    }
    answered
}

async fn request_with_reply(attacker: &Client, subject: &str, reply: &str) {
    for _ in 0..FLOOD {
        attacker.publish_with_reply(subject.to_owned(), reply.to_owned(), "".into()).await.unwrap();
    }
    attacker.flush().await.unwrap();
}

/// Number of requests of the victim for each reply subject of the attacker and each subject.
const BATCH: usize = 20;
const ASKED: usize = 4 * BATCH;

/// Number of messages that the attacker sends at once, smaller than the queue of a stream.
const FLOOD: usize = 300;

/// Time after which a response counts as lost.
const WITHIN: Duration = Duration::from_secs(10);
