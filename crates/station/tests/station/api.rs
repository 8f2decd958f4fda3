//! Reads of the API, and measurements from applications.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use crate::http::{SseReader, get, post, send};
use crate::{quiet, start, start_new};

const SERIES: &str = "source=here&target=queue&quantity=length";

fn feed(values: &[f64]) -> String {
    let record = |value: &f64| json!({ "target": "queue", "quantity": "length", "value": value });
    json!({ "records": values.iter().map(record).collect::<Vec<_>>() }).to_string()
}

#[test]
fn a_submitted_value_is_stored_forecast_and_streamed() {
    let station = start_new(quiet);
    let address = station.address();
    let mut events = SseReader::open(address, "/v1/stream?quantity=length");
    let answer = post(address, "/v1/measurements", &feed(&[1.0, 2.0, 0.1]));
    assert_eq!((answer.status, answer.json()), (201, json!({ "stored": 3 })));

    for (index, value) in [1.0, 2.0, 0.1].into_iter().enumerate() {
        let (name, point) = events.next().unwrap();
        assert_eq!(name, "point");
        assert_eq!((point["value"].as_f64(), point["target"].as_str()), (Some(value), Some("queue")));
        assert_eq!(point.get("forecast").is_some(), index > 0, "{point}");
        assert!(point["next"]["median"]["method"].is_string());
    }
    let recent = get(address, &format!("/v1/recent?{SERIES}")).json();
    assert_eq!(recent["points"].as_array().unwrap().len(), 3);
    assert!(recent["points"][2]["forecast"].is_number());
    assert_eq!(recent["next"]["count"], 3);
    let history = get(address, &format!("/v1/history?{SERIES}")).json();
    let values: Vec<f64> = history["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["value"].as_f64().unwrap())
        .collect();
    assert_eq!(values, [0.1, 2.0, 1.0], "newest first");
    assert_eq!(station.stop(crate::LIMIT), 0);
    assert!(events.next().is_none(), "the stream ends with the station");
}

#[test]
fn history_is_paged() {
    let station = start_new(quiet);
    let address = station.address();
    post(address, "/v1/measurements", &feed(&[1.0, 2.0, 3.0, 4.0, 5.0]));
    let mut path = format!("/v1/history?{SERIES}&limit=2");
    let mut pages = Vec::new();
    loop {
        let page = get(address, &path).json();
        pages.push(page["records"].as_array().unwrap().len());
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/history?{SERIES}&limit=2&after={next}");
    }
    assert_eq!(pages, [2, 2, 1]);
}

#[test]
fn records_of_an_origin_can_be_repeated() {
    let state = tempfile::tempdir().unwrap();
    let station = start(quiet(state.path()));
    let address = station.address();
    let body = |seqs: &[u64]| {
        let record = |seq: &u64| json!({ "seq": seq, "quantity": "load", "value": *seq });
        json!({ "origin": "app", "records": seqs.iter().map(record).collect::<Vec<_>>() }).to_string()
    };
    for _ in 0..3 {
        assert_eq!(post(address, "/v1/measurements", &body(&[1, 2])).status, 201);
    }
    assert_eq!(post(address, "/v1/measurements", &body(&[2, 3])).status, 201);
    let load = "source=app&target=app&quantity=load";
    assert_eq!(get(address, &format!("/v1/history?{load}")).json()["records"].as_array().unwrap().len(), 3);
    assert_eq!(
        get(address, &format!("/v1/series?{load}")).json()["series"][0]["count"],
        3,
        "learnt once each"
    );
    station.stop(crate::LIMIT);

    // The archive keeps the sequence numbers.
    let station = start(quiet(state.path()));
    assert_eq!(post(station.address(), "/v1/measurements", &body(&[3])).status, 201);
    assert_eq!(get(station.address(), &format!("/v1/series?{load}")).json()["series"][0]["count"], 3);
}

#[test]
fn different_content_for_a_stored_record_is_a_conflict() {
    let station = start_new(quiet);
    let address = station.address();
    let body = |value: f64, time_s: Option<f64>| {
        let mut record = json!({ "seq": 5, "quantity": "load", "value": value });
        if let Some(time_s) = time_s {
            record["time_s"] = json!(time_s);
        }
        json!({ "origin": "app", "records": [record] }).to_string()
    };
    assert_eq!(post(address, "/v1/measurements", &body(1.0, None)).json(), json!({ "stored": 1 }));
    assert_eq!(post(address, "/v1/measurements", &body(1.0, None)).json(), json!({ "stored": 1 }));
    let refused = post(address, "/v1/measurements", &body(2.0, None));
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.error().contains("record 5 of `app`"), "{}", refused.error());
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert_eq!(post(address, "/v1/measurements", &body(1.0, Some(now_s - 9.0))).status, 409);
    let load = get(address, "/v1/history?source=app&target=app&quantity=load").json();
    assert_eq!(load["records"].as_array().unwrap().len(), 1);
}

#[test]
fn unknown_parameters_are_refused_also_on_routes_without_parameters() {
    let station = start_new(quiet);
    for path in ["/v1/station?foo=1", "/v1/targets?foo=1", "/v1/series?foo=1"] {
        let refused = get(station.address(), path);
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.error().contains("foo"), "{path}: {}", refused.error());
    }
    assert_eq!(get(station.address(), "/v1/targets").status, 200);
}

#[test]
fn invalid_submissions_are_refused_as_a_whole_with_a_reason() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.series_max = 3;
    let station = start(config);
    let address = station.address();
    let many = feed(&vec![1.0; 1001]);
    let large = format!("{{\"records\": [], \"origin\": \"{}\"}}", "x".repeat(300_000));
    let fourth =
        json!({ "records": [{ "quantity": "a", "value": 1 }, { "quantity": "b", "value": 1 }] }).to_string();
    for (body, status, word) in [
        ("", 400, "body"),
        ("{", 400, "body"),
        ("[]", 400, "body"),
        (r#"{"records": [{"quantity": "a", "value": "1"}]}"#, 400, "body"),
        (r#"{"records": [{"quantity": "a", "value": 1e999}]}"#, 400, "body"),
        (r#"{"records": [{"quantity": "a", "value": NaN}]}"#, 400, "body"),
        (r#"{"records": [{"quantity": "a", "valu": 1}]}"#, 400, "valu"),
        (r#"{"records": [{"quantity": "A b", "value": 1}]}"#, 400, "record 0: `quantity`"),
        (
            r#"{"records": [{"quantity": "a", "value": 1}, {"quantity": "a", "target": "", "value": 1}]}"#,
            400,
            "record 1",
        ),
        (r#"{"records": [{"quantity": "a", "value": 1, "seq": 1}]}"#, 400, "origin"),
        (r#"{"origin": "x", "records": [{"quantity": "a", "value": 1}]}"#, 400, "seq"),
        (r#"{"origin": "x", "records": [{"quantity": "a", "value": 1, "seq": 0}]}"#, 400, "seq"),
        (r#"{"origin": "here", "records": [{"quantity": "a", "value": 1, "seq": 1}]}"#, 400, "own name"),
        (r#"{"records": [{"quantity": "a", "value": 1, "time_s": -1}]}"#, 400, "time_s"),
        (r#"{"records": [{"quantity": "a", "value": 1e71}]}"#, 400, "1e70"),
        (r#"{"records": [{"quantity": "rtt", "value": -5}]}"#, 400, "rtt"),
        (r#"{"records": [{"quantity": "loss", "value": 7}]}"#, 400, "0 to 1"),
        (
            r#"{"origin": "x", "records": [{"quantity": "a", "value": 1, "seq": 7},
                {"quantity": "a", "value": 2, "seq": 7}]}"#,
            400,
            "record 1: `seq`: 7",
        ),
        (&many, 400, "1000"),
        (&large, 413, "bytes"),
        (&fourth, 429, "series_max"),
    ] {
        // Two series are those of the host's sensors.
        crate::http::get_until(address, "/v1/station", |answer| answer.json()["series"] == 2);
        let answer = post(address, "/v1/measurements", body);
        let shown = &body[..body.len().min(100)];
        assert_eq!(answer.status, status, "{shown}: {}", answer.body);
        assert!(answer.error().contains(word), "{shown}: {}", answer.error());
    }
    let text = send(address, "POST", "/v1/measurements", &[("Content-Type", "text/plain")], "{}");
    assert_eq!(text.status, 415);
    assert_eq!(get(address, "/v1/series?quantity=a").json()["series"], json!([]), "nothing was stored");
}

#[test]
fn late_values_are_stored_but_not_used_for_forecasts() {
    let station = start_new(quiet);
    let address = station.address();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    for ago in [50.0, 100.0, 50.0] {
        let record = json!({ "target": "queue", "quantity": "length", "value": ago, "time_s": now - ago });
        let body = json!({ "records": [record] }).to_string();
        assert_eq!(post(address, "/v1/measurements", &body).status, 201);
    }
    assert_eq!(get(address, &format!("/v1/history?{SERIES}")).json()["records"].as_array().unwrap().len(), 3);
    assert_eq!(get(address, &format!("/v1/series?{SERIES}")).json()["series"][0]["count"], 2);
}

#[test]
fn invalid_requests_are_refused_with_a_reason() {
    let station = start_new(quiet);
    let address = station.address();
    post(address, "/v1/measurements", &feed(&[1.0]));
    for (path, status, word) in [
        ("/v1/series?sorce=x".to_string(), 400, "sorce"),
        ("/v1/series?source=a%20b".into(), 400, "source"),
        ("/v1/series?quantity=A".into(), 400, "quantity"),
        ("/v1/history".into(), 400, "source, target and quantity"),
        ("/v1/history?source=here&target=nowhere&quantity=rtt".into(), 404, "no series"),
        (format!("/v1/history?{SERIES}&limit=0"), 400, "limit"),
        (format!("/v1/history?{SERIES}&limit=10001"), 400, "limit"),
        (format!("/v1/history?{SERIES}&limit=x"), 400, "limit"),
        (format!("/v1/history?{SERIES}&from_s=nan"), 400, "from_s"),
        (format!("/v1/recent?{SERIES}&level=0.7"), 400, "level"),
        ("/v1/forecast?level=1".into(), 400, "level"),
        ("/v1/forecast?horizon=0".into(), 400, "1 to 1000000"),
        ("/v1/forecast?horizon=2y".into(), 400, "30s, 10m, 1h or 1d, at most 365.25 days"),
        ("/v1/forecast?horizon=1,2,3,4&horizon=5,6,7,8,9".into(), 400, "at most 8 items, found 9"),
        ("/v1/forecast?of=value".into(), 400, "horizon"),
        ("/v1/forecast?horizon=1h&of=median".into(), 400, "mean or value"),
        ("/v1/forecast?quantile=0.001".into(), 400, "0.005 to 0.995"),
        ("/v1/forecast?horizon=1h&level=0.9&level=0.5".into(), 400, "level"),
        ("/v1/forecast?bytes=0".into(), 400, "`bytes`: expected 1 to 1000000000000000"),
        ("/v1/forecast?bytes=1GB".into(), 400, "bytes"),
        ("/v1/forecast?bytes=1000&level=0.999".into(), 400, "at most 0.99 with `bytes`"),
        ("/v1/series?limit=0".into(), 400, "limit"),
        ("/v1/series?after=rtt".into(), 400, "after"),
        ("/v1/stream?level=0.123".into(), 400, "level"),
        ("/v1/nothing".into(), 404, "/v1/nothing"),
        ("/v1/measurements".into(), 405, "method"),
    ] {
        let answer = get(address, &path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.error().contains(word), "{path}: {}", answer.error());
    }
}

#[test]
fn responses_have_the_fields_that_the_openapi_document_requires() {
    let station = start_new(quiet);
    let address = station.address();
    let many: Vec<f64> = (0..60).map(|i| f64::from(i % 7)).collect();
    post(address, "/v1/measurements", &feed(&many));
    let document = get(address, "/v1/openapi.json").json();
    for path in [
        "/v1/station".to_string(),
        "/v1/series".into(),
        "/v1/latest".into(),
        format!("/v1/history?{SERIES}"),
        format!("/v1/recent?{SERIES}"),
        "/v1/forecast".into(),
        "/v1/targets".into(),
        "/healthz".into(),
    ] {
        let answer = get(address, &path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let plain = path.split('?').next().unwrap();
        let schema =
            &document["paths"][plain]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path} is not documented");
        conforms(&document, schema, &answer.json(), &path);
    }
    let recent = get(address, &format!("/v1/recent?{SERIES}&level=0.5")).json();
    let newest = recent["points"].as_array().unwrap().last().unwrap().clone();
    assert!(newest["lower"].as_f64() <= newest["upper"].as_f64() && newest["lower"].is_number(), "{newest}");
    station.stop(crate::LIMIT);
}

/// Feeds 1400 values of [`SERIES`], ten seconds apart; the newest was measured an hour ago.
fn feed_hours(address: std::net::SocketAddr) {
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let records: Vec<Value> = (0..1400_u32)
        .map(|n| {
            let (time_s, value) =
                (now_s - 3600.0 - 10.0 * f64::from(1399 - n), 5.0 + f64::from(n * 7919 % 101));
            json!({ "target": "queue", "quantity": "length", "time_s": time_s, "value": value })
        })
        .collect();
    for records in records.chunks(700) {
        assert_eq!(post(address, "/v1/measurements", &json!({ "records": records }).to_string()).status, 201);
    }
    assert_eq!(get(address, "/v1/series").json()["series"][0]["count"], 1400);
}

#[test]
fn forecasts_reach_horizons_with_quantiles_and_the_value_now() {
    let station = start_new(quiet);
    let address = station.address();
    feed_hours(address);
    let plain = get(address, "/v1/forecast").json()["forecasts"][0].clone();
    assert!(plain.get("horizons").is_none() && plain.get("now").is_none(), "{plain}");
    let path = "/v1/forecast?horizon=1,5m&horizon=10m&horizon=1d&of=value&quantile=0.1,0.9&level=0.8";
    let answer = get(address, path).json();
    let document = get(address, "/v1/openapi.json").json();
    conforms(&document, &json!({ "$ref": "#/components/schemas/ForecastList" }), &answer, path);
    let row = &answer["forecasts"][0];
    assert_eq!((&row["mean"], &row["median"]), (&plain["mean"], &plain["median"]));

    let horizons = row["horizons"].as_array().unwrap();
    let lengths: Vec<_> =
        horizons.iter().map(|one| (one["steps"].as_u64(), one["seconds"].as_f64())).collect();
    assert_eq!(lengths, [(Some(1), None), (None, Some(300.0)), (None, Some(600.0)), (None, Some(86_400.0))]);
    let bases: Vec<_> = horizons.iter().map(|one| &one["basis"]).collect();
    assert_eq!(bases, ["own", "own", "between", "beyond"], "{row}");
    assert_eq!(horizons[0]["median"], plain["median"], "the next value");
    let between = horizons[2]["from_steps"].as_array().unwrap();
    assert!((between[0].as_f64().unwrap() - 30.0).abs() < 0.1, "{between:?}");
    for one in horizons {
        let [low, median, high] =
            [&one["quantiles"][0]["value"], &one["median"]["value"], &one["quantiles"][1]["value"]]
                .map(|value| value.as_f64().unwrap());
        assert!(low <= median && median <= high, "{one}");
        assert!(one["lower"].as_f64() <= one["upper"].as_f64() && one["lower"].is_number(), "{one}");
        assert_eq!(one["of"], "value");
        assert!(one["scored"].as_u64() > Some(10) && one["median"]["mae"].is_number(), "{one}");
        assert!(one.get("availability").is_none(), "nothing failed: {one}");
    }
    let now = &row["now"];
    assert!((3600.0..3700.0).contains(&now["age_s"].as_f64().unwrap()), "{now}");
    let width = |one: &Value| one["upper"].as_f64().unwrap() - one["lower"].as_f64().unwrap();
    assert!(width(now) >= width(&horizons[0]), "{now}");
}

#[test]
fn forecasts_of_goodputs_have_the_time_of_a_transfer() {
    let station = start_new(quiet);
    let address = station.address();
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let records: Vec<Value> = (0..120_u32)
        .flat_map(|n| {
            let time_s = now_s - 10.0 * f64::from(119 - n);
            [("rtt", 0.01), ("goodput", f64::from(100 + n % 3) * 1e6)].map(|(quantity, value)| {
                json!({ "target": "far", "quantity": quantity, "time_s": time_s, "value": value })
            })
        })
        .collect();
    assert_eq!(post(address, "/v1/measurements", &json!({ "records": records }).to_string()).status, 201);
    let path = "/v1/forecast?target=far&bytes=1000000000&level=0.8";
    let answer = get(address, path).json();
    let document = get(address, "/v1/openapi.json").json();
    conforms(&document, &json!({ "$ref": "#/components/schemas/ForecastList" }), &answer, path);
    let row = |answer: &Value, quantity: &str| {
        let rows = answer["forecasts"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["quantity"] == quantity).unwrap()
    };
    assert!(row(&answer, "rtt").get("transfer").is_none(), "a round trip carries no bytes");
    let goodput = row(&answer, "goodput");
    let transfer = &goodput["transfer"];
    assert_eq!(transfer["bytes"], 1_000_000_000);
    let [lower, forecast, upper] =
        ["lower", "forecast", "upper"].map(|key| transfer[key].as_f64().unwrap_or(f64::NAN));
    assert!((75.0..85.0).contains(&forecast), "1 GB at 101 Mbit/s: {transfer}");
    assert!(lower <= forecast && forecast <= upper, "{transfer}");
    assert!(goodput.get("now").is_none() && goodput.get("horizons").is_none(), "{goodput}");
    let both = get(address, &format!("{path}&horizon=1h")).json();
    assert!(row(&both, "goodput")["horizons"].is_array() && row(&both, "goodput")["transfer"].is_object());
    let plain = get(address, "/v1/forecast?target=far").json();
    assert!(row(&plain, "goodput").get("transfer").is_none());
}

#[test]
fn series_are_paged_if_a_limit_is_given() {
    let station = start_new(quiet);
    let address = station.address();
    let record = |target: usize| json!({ "target": format!("t{target}"), "quantity": "length", "value": 1 });
    let body = json!({ "records": (0..5).map(record).collect::<Vec<_>>() }).to_string();
    assert_eq!(post(address, "/v1/measurements", &body).status, 201);
    let document = get(address, "/v1/openapi.json").json();
    let (mut pages, mut path) = (Vec::new(), "/v1/series?quantity=length&limit=2".to_owned());
    loop {
        let page = get(address, &path).json();
        conforms(&document, &json!({ "$ref": "#/components/schemas/SeriesList" }), &page, &path);
        pages.push(page["series"].as_array().unwrap().len());
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/series?quantity=length&limit=2&after={}", next.replace(' ', "%20"));
    }
    assert_eq!(pages, [2, 2, 1]);
    assert!(get(address, "/v1/series?quantity=length").json().get("next").is_none(), "all at once");
}

#[test]
fn horizons_of_more_than_a_thousand_series_are_refused() {
    let station = start_new(quiet);
    let address = station.address();
    let record = |target: usize| json!({ "target": format!("t{target}"), "quantity": "length", "value": 1 });
    for targets in [0..600, 600..1001] {
        let body = json!({ "records": targets.map(record).collect::<Vec<_>>() }).to_string();
        assert_eq!(post(address, "/v1/measurements", &body).status, 201);
    }
    for parameter in ["horizon=1h", "quantile=0.5", "bytes=1000"] {
        let refused = get(address, &format!("/v1/forecast?quantity=length&{parameter}"));
        assert_eq!(refused.status, 400, "{parameter}");
        assert!(refused.error().contains("at most 1000 series, found 1001"), "{}", refused.error());
        let one = get(address, &format!("/v1/forecast?quantity=length&target=t7&{parameter}"));
        assert_eq!(one.status, 200, "{parameter}: {}", one.body);
    }
    assert_eq!(get(address, "/v1/forecast?quantity=length").status, 200, "the next values of all");
}

/// Checks the parts of JSON Schema that the document uses.
fn conforms(document: &Value, schema: &Value, value: &Value, path: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.strip_prefix('#').unwrap();
        return conforms(document, document.pointer(pointer).unwrap(), value, path);
    }
    if let Some(choices) = schema["oneOf"].as_array().filter(|_| schema["type"].is_null()) {
        let choice = choices.iter().find(|choice| (choice["type"] == "null") == value.is_null());
        return conforms(document, choice.unwrap(), value, path);
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let fits = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    assert!(kinds.iter().any(fits), "{path}: {value} is not {kinds:?}");
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{path}: {value}");
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(key.as_str().unwrap()).is_some(), "{path}: {key} is missing in {value}");
    }
    if let Some(object) = value.as_object() {
        for (key, inner) in object {
            let known = &schema["properties"][key];
            if schema["properties"].is_object() {
                assert!(known.is_object(), "{path}: {key} is not documented");
                conforms(document, known, inner, &format!("{path}.{key}"));
            }
        }
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(document, &schema["items"], item, &format!("{path}[]"));
    }
}

#[test]
fn the_page_and_the_metrics_are_served() {
    let station = start_new(quiet);
    let address = station.address();
    post(address, "/v1/measurements", &feed(&[1.0, 2.0]));
    for (path, content_type) in [("/", "text/html"), ("/app.js", "text/javascript"), ("/app.css", "text/css")]
    {
        let answer = get(address, path);
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains(&format!("content-type: {content_type}")), "{}", answer.head);
        assert!(answer.head.contains("content-security-policy: default-src 'none'"));
    }
    let metrics = get(address, "/metrics");
    assert!(
        metrics.body.contains("barograph_measured{quantity=\"length\",source=\"here\",target=\"queue\"} 2.0")
    );
    assert!(metrics.body.contains("barograph_forecast_mae{quantity=\"length\""));
}

#[test]
fn a_station_reports_whether_the_caller_is_on_its_host() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.listen = "0.0.0.0:0".parse().unwrap();
    let station = start(config);
    let port = station.address().port();
    let answer = |ip: IpAddr, headers: &[(&str, &str)]| {
        send((ip, port).into(), "GET", "/v1/station", headers, "").json()["from_this_host"].clone()
    };
    assert_eq!(answer(Ipv4Addr::LOCALHOST.into(), &[]), true);
    assert_eq!(answer(Ipv4Addr::LOCALHOST.into(), &[("X-Forwarded-For", "192.0.2.1")]), false, "a proxy");
    // The address of this host from which packets to a different host would be sent. Nothing is
    // sent.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    match socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()) {
        Ok(own) => assert_eq!(answer(own.ip(), &[]), true, "{own}"),
        Err(error) => barograph_sim::report_skipped(&format!("the page at the host's own address: {error}")),
    }
}

#[test]
fn metrics_come_in_the_format_that_the_scraper_prefers() {
    let station = start_new(quiet);
    let ask = |accept: &[&str]| {
        let headers: Vec<_> = accept.iter().map(|accept| ("Accept", *accept)).collect();
        let answer = send(station.address(), "GET", "/metrics", &headers, "");
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert!(answer.head.to_ascii_lowercase().contains("vary: accept\r\n"), "{}", answer.head);
        answer
    };
    let text: [&[&str]; 5] = [
        &[],
        &["text/plain"],
        &["*/*"],
        &["application/openmetrics-text;q=0.3,text/plain;q=0.7"],
        &["application/json"],
    ];
    for accept in text {
        let answer = ask(accept);
        assert!(
            answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
            "{accept:?}: {}",
            answer.head
        );
        assert!(answer.body.contains("# TYPE barograph_build_info gauge\n"), "{accept:?}: {}", answer.body);
        assert!(!answer.body.contains("# EOF") && !answer.body.contains("# UNIT"), "{accept:?}");
    }
    let openmetrics: [&[&str]; 3] = [
        &["application/openmetrics-text; version=1.0.0"],
        &["application/openmetrics-text;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"],
        &["text/plain;q=0.2", "application/openmetrics-text;q=0.3"],
    ];
    for accept in openmetrics {
        let answer = ask(accept);
        let expected = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(answer.head.contains(expected), "{accept:?}: {}", answer.head);
        assert!(answer.body.contains("# TYPE barograph_build info\n"), "{accept:?}: {}", answer.body);
        assert!(answer.body.ends_with("# EOF\n"), "{accept:?}");
    }
}
