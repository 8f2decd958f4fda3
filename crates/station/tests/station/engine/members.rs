//! A member can write only its own records and entry. These tests try all known ways to write other
//! records and entries.

use std::io::BufRead as _;

use serde_json::json;

use super::{ask, entry, invite, keeping, kind, lines, record, register};
use crate::http::{get, get_until, post, send};
use crate::{quiet, serve, serve_new, start_new};

#[test]
fn a_station_can_write_only_its_own_records_and_entry() {
    let station = serve_new(keeping);
    let address = station.address();
    let (b, c) = (invite(address, Some("b")), invite(address, Some("c")));
    assert_eq!(register(address, &c, "c").status, 200);
    let write =
        |token: &str, records: &[serde_json::Value]| ask(address, token, "POST", "records", &lines(records));
    assert_eq!(write(&b, &[record("b", "b", 1)]).json(), json!({ "records": 1 }));

    // Member b cannot register under the name of a different station, nor under an invented name.
    for host in ["c", "d", "here"] {
        let refused = register(address, &b, host);
        assert_eq!((refused.status, kind(&refused).as_str()), (403, "denied"), "{host}: {}", refused.body);
    }
    // Member b cannot write records of a different member or of the serving station, neither alone
    // nor together with its own records.
    for records in [
        vec![record("c", "c", 1)],
        vec![record("here", "here", 1)],
        vec![record("b", "b", 2), record("c", "c", 1)],
        vec![record("c", "b", 1)],
    ] {
        let refused = write(&b, &records);
        assert_eq!((refused.status, kind(&refused).as_str()), (403, "denied"), "{}", refused.body);
    }
    let of_c = ask(address, &b, "GET", "watermark?origin=c", "");
    assert_eq!(of_c.json(), json!({ "watermark": 0 }), "nothing of c was stored");
    // The station may have recorded its own memory.
    let of_here = ask(address, &b, "GET", "history?source=here&target=south&quantity=rtt", "");
    assert!(
        of_here.body.contains("{\"next\":null}") && !of_here.body.contains("origin"),
        "nothing of here was stored: {}",
        of_here.body
    );
    assert_eq!(
        ask(address, &b, "GET", "next_seq?origin=b", "").json(),
        json!({ "next_seq": 2 }),
        "all or nothing"
    );

    // The station acknowledges a record with the member as origin and a different source, but does
    // not store this record.
    assert_eq!(write(&b, &[record("b", "c", 2)]).status, 200);
    assert_eq!(ask(address, &b, "GET", "watermark?origin=b", "").json(), json!({ "watermark": 2 }));
    let history = ask(address, &b, "GET", "history?source=c&target=south&quantity=rtt", "");
    assert!(history.body.contains("{\"next\":null}") && !history.body.contains("origin"), "{}", history.body);
    assert_eq!(get(address, "/v1/series?source=c").json(), json!({ "series": [] }));

    // The station shows the member's records in the same way as the records of the station itself.
    let shown = get(address, "/v1/series?source=b").json();
    assert_eq!(shown["series"][0]["count"], 1, "{shown}");
    // A member cannot renew or end the registration of another.
    let registration = register(address, &c, "c").json()["registration"].as_str().unwrap().to_string();
    for method in ["POST", "DELETE"] {
        let other = ask(address, &b, method, &format!("entry?registration={registration}"), "");
        assert_eq!((other.status, kind(&other).as_str()), (404, "unregistered"));
    }
    assert_eq!(ask(address, &c, "POST", &format!("entry?registration={registration}"), "").status, 200);
}

#[test]
fn an_open_invitation_does_not_grant_a_name_in_use() {
    let station = serve_new(keeping);
    let address = station.address();
    let feed = |seq: u64| {
        let record = json!({ "seq": seq, "quantity": "depth", "value": 1 });
        post(address, "/v1/measurements", &json!({ "origin": "app", "records": [record] }).to_string())
    };
    assert_eq!(feed(1).status, 201);
    // Without an origin these are records of the serving station, with a source that is not a
    // station.
    let printer = json!({ "source": "printer", "target": "desk", "quantity": "depth", "value": 1 });
    let printed = post(address, "/v1/measurements", &json!({ "records": [printer] }).to_string());
    assert_eq!(printed.status, 201, "{}", printed.body);
    let target = post(address, "/v1/targets", r#"{"target": "192.0.2.9:80", "quantities": ["connect"]}"#);
    assert_eq!(target.status, 201, "{}", target.body);
    let token = invite(address, None);
    for name in
        ["app", "192.0.2.9:80", "printer", "desk", "web:0123456789abcdef", "192.0.2.8:80", "http://a/b"]
    {
        let refused = register(address, &token, name);
        assert_eq!((refused.status, kind(&refused).as_str()), (403, "denied"), "{}", refused.body);
        assert!(refused.body.contains("run `barograph invite "), "{}", refused.body);
    }
    let refused = ask(address, &token, "POST", "records", &lines(&[record("app", "app", 2)]));
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert_eq!(ask(address, &token, "POST", "records", &lines(&[record("b", "b", 1)])).status, 200);
    assert_eq!(feed(2).status, 201, "nothing was stored in its place");
    // The operator invites a station with this name. From then on only this station may number
    // records under the name.
    assert_eq!(register(address, &invite(address, Some("app")), "app").status, 200);
    let refused = feed(3);
    assert_eq!(refused.status, 409, "{}", refused.body);
    // An application cannot write under the name of a member.
    let beside = json!({ "source": "b", "target": "queue", "quantity": "depth", "value": 1 });
    let refused = post(address, "/v1/measurements", &json!({ "records": [beside] }).to_string());
    assert_eq!(refused.status, 409, "{}", refused.body);
    // A removed station may register again with a new invitation. An application may not number
    // records under the name of a removed station, because that station may have used the numbers.
    // The archive keeps only the first record with a number.
    assert_eq!(send(address, "DELETE", "/v1/members?name=b", &[], "").status, 200);
    let numbered =
        json!({ "origin": "b", "records": [{ "target": "q", "quantity": "depth", "value": 1, "seq": 1 }] });
    let refused = post(address, "/v1/measurements", &numbered.to_string());
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("use a different origin"), "{}", refused.body);
    get_until(address, "/v1/series?source=b", |answer| answer.json() == json!({ "series": [] }));
    let again = register(address, &invite(address, None), "b");
    assert_eq!(again.status, 200, "{}", again.body);
    // The removed station may not register again if an application has used the name since the
    // removal.
    assert_eq!(send(address, "DELETE", "/v1/members?name=b", &[], "").status, 200);
    get_until(address, "/v1/series?source=b", |answer| answer.json() == json!({ "series": [] }));
    let taken = post(address, "/v1/measurements", &json!({ "records": [beside] }).to_string());
    assert_eq!(taken.status, 201, "{}", taken.body);
    let refused = register(address, &invite(address, None), "b");
    assert_eq!((refused.status, kind(&refused).as_str()), (403, "denied"), "{}", refused.body);
    // A removed station that never forwarded a record does not keep its name free: an application
    // may use the name as its origin.
    assert_eq!(register(address, &invite(address, Some("idle")), "idle").status, 200);
    assert_eq!(send(address, "DELETE", "/v1/members?name=idle", &[], "").status, 200);
    let record = json!({ "seq": 1, "source": "db", "target": "disk", "quantity": "depth", "value": 1 });
    let numbered = json!({ "origin": "idle", "records": [record] }).to_string();
    assert_eq!(post(address, "/v1/measurements", &numbered).status, 201);
    let refused = register(address, &invite(address, None), "idle");
    assert_eq!((refused.status, kind(&refused).as_str()), (403, "denied"), "{}", refused.body);
}

/// A member numbers its records itself. If an application uses the same name and numbers, the
/// archive takes the records for repetitions and does not store them. So the station refuses these
/// records, also after the removal of the member and after a restart.
#[test]
fn an_application_cannot_number_records_under_the_name_of_a_station_that_forwarded_records() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    let station = serve(config.clone());
    let address = station.address();
    config.listen = address;
    let token = invite(address, None);
    assert_eq!(register(address, &token, "b").status, 200);
    let measured = ask(address, &token, "POST", "records", &lines(&[record("b", "c", 1)]));
    assert_eq!(measured.status, 200, "{}", measured.body);
    assert_eq!(send(address, "DELETE", "/v1/members?name=b", &[], "").status, 200);
    let removed = std::fs::read_to_string(state.path().join("removed.json")).unwrap();
    assert!(removed.contains("\"b\""), "the answer came before the file was written: {removed}");
    // Records of this station that name `b` only as their source do not change this.
    let beside = json!({ "source": "b", "target": "q", "quantity": "depth", "value": 1 });
    let taken = post(address, "/v1/measurements", &json!({ "records": [beside] }).to_string());
    assert_eq!(taken.status, 201, "{}", taken.body);
    let numbered = |origin: &str| {
        let record = json!({ "target": "q", "quantity": "depth", "value": 1, "seq": 1 });
        let answer =
            post(address, "/v1/measurements", &json!({ "origin": origin, "records": [record] }).to_string());
        (answer.status, answer.body)
    };
    let (status, body) = numbered("b");
    assert!(status == 409 && body.contains("use a different origin"), "{status} {body}");
    assert_eq!(numbered("d").0, 201);
    drop(station);
    let _station = serve(config);
    assert_eq!(numbered("b").0, 409);
    assert_eq!(numbered("d").0, 201);
}

/// Only the archive of the station that serves a mesh has records of a removed station. If other
/// stations refused the name, a member could stop an application there.
#[test]
fn other_stations_accept_the_origin_of_a_removed_station() {
    let station = start_new(|state| {
        std::fs::write(state.join("removed.json"), r#"[{"host": "b", "at_unix_ns": 1}]"#).unwrap();
        keeping(state)
    });
    let record = json!({ "target": "q", "quantity": "depth", "value": 1, "seq": 1 });
    let numbered = json!({ "origin": "b", "records": [record] });
    assert_eq!(post(station.address(), "/v1/measurements", &numbered.to_string()).status, 201);
}

/// Earlier versions stored names that look like a different name. This version reads such names,
/// but refuses a new station with such a name.
#[test]
fn a_new_station_with_a_confusable_name_is_refused() {
    let station = serve_new(quiet);
    let address = station.address();
    let token = invite(address, None);
    let hidden = register(address, &token, "b\u{fe0f}");
    assert_eq!((hidden.status, kind(&hidden).as_str()), (400, "invalid"), "{}", hidden.body);
    assert_eq!(post(address, "/v1/invitations", "{\"name\": \"b\u{fe0f}\"}").status, 400);
    assert_eq!(register(address, &token, "b").status, 200);
    let mut hidden_group = entry("b");
    hidden_group["groups"] = json!(["local:lab\u{fe0f}"]);
    let refused = ask(address, &token, "PUT", "entry?ttl_s=10", &hidden_group.to_string());
    assert_eq!((refused.status, kind(&refused).as_str()), (400, "invalid"), "{}", refused.body);
    let measured = ask(address, &token, "POST", "records", &lines(&[record("b", "c\u{fe0f}", 1)]));
    assert_eq!(measured.status, 200, "{}", measured.body);
}

#[test]
fn no_caller_is_served_without_a_known_token() {
    let requests = [
        ("PUT", "entry?ttl_s=10"),
        ("POST", "entry?registration=x"),
        ("DELETE", "entry?registration=x"),
        ("GET", "watch?group=local"),
        ("POST", "records"),
        ("GET", "subscribe"),
        ("GET", "history?source=a&target=b&quantity=rtt"),
        ("GET", "latest"),
        ("GET", "watermark?origin=a"),
        ("GET", "next_seq?origin=a"),
    ];
    for (method, path) in requests {
        // Each request has a station of its own: after eight wrong tokens, a station delays its
        // responses by seconds.
        let state = tempfile::tempdir().unwrap();
        let station = serve(quiet(state.path()));
        let address = station.address();
        let token = invite(address, None);
        let own = std::fs::read_to_string(state.path().join("token")).unwrap();
        let path = format!("/v1/engine/{path}");
        let none = send(address, method, &path, &[], "");
        assert_eq!((none.status, kind(&none).as_str()), (401, "denied"), "{method} {path}");
        assert!(none.head.contains("www-authenticate: bearer"), "{}", none.head);
        // The tokens are the operator's token, a guessed token, and a valid token with the wrong
        // scheme.
        for given in [format!("Bearer {}", own.trim()), "Bearer x".into(), format!("Basic {token}")] {
            let wrong = send(address, method, &path, &[("Authorization", &given)], "");
            assert_eq!(wrong.status, 401, "{method} {path}");
        }
        let page = [("Authorization", "Bearer x"), ("Origin", "http://evil.example")];
        assert_eq!(send(address, method, &path, &page, "").status, 403, "from a page of another site");
    }
}

#[test]
fn a_token_belongs_to_its_first_name_also_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    let station = serve(config.clone());
    let address = station.address();
    config.listen = address;
    let token = invite(address, None);
    // A refused name does not use up the token.
    let own = register(address, &token, "here");
    assert_eq!(own.status, 403);
    assert!(own.error().contains("`here` is the name of this station itself"), "{}", own.body);
    assert_eq!(register(address, &token, "b").status, 200);
    let other = register(address, &token, "c");
    assert_eq!(other.status, 403);
    assert!(other.error().contains("belongs to `b`"), "{}", other.body);
    assert_eq!(register(address, &invite(address, None), "b").status, 403, "the name is bound already");
    assert_eq!(post(address, "/v1/invitations", r#"{"name":"b"}"#).status, 409);
    assert_eq!(post(address, "/v1/invitations", r#"{"name":"here"}"#).status, 409);
    station.stop(crate::LIMIT);

    let _station = serve(config);
    assert_eq!(register(address, &token, "c").status, 403);
    assert_eq!(register(address, &token, "b").status, 200);
}

#[test]
fn a_withdrawn_invitation_ends_at_once() {
    let station = serve_new(quiet);
    let address = station.address();
    let (b, c) = (invite(address, None), invite(address, Some("c")));
    assert_eq!(register(address, &b, "b").status, 200);
    let known = get(address, "/v1/members");
    assert!(!known.body.contains(&b) && !known.body.contains("sha256"), "{}", known.body);
    let known = known.json();
    let of = |index: usize, key: &str| known["members"][index][key].clone();
    assert_eq!((of(0, "name"), of(0, "registered")), (json!("b"), json!(true)));
    assert_eq!((of(1, "name"), of(1, "registered")), (json!("c"), json!(false)));

    let bearer = format!("Bearer {b}");
    let mut stream = super::abuse::open_watch(address, &bearer, "local:lab");
    let elsewhere = ("X-Forwarded-For", "192.0.2.9");
    assert_eq!(send(address, "DELETE", "/v1/members?name=b", &[elsewhere], "").status, 401);
    assert_eq!(send(address, "DELETE", "/v1/members?name=b", &[], "").status, 200);
    assert_eq!(register(address, &b, "b").status, 401);
    let rest = super::abuse::rest(&mut stream);
    assert!(rest.contains(r#""kind":"denied""#), "its streams end: {rest}");
    let watch = super::abuse::first_lines(address, &format!("Bearer {c}"), "local:lab");
    assert_eq!(watch, ["\"synced\""], "its entry is gone");
    assert_eq!(send(address, "DELETE", "/v1/members?name=b", &[], "").status, 404);
    // The name is free for the next invited station.
    assert_eq!(register(address, &invite(address, None), "b").status, 200);
    station.stop(crate::LIMIT);
}

/// A caller of an earlier version, for which the change `Removed` would be an error.
#[test]
fn a_removal_is_reported_to_an_older_station_as_down() {
    let station = serve_new(quiet);
    let address = station.address();
    let (b, c) = (invite(address, Some("b")), invite(address, Some("c")));
    assert_eq!(register(address, &b, "b").status, 200);
    let older = format!("Bearer {c}");
    let newer = format!("{older}\r\nBarograph-Events: later, removed");
    let mut watches = [&older, &newer].map(|headers| super::abuse::open_watch(address, headers, "local:lab"));
    let mut next = |watch: usize| {
        let mut line = String::new();
        while !line.starts_with(['{', '"']) {
            line.clear();
            assert_ne!(watches[watch].read_line(&mut line).unwrap(), 0);
        }
        line.trim_end().to_string()
    };
    for watch in [0, 1] {
        assert!(next(watch).starts_with(r#"{"up":"#));
        assert_eq!(next(watch), "\"synced\"");
    }
    assert_eq!(send(address, "DELETE", "/v1/members?name=b", &[], "").status, 200);
    assert_eq!([next(0), next(1)], [r#"{"down":"b"}"#, r#"{"removed":"b"}"#]);
}

#[test]
fn a_station_that_uses_a_foreign_engine_serves_no_members() {
    let station = start_new(quiet);
    let refused = post(station.address(), "/v1/invitations", "{}");
    assert_eq!(refused.status, 409, "{}", refused.body);
    let asked = ask(station.address(), "x", "PUT", "entry?ttl_s=10", &entry("b").to_string());
    assert_eq!((asked.status, kind(&asked).as_str()), (503, "unavailable"));
    assert_eq!(get(station.address(), "/v1/members").json(), json!({ "members": [] }));
}
